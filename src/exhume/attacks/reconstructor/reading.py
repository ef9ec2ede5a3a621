"""Learning to read records off differences: which kernel, with labels or without, fitted on all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from exhume.arrays import Array, FloatArray
from exhume.attacks.reconstructor.evidence import Evidence, spacing
from exhume.attacks.reconstructor.kernels import Directions, Kernel, directions
from exhume.attacks.reconstructor.regression import KernelRidge, fit
from exhume.shadows import Order, ShadowSet, shadows_of

_TRIAL = 1000
"""Kernels are compared on this many shadow models, and the best one fitted on all."""
_OTHER_LABEL = 0.03
"""What a shadow model of another label counts, beside 1.03 for one of the same."""
_MISREAD = 1.0
"""A shadow target whose label is misread counts as this many times the mean record's error: on
MNIST a record read by a wrong label is about as far off as the mean image."""

Range = tuple[float, float]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reading:
    """One regression on shadow models: by ``kernel``, among records of one label if ``by_label``.

    Its responses are the record's entries, then one column a class (or the response itself).
    """

    kernel: Kernel
    by_label: bool
    regression: KernelRidge

    def row(
        self,
        compared: Directions,
        difference: FloatArray,
        same: Flags,
        *,
        more: tuple[FloatArray, float] | None = None,
    ) -> tuple[FloatArray, float]:
        """Return the kernel of a difference with every shadow model (k,), and with itself.

        ``same`` tells which have the target's label; ``more`` is a kernel to add, on what else is
        known.
        """
        row = self.kernel.of(*compared.cosines(difference))
        one = np.ones(1)
        own = float(self.kernel.of(one, one, one)[0])
        if more is not None:
            row, own = row + more[0], own + more[1]
        if self.by_label:
            row, own = row * (_OTHER_LABEL + same), own * (_OTHER_LABEL + 1.0)
        return row, own


@dataclass(frozen=True, eq=False)
class Learned:
    """What one set of shadow models taught.

    ``reading`` gives the record; ``labeller`` the label that it needs to be given first, where the
    adversary doesn't know it and reading by label is better. ``line`` (a, b) turns the posterior
    variance at a point into an expected squared error, a + b·variance.
    """

    shadows: ShadowSet
    directions: Directions
    reading: Reading
    labeller: Reading | None
    misread: Flags
    evidence: Evidence
    line: tuple[float, float]

    @property
    def size(self) -> int:
        """How many entries a record has."""
        return int(np.prod(self.shadows.targets.record_shape))

    @property
    def accuracy(self) -> float:
        """The share of shadow targets whose label is read right when left out."""
        return 1.0 - float(self.misread.mean())

    def label(self, difference: FloatArray) -> Array | None:
        """Return the most likely label (1,) by the labeller, or None where there is none."""
        if self.labeller is None:
            return None
        nobody = np.zeros(len(self.shadows), dtype=bool)
        row, _ = self.labeller.row(self.directions, difference, nobody)
        return self.named(self.labeller.regression.predict(row)[self.size :])

    def read(
        self, difference: FloatArray, label: Array | None
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return the record (d,), its label's scores, and the expected squared error."""
        row, own = self.reading.row(self.directions, difference, self.same(label))
        found = self.reading.regression.predict(row)
        squared = self.line[0] + self.line[1] * self.reading.regression.spread_at(row, own)
        return found[: self.size], found[self.size :], squared

    def same(self, label: Array | None) -> Flags:
        """Tell which shadow targets have a label."""
        labels = self.shadows.targets.labels
        return np.asarray(np.zeros(len(labels)) if label is None else labels == label[0], bool)

    def named(self, scores: FloatArray) -> Array:
        """Return the label (1,) that scores stand for."""
        classes = self.shadows.order.training.classes
        if classes is None:
            return np.asarray(scores[:1])
        return np.asarray([classes[int(np.argmax(scores))]])


@lru_cache(maxsize=2)
def learned(order: Order, label_known: bool, value_range: Range | None) -> Learned:
    """Train or fetch an order's shadow models, choose how to read them, and fit that on all.

    Everything is chosen by leave-one-out errors on the shadow models; clipped to ``value_range``.
    """
    shadows = shadows_of(order)
    board = _Board(shadows, directions(shadows.differences, order.layout.first_block()))
    choice = _choice(board, min(len(shadows), _TRIAL), label_known, value_range)
    reading = board.fitted(choice.kernel, choice.by_label, len(shadows))
    labeller = None
    if choice.by_label and not label_known:
        labeller = board.fitted(choice.labeller, False, len(shadows))
    wrong = board.misread(labeller or reading)
    errors = board.errors(reading, value_range)
    blind = board.blind(value_range)
    if labeller is not None:
        errors = with_misread(errors, blind, wrong)
    evidence = Evidence(errors, blind, spacing(shadows.targets, order.fixed_set))
    line = trusted_line(reading.regression.spread, errors)
    return Learned(shadows, board.directions, reading, labeller, wrong, evidence, line)


def with_misread(errors: FloatArray, blind: FloatArray, wrong: Flags) -> FloatArray:
    """Return errors (k,) as they are when the label of the ``wrong`` ones is not known either."""
    return np.where(wrong, np.maximum(errors, _MISREAD * blind), errors)


@dataclass(frozen=True)
class _Choice:
    kernel: Kernel
    by_label: bool
    labeller: Kernel


class _Board:
    """The shadow models laid out for fitting: directions, responses, labels."""

    def __init__(self, shadows: ShadowSet, compared: Directions) -> None:
        self.directions = compared
        self._table: tuple[FloatArray, FloatArray, FloatArray] | None = None
        self.labels = shadows.targets.labels
        self.x = np.asarray(shadows.targets.x, dtype=np.float64).reshape(len(shadows), -1)
        training = shadows.order.training
        answers = training.responses(self.labels)
        self.classes = None if training.classes is None else len(training.classes)
        columns = answers[:, None] if self.classes is None else np.eye(self.classes)[answers]
        self.answers = answers
        self.responses = np.concatenate([self.x, columns], axis=1)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that differ here: with a single array there is no rest."""
        single = self.directions.split == self.directions.differences.shape[1]
        return [one for one in Kernel if not (single and one is Kernel.PRODUCT)]

    def fitted(self, kernel: Kernel, by_label: bool, count: int) -> Reading:
        """Fit the first ``count`` shadow models."""
        table = kernel.of(*self._cosines(count))
        if by_label:
            table = by_labels(table, self.labels[:count])
        found = fit(table, self.responses[:count], judged=self.x.shape[1])
        return Reading(kernel, by_label, found)

    def _cosines(self, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self._table is None or len(self._table[0]) != count:
            self._table = self.directions.table(count)
        return self._table

    def errors(self, reading: Reading, value_range: Range | None) -> FloatArray:
        """Return each shadow target's squared error when left out."""
        left_out = reading.regression.left_out[:, : self.x.shape[1]]
        return squared_errors(left_out, self.x[: len(left_out)], value_range)

    def blind(self, value_range: Range | None) -> FloatArray:
        """Return each shadow target's squared error by the mean of the others."""
        others = (self.x.sum(axis=0) - self.x) / (len(self.x) - 1)
        return squared_errors(others, self.x, value_range)

    def misread(self, reading: Reading) -> Flags:
        """Tell whose label comes out wrong when left out; no response of a regression does."""
        if self.classes is None:
            return np.zeros(len(self.x), dtype=bool)
        scores = reading.regression.left_out[:, self.x.shape[1] :]
        return np.asarray(scores.argmax(axis=1) != self.answers[: len(scores)])


def _choice(board: _Board, count: int, label_known: bool, value_range: Range | None) -> _Choice:
    """Compare kernels, with and without labels, by what is left out of a trial fit."""
    plain = {one: board.fitted(one, False, count) for one in board.kernels}
    errors = {one: float(board.errors(r, value_range).mean()) for one, r in plain.items()}
    best = min(errors, key=lambda one: errors[one])
    if board.classes is None:
        return _Choice(best, False, best)
    wrong = {one: board.misread(reading) for one, reading in plain.items()}
    labeller = min(wrong, key=lambda one: float(wrong[one].mean()))
    mistaken = np.zeros(count, dtype=bool) if label_known else wrong[labeller]
    blind = board.blind(value_range)[:count]
    expected = {}
    for one in board.kernels:
        left_out = board.errors(board.fitted(one, True, count), value_range)
        expected[one] = float(np.where(mistaken, _MISREAD * blind, left_out).mean())
    labelled = min(expected, key=lambda one: expected[one])
    if expected[labelled] < errors[best]:
        return _Choice(labelled, True, labeller)
    return _Choice(best, False, labeller)


def by_labels(table: FloatArray, labels: Array) -> FloatArray:
    """Return a kernel (k, k) in which records of one label count for one another."""
    return np.asarray(table * (_OTHER_LABEL + (labels[:, None] == labels[None])))


def squared_errors(found: FloatArray, truth: FloatArray, value_range: Range | None) -> FloatArray:
    """Return each record's mean squared error (k,), after clipping to the range."""
    clipped = found if value_range is None else np.clip(found, *value_range)
    return np.asarray(np.square(clipped - truth).mean(axis=1))


def trusted_line(spread: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """Return (a, b) ≥ 0 of errors ≈ a + b·spread: what a posterior variance is worth."""
    moved = spread - spread.mean()
    slope = float(moved @ errors) / max(float(moved @ moved), 1e-300)
    slope = min(max(slope, 0.0), float(errors.mean() / max(spread.mean(), 1e-300)))
    return float(errors.mean() - slope * spread.mean()), slope
