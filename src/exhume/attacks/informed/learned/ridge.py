"""Kernel ridge regression from the change that a record causes to the record itself.

Known entries of a record are regressors like any other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from exhume.attacks.informed.learned.kernel_ridge import KernelRidge, fit
from exhume.attacks.informed.learned.label_blocks import (
    BLOCK,
    DENSE,
    LearnedByLabel,
    learned_by_label,
)
from exhume.attacks.informed.learned.shadow_regression import (
    Learned,
    Range,
    by_labels,
    learned,
    squared_errors,
    trusted_line,
    with_misread,
)
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release
from exhume.shadows import Order, first_models, order_for, shadows_of
from exhume.shadows.order import FEWEST, MOST_BYTES


@dataclass(frozen=True, eq=False)
class RidgeProblem:
    """A release, and the shadow models that teach how to read it."""

    release: Release
    order: Order
    knowledge: Knowledge


@dataclass(frozen=True)
class Ridge(ParsedAttack[RidgeProblem]):
    """Learns from shadow models to predict a record from its effect, by kernel ridge regression.

    This is the general attack of Balle et al. 2022 (§IV) with regression instead of a network.
    Differences have norm one. The label is predicted first, then the record among shadow models of
    that label. Cross-validation on the shadow models alone chooses the kernel and the penalty.
    ``layers`` restricts the attack to parameters by name, ``shadows`` bounds the number of models
    trained. Beyond 4,096 of them each label has a kernel of its own, streamed from the set of
    shadow models. Memory: up to there 8 bytes × shadows × parameters (2 GB at most) and 100 bytes ×
    shadows²; beyond, 16 bytes × models² of a block (1.1 GB at most), 16 KB × parameters (2 GB at
    most), and 20 bytes × shadows × entries of a record.
    """

    name: ClassVar[str] = "ridge"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.NETWORK
    layers: tuple[str, ...] | None = None
    shadows: int = 3000

    def __post_init__(self) -> None:
        if self.shadows < 8:
            raise InputError(f"shadows must be at least 8, got {self.shadows}")

    def parse(self, release: Release, knowledge: Knowledge) -> RidgeProblem | Refusal:
        """Return the shadow models to order, or why there can be none."""
        order = self.order(release, knowledge)
        return Refusal(order) if isinstance(order, str) else RidgeProblem(release, order, knowledge)

    def order(self, release: Release, knowledge: Knowledge) -> Order | str:
        """Return the order of shadow models to train, or why there can be none."""
        return order_for(release, knowledge, layers=self.layers, most=self.shadows)

    def memory(self, order: Order) -> int:
        """Return a bound on the bytes that learning from a large order takes."""
        models, entries = len(order.targets), math.prod(order.targets.record_shape)
        block = min(models, BLOCK)
        rows = 4 * 1024 * order.layout.whole
        trial = 2 * min(rows, MOST_BYTES)
        return 16 * block**2 + max(trial, 4 * min(rows, 1 << 28)) + 20 * models * entries

    def _solve(self, problem: RidgeProblem, rng: np.random.Generator) -> Reconstruction:
        order, knowledge = problem.order, problem.knowledge
        label_known = knowledge.labels is not None and order.training.classes is not None
        known, value_range = knowledge.known_attributes, knowledge.value_range
        dense = min(DENSE, max(FEWEST, MOST_BYTES // (4 * order.layout.whole)))
        if known is not None:
            # Known entries are regressors beside the release, which takes one dense kernel.
            order = first_models(order, dense)
        large = len(order.targets) > dense
        try:
            taught: Learned | LearnedByLabel
            taught = (learned_in_blocks if large else learned)(order, label_known, value_range)
        except InputError as error:
            return nothing(
                knowledge, Status.NOT_CONVERGED, f"no shadow models to learn from: {error}"
            )
        difference = taught.shadows.read(problem.release)
        if not difference.any():
            message = "the release equals the result of training without the record"
            return nothing(knowledge, Status.NO_INFORMATION, message)
        label = knowledge.labels if knowledge.labels is not None else taught.label(difference)
        x, scores, squared = taught.read(difference, label)
        if known is not None and isinstance(taught, Learned):
            reading = informed(taught, known.mask.tobytes(), value_range)
            x, squared = reading.read(difference, label, known)
        strange = taught.shadows.far_off(difference)
        label = taught.named(scores) if label is None else np.asarray(label[:1])
        return _answer(taught, x.reshape(1, *knowledge.record_shape), label, squared, strange)


def _answer(
    taught: Learned | LearnedByLabel,
    samples: FloatArray,
    label: Array,
    squared: float,
    strange: bool,
) -> Reconstruction:
    evidence, error = taught.evidence, float(np.sqrt(squared))
    status = Status.WRONG_ASSUMPTION if strange else evidence.status(error)
    how = f"{taught.kernel.value}{', by label' if taught.by_label else ''}"
    parts = [
        f"kernel ridge ({how}) on {len(taught.shadows)} shadow models, "
        f"own error estimate {error:.2g}"
    ]
    if strange:
        parts.append("the release differs far more than any shadow model does")
    return Reconstruction(
        samples,
        status,
        labels=label,
        confidence=np.array([0.0 if strange else evidence.confidence(error)]),
        error_estimate=np.array([error]),
        message="; ".join(part for part in [*parts, taught.shadows.note()] if part),
        stats={
            **taught.shadows.stats(),
            "kernel": taught.kernel.value,
            "by_label": taught.by_label,
            "label_accuracy": taught.accuracy,
            "penalty": taught.penalty,
            "left_out_error": evidence.error,
            "blind_error": evidence.blind_error,
        },
    )


@lru_cache(maxsize=2)
def learned_in_blocks(order: Order, label_known: bool, value_range: Range | None) -> LearnedByLabel:
    """Train or load a large order's shadow models, and fit a block per label."""
    return learned_by_label(shadows_of(order), label_known, value_range)


_WEIGHTS = (0.0, 0.1, 0.3, 1.0, 10.0)
"""Candidate weights of the known entries, relative to 1 for the release."""


@dataclass(frozen=True, eq=False)
class Informed:
    """A regression on releases and on the known entries (``mask``, (d,)), for the other entries.

    ``seen`` (k, known) are the known entries of the shadow targets minus their mean, scaled so that
    their kernel can be added to that of the releases.
    """

    taught: Learned
    mask: Array
    mean: FloatArray
    scale: float
    seen: FloatArray
    regression: KernelRidge | None
    line: tuple[float, float]

    def read(
        self, difference: FloatArray, label: Array | None, known: KnownAttributes
    ) -> tuple[FloatArray, float]:
        """Return the record (d,), with known entries set, and its expected squared error."""
        values = known.values.reshape(-1)
        x = np.array(values)
        if self.regression is None:
            return x, 0.0
        own = (values[self.mask] - self.mean) * self.scale
        row, itself = self.taught.reading.row(
            self.taught.directions,
            difference,
            self.taught.same(label),
            more=(self.seen @ own, float(own @ own)),
        )
        x[~self.mask] = self.regression.predict(row)
        squared = self.line[0] + self.line[1] * self.regression.spread_at(row, itself)
        return x, squared * float((~self.mask).mean())


@lru_cache(maxsize=2)
def informed(taught: Learned, mask_bytes: bytes, value_range: Range | None) -> Informed:
    """Fit once for all targets with the same known entries (the bytes of a mask).

    Leave-one-out errors on shadow targets choose the weight of these entries.
    """
    mask = np.frombuffer(mask_bytes, dtype=bool)
    truth = np.asarray(taught.shadows.targets.x, dtype=np.float64).reshape(len(taught.shadows), -1)
    mean = truth[:, mask].mean(axis=0)
    seen, wanted = truth[:, mask] - mean, truth[:, ~mask]
    if mask.all():
        return Informed(taught, mask, mean, 0.0, seen, None, (0.0, 0.0))
    table = taught.reading.kernel.of(*taught.directions.table(len(truth)))
    size = float(np.sqrt(np.square(seen).sum(axis=1).mean())) or 1.0
    gram = (seen / size) @ (seen / size).T
    tried = {}
    for weight in _WEIGHTS if mask.any() else (0.0,):
        kernel = table + weight * gram
        if taught.reading.by_label:
            kernel = by_labels(kernel, taught.shadows.targets.labels)
        regression = fit(kernel, wanted, judged=wanted.shape[1])
        errors = squared_errors(regression.left_out, wanted, value_range)
        tried[weight] = (float(errors.mean()), errors, regression)
    weight = min(tried, key=lambda one: tried[one][0])
    _, errors, regression = tried[weight]
    if taught.labeller is not None:
        errors = with_misread(errors, taught.evidence.blind, taught.misread)
    scale = float(np.sqrt(weight)) / size
    line = trusted_line(regression.spread, errors)
    return Informed(taught, mask, mean, scale, seen * scale, regression, line)
