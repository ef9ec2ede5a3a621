"""Regression from differences to records: chooses kernel and use of labels, then fits on all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from exhume.attacks.informed.learned.held_out_errors import HeldOutErrors, spacing
from exhume.attacks.informed.learned.kernel_ridge import (
    Directions,
    Kernel,
    KernelRidge,
    directions,
    fit,
)
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.records import Records
from exhume.shadows import Order, ShadowSet, shadows_of
from exhume.training.network import Training
from exhume.training.own_loop import Loop

TRIAL = 1000
"""Kernels are compared on this many shadow models; the best one is fitted on all."""
OTHER_LABEL = 0.03
"""The weight of a shadow model of another label, against 1.03 for one of the same label."""
_MISREAD = 1.0
"""A shadow target with a wrongly predicted label counts as this multiple of the mean record's
error: on MNIST, a record predicted from a wrong label is about as far off as the mean image."""

Range = tuple[float, float]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ShadowRegression:
    """One regression on shadow models, with ``kernel``, within one label if ``by_label``.

    Its responses are the record's entries, then one column per class (or the response itself).
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

        ``same`` marks those with the target's label. ``more`` is a kernel to add, for other
        knowledge.
        """
        row = self.kernel.of(*compared.cosines(difference))
        one = np.ones(1)
        own = float(self.kernel.of(one, one, one)[0])
        if more is not None:
            row, own = row + more[0], own + more[1]
        if self.by_label:
            row, own = row * (OTHER_LABEL + same), own * (OTHER_LABEL + 1.0)
        return row, own


@dataclass(frozen=True, eq=False)
class Learned:
    """The attack learned from one set of shadow models.

    ``reading`` predicts the record. ``labeller`` predicts the label first, if the adversary doesn't
    know it and prediction by label is better. ``line`` (a, b) converts the posterior variance at a
    point to an expected squared error, a + b·variance.
    """

    shadows: ShadowSet
    directions: Directions
    reading: ShadowRegression
    labeller: ShadowRegression | None
    misread: Flags
    evidence: HeldOutErrors
    line: tuple[float, float]

    @property
    def kernel(self) -> Kernel:
        """The kernel by which records are read."""
        return self.reading.kernel

    @property
    def by_label(self) -> bool:
        """Whether records are read among shadow models of their label."""
        return self.reading.by_label

    @property
    def penalty(self) -> float:
        """The penalty of the regression."""
        return self.reading.regression.penalty

    @property
    def size(self) -> int:
        """The number of entries of a record."""
        return int(np.prod(self.shadows.targets.record_shape))

    @property
    def accuracy(self) -> float:
        """The leave-one-out accuracy of the predicted labels of shadow targets."""
        return 1.0 - float(self.misread.mean())

    def label(self, difference: FloatArray) -> Array | None:
        """Return the most likely label (1,) by the labeller, or None without one."""
        if self.labeller is None:
            return None
        nobody = np.zeros(len(self.shadows), dtype=bool)
        row, _ = self.labeller.row(self.directions, difference, nobody)
        return self.named(self.labeller.regression.predict(row)[self.size :])

    def read(
        self, difference: FloatArray, label: Array | None
    ) -> tuple[FloatArray, FloatArray, float]:
        """Return the record (d,), the scores of its label, and the expected squared error."""
        row, own = self.reading.row(self.directions, difference, self.same(label))
        found = self.reading.regression.predict(row)
        squared = self.line[0] + self.line[1] * self.reading.regression.spread_at(row, own)
        return found[: self.size], found[self.size :], squared

    def same(self, label: Array | None) -> Flags:
        """Return a mask of the shadow targets with this label."""
        labels = self.shadows.targets.labels
        return np.asarray(np.zeros(len(labels)) if label is None else labels == label[0], bool)

    def named(self, scores: FloatArray) -> Array:
        """Return the label (1,) with these scores."""
        classes = self.shadows.order.training.classes
        if classes is None:
            return np.asarray(scores[:1])
        return np.asarray([classes[int(np.argmax(scores))]])


@lru_cache(maxsize=2)
def learned(order: Order, label_known: bool, value_range: Range | None) -> Learned:
    """Train or load an order's shadow models, choose the regression, and fit it on all of them.

    Leave-one-out errors on the shadow models, clipped to ``value_range``, decide everything.
    """
    shadows = shadows_of(order)
    board = Board(shadows, directions(shadows.differences, order.layout.first_block()))
    choice = choose(board, min(len(shadows), TRIAL), label_known, value_range)
    reading = board.fitted(choice.kernel, choice.by_label, len(shadows))
    labeller = None
    if choice.by_label and not label_known:
        labeller = board.fitted(choice.labeller, False, len(shadows))
    wrong = board.misread(labeller or reading)
    errors = board.errors(reading, value_range)
    blind = board.blind(value_range)
    if labeller is not None:
        errors = with_misread(errors, blind, wrong)
    evidence = HeldOutErrors(errors, blind, spacing(shadows.targets, order.fixed_set))
    line = trusted_line(reading.regression.spread, errors)
    return Learned(shadows, board.directions, reading, labeller, wrong, evidence, line)


def with_misread(errors: FloatArray, blind: FloatArray, wrong: Flags) -> FloatArray:
    """Return errors (k,) with those of the ``wrong`` ones raised for their misread labels."""
    return np.where(wrong, np.maximum(errors, _MISREAD * blind), errors)


@dataclass(frozen=True)
class KernelChoice:
    """The kernel for records, whether it depends on the label, and the kernel for labels."""

    kernel: Kernel
    by_label: bool
    labeller: Kernel


class Board:
    """The shadow models prepared for fitting: directions, responses, labels."""

    def __init__(self, shadows: ShadowSet, compared: Directions) -> None:
        self.directions = compared
        self._table: tuple[FloatArray, FloatArray, FloatArray] | None = None
        self.labels = shadows.targets.labels
        self.x = np.asarray(shadows.targets.x, dtype=np.float64).reshape(len(shadows), -1)
        training = shadows.order.training
        self.classes = None if training.classes is None else len(training.classes)
        self.answers = training.responses(self.labels)
        self.responses = responses_of(training, shadows.targets)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that differ here: with a single array there is no rest."""
        single = self.directions.split == self.directions.differences.shape[1]
        return [one for one in Kernel if not (single and one is Kernel.PRODUCT)]

    def fitted(self, kernel: Kernel, by_label: bool, count: int) -> ShadowRegression:
        """Fit the first ``count`` shadow models."""
        table = kernel.of(*self._cosines(count))
        if by_label:
            table = by_labels(table, self.labels[:count])
        found = fit(table, self.responses[:count], judged=self.x.shape[1])
        return ShadowRegression(kernel, by_label, found)

    def _cosines(self, count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        if self._table is None or len(self._table[0]) != count:
            self._table = self.directions.table(count)
        return self._table

    def errors(self, reading: ShadowRegression, value_range: Range | None) -> FloatArray:
        """Return the leave-one-out squared error of each shadow target."""
        left_out = reading.regression.left_out[:, : self.x.shape[1]]
        return squared_errors(left_out, self.x[: len(left_out)], value_range)

    def blind(self, value_range: Range | None) -> FloatArray:
        """Return each shadow target's squared error by the mean of the others."""
        others = (self.x.sum(axis=0) - self.x) / (len(self.x) - 1)
        return squared_errors(others, self.x, value_range)

    def misread(self, reading: ShadowRegression) -> Flags:
        """Return a mask of wrong leave-one-out labels; a regression has none."""
        if self.classes is None:
            return np.zeros(len(self.x), dtype=bool)
        scores = reading.regression.left_out[:, self.x.shape[1] :]
        return np.asarray(scores.argmax(axis=1) != self.answers[: len(scores)])


def choose(board: Board, count: int, label_known: bool, value_range: Range | None) -> KernelChoice:
    """Compare kernels, with and without labels, by the leave-one-out errors of a trial fit."""
    plain = {one: board.fitted(one, False, count) for one in board.kernels}
    errors = {one: float(board.errors(r, value_range).mean()) for one, r in plain.items()}
    best = min(errors, key=lambda one: errors[one])
    if board.classes is None:
        return KernelChoice(best, False, best)
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
        return KernelChoice(labelled, True, labeller)
    return KernelChoice(best, False, labeller)


def responses_of(training: Training | Loop, targets: Records) -> FloatArray:
    """Return the entries of records, then one column per class (or the response itself)."""
    answers, classes = training.responses(targets.labels), training.classes
    columns = answers[:, None] if classes is None else np.eye(len(classes))[answers]
    x = np.asarray(targets.x, dtype=np.float64).reshape(len(targets), -1)
    return np.concatenate([x, columns], axis=1)


def by_labels(table: FloatArray, labels: Array) -> FloatArray:
    """Return a kernel (k, k) in which records of the same label have more weight."""
    return np.asarray(table * (OTHER_LABEL + (labels[:, None] == labels[None])))


def squared_errors(found: FloatArray, truth: FloatArray, value_range: Range | None) -> FloatArray:
    """Return each record's mean squared error (k,), after clipping to the range."""
    clipped = found if value_range is None else np.clip(found, *value_range)
    return np.asarray(np.square(clipped - truth).mean(axis=1))


def trusted_line(spread: FloatArray, errors: FloatArray) -> tuple[float, float]:
    """Return (a, b) ≥ 0 with errors ≈ a + b·spread, to calibrate the posterior variance."""
    moved = spread - spread.mean()
    slope = float(moved @ errors) / max(float(moved @ moved), 1e-300)
    slope = min(max(slope, 0.0), float(errors.mean() / max(spread.mean(), 1e-300)))
    return float(errors.mean() - slope * spread.mean()), slope
