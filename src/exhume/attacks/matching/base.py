"""What the matching attacks share: reading, labels, and an answer with its own evidence."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array
from exhume.attacks.base import Attack, nothing
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Stat, Status
from exhume.release import Release

if TYPE_CHECKING:
    from exhume.attacks.matching.core import Match, Problem
    from exhume.attacks.matching.reading import Reading

TINY = 1e-30
"""A release shorter than this is nothing but zeros."""


@dataclass(frozen=True, eq=False)
class Found:
    """What an attack found, and the problem as it was posed.

    ``features`` names how features of the batch were recovered, None where none were;
    ``feature_residual`` is how far they are from explaining their layer's gradient.
    """

    problem: Problem
    match: Match
    jacobians: int = 0
    features: str | None = None
    feature_residual: float | None = None


class MatchingAttack(Attack):
    """An attack through the one loop; subclasses say how to pose the problem and solve it.

    The adversary knows the defences and simulates them with the rest; with ``adaptive`` False it
    takes the release for an unprotected one, for comparison.
    """

    adaptive: bool

    @abstractmethod
    def _solve(
        self, reading: Reading, labels: Array | None, rng: np.random.Generator
    ) -> Found | str:
        """Match the release, or say why it can't be.

        ``labels`` are of the unknown records, None where nothing tells.
        """

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for a gradient or update of a known network at known parameters."""
        import torch

        from exhume.attacks.matching.reading import read

        # Building a network draws from the global stream: it is put back as it was.
        with torch.random.fork_rng(devices=[]):
            reading = read(release, knowledge)
        if isinstance(reading, str):
            return reading
        labels = knowledge.labels
        if labels is not None and len(labels) != reading.count:
            return f"{len(labels)} labels are known, but {reading.count} records are not"
        if labels is None and reading.step.classes is None:
            return "the responses of a regression must be known"
        return self._objection(reading)

    def _objection(self, reading: Reading) -> str | None:
        """Say what else the attack needs."""
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        import torch

        from exhume.attacks.matching.reading import read

        with torch.random.fork_rng(devices=[]):
            reading = read(release, knowledge)
            assert not isinstance(reading, str)
            if not self.adaptive:
                reading = reading.ignoring()
            if reading.length < TINY:
                return nothing(knowledge, Status.NO_INFORMATION, "the release is all zeros")
            labels = known_labels(release, reading, rng)
            found = self._solve(reading, labels, rng)
            if isinstance(found, str):
                return nothing(knowledge, Status.NOT_CONVERGED, found)
            reading, found = self._ordered(reading, found, labels, rng)
            return answer(reading, found, rng)

    def _ordered(
        self, reading: Reading, found: Found, labels: Array | None, rng: np.random.Generator
    ) -> tuple[Reading, Found]:
        """Where the order of mini-batches is not known, solve again with the likeliest."""
        from exhume.attacks.matching.orders import likely_order, unknown_order

        likely = likely_order(reading, found.match.best, rng) if unknown_order(reading) else None
        if likely is None:
            return reading, found
        again = self._solve(likely, labels, rng)
        if isinstance(again, str):
            return reading, found
        ends = [(f.problem, f.match.best) for f in (found, again)]
        left = [problem.residual(run.images, run.labels) for problem, run in ends]
        return (likely, again) if left[1] < left[0] else (reading, found)


def known_labels(release: Release, reading: Reading, rng: np.random.Generator) -> Array | None:
    """Return the unknown records' labels: known, or read off the release, or None."""
    from exhume.attacks.analytic.labels import infer_labels

    knowledge = reading.knowledge
    if knowledge.labels is not None:
        return knowledge.labels
    try:
        left = list(infer_labels(release, knowledge, rng=rng).labels)
    except InputError:
        return None
    for label in [] if knowledge.fixed_set is None else knowledge.fixed_set.labels:
        if label in left:
            left.remove(label)
    return np.asarray(left[: reading.count]) if len(left) >= reading.count else None


def answer(reading: Reading, found: Found, rng: np.random.Generator) -> Reconstruction:
    """Return the best run as a reconstruction, with the adversary's own evidence in its stats."""
    from exhume.attacks.matching.diagnosis import diagnose

    best = found.match.best
    diagnosis = diagnose(reading, found.problem, best, rng)
    stats: dict[str, Stat] = {
        "loss": best.loss,
        "distance": best.distance,
        "residual": diagnosis.residual,
        "floor": diagnosis.floor,
        "visible": diagnosis.visible,
        "condition": diagnosis.condition,
        "scale": diagnosis.scale,
        "evaluations": found.match.evaluations,
        "restarts": len(found.match.runs),
        "jacobians": found.jacobians,
        "reason": diagnosis.reason.name.lower().replace("_", "-"),
        "total_variation": found.problem.total_variation,
    }
    if found.problem.statistics:
        stats["batch_norm"] = found.problem.batch_norm
    if found.features is not None:
        stats["features"] = found.features.replace("_", "-")
        stats["feature"] = found.problem.feature
    if found.feature_residual is not None:
        stats["feature_residual"] = found.feature_residual
    apart, count = found.match.disagreement, len(best.images)
    if apart is not None:
        stats["disagreement"] = apart
    finite = {k: v for k, v in stats.items() if isinstance(v, str) or math.isfinite(v)}
    return Reconstruction(
        best.images.cpu().numpy().astype(np.float64),
        diagnosis.status,
        labels=_named(reading, best.labels.cpu().numpy()),
        error_estimate=None if apart is None else np.full(count, apart),
        message=diagnosis.message,
        stats=finite,
    )


def _named(reading: Reading, labels: Array) -> Array:
    """Return class indices or shares as the data's own labels."""
    classes = reading.step.classes
    if classes is None:
        return labels
    index = labels.argmax(axis=1) if labels.ndim == 2 else labels
    return np.asarray(classes)[index]
