"""Common parts of the matching attacks: reading, labels, and an answer with its own evidence.

Also the run of the loop that attacks with a schedule share.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.attack import Lacking, ParsedAttack, Refusal, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.images import sides_of
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Stat, Status
from exhume.protocol.release import Release

if TYPE_CHECKING:
    from exhume.attacks.gradients.matching.loop import MatchedRuns, MatchingProblem
    from exhume.attacks.gradients.matching.optimisers import Optimiser
    from exhume.attacks.gradients.matching.priors import ImagePrior
    from exhume.attacks.gradients.matching.problem import MatchableRelease
    from exhume.derivatives.smoothed_relu import Continuation


TINY = 1e-30
"""A release with a smaller norm counts as all zeros."""


@dataclass(frozen=True, eq=False)
class FoundImages:
    """The result of an attack, and the problem that it solved.

    ``features`` names how features of the batch were recovered, or is None. ``feature_residual`` is
    the share of their layer's gradient that they do not explain.
    """

    problem: MatchingProblem
    match: MatchedRuns
    jacobians: int = 0
    features: str | None = None
    feature_residual: float | None = None


class MatchingAttack(ParsedAttack["MatchableRelease"]):
    """An attack through the one loop; subclasses say how to pose the problem and match it.

    The adversary knows the defences and simulates them with the rest; with ``adaptive`` False it
    takes the release for an unprotected one, for comparison.
    """

    adaptive: bool

    @abstractmethod
    def _match(
        self, reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
    ) -> FoundImages | str:
        """Match the release, or return why that is impossible.

        ``labels`` belong to the unknown records; None if they are not determined.
        """

    @final
    def parse(self, release: Release, knowledge: Knowledge) -> MatchableRelease | Refusal:
        """Require a gradient or update of a known network at known parameters."""
        reading = matchable(release, knowledge)
        if isinstance(reading, Refusal):
            return reading
        reason = self._objection(reading)
        return reading if reason is None else Refusal(reason)

    def _objection(self, reading: MatchableRelease) -> str | None:
        """Return what else the attack needs, or None."""
        return None

    @final
    def _solve(self, reading: MatchableRelease, rng: np.random.Generator) -> Reconstruction:
        import torch

        with torch.random.fork_rng(devices=[]):
            if not self.adaptive:
                reading = reading.ignoring()
            if reading.length < TINY:
                return nothing(reading.knowledge, Status.NO_INFORMATION, "the release is all zeros")
            labels = known_labels(reading, rng)
            found = self._match(reading, labels, rng)
            if isinstance(found, str):
                return nothing(reading.knowledge, Status.NOT_CONVERGED, found)
            reading, found = self._ordered(reading, found, labels, rng)
            return answer(reading, found, rng)

    def _ordered(
        self,
        reading: MatchableRelease,
        found: FoundImages,
        labels: Array | None,
        rng: np.random.Generator,
    ) -> tuple[MatchableRelease, FoundImages]:
        """If the order of mini-batches is unknown, solve again with the most likely one."""
        from exhume.attacks.gradients.matching.batch_orders import likely_order, unknown_order

        likely = likely_order(reading, found.match.best, rng) if unknown_order(reading) else None
        if likely is None:
            return reading, found
        again = self._match(likely, labels, rng)
        if isinstance(again, str):
            return reading, found
        ends = [(f.problem, f.match.best) for f in (found, again)]
        left = [problem.residual(run.images, run.labels) for problem, run in ends]
        return (likely, again) if left[1] < left[0] else (reading, found)


def matchable(release: Release, knowledge: Knowledge) -> MatchableRelease | Refusal:
    """Return a release that can be matched, with labels known or to be found, or why it can't."""
    import torch

    from exhume.attacks.gradients.matching.problem import read

    # Building a network draws from the global random stream, so its state is restored.
    with torch.random.fork_rng(devices=[]):
        reading = read(release, knowledge)
    if isinstance(reading, Refusal):
        return reading
    labels = knowledge.labels
    if labels is not None and len(labels) != reading.count:
        return Refusal(f"{len(labels)} labels are known, but {reading.count} records are not")
    if labels is None and reading.step.classes is None:
        return Refusal(Lacking("the responses of a regression", "knowledge.labels"))
    return reading


def known_labels(reading: MatchableRelease, rng: np.random.Generator) -> Array | None:
    """Return the unknown records' labels if known or inferred from the release, or None."""
    from exhume.attacks.gradients.analytic.label_inference import infer_labels

    knowledge = reading.knowledge
    if knowledge.labels is not None:
        return knowledge.labels
    try:
        left = list(infer_labels(reading.release, knowledge, rng=rng).labels)
    except InputError:
        return None
    for label in [] if knowledge.fixed_set is None else knowledge.fixed_set.labels:
        if label in left:
            left.remove(label)
    return np.asarray(left[: reading.count]) if len(left) >= reading.count else None


def answer(
    reading: MatchableRelease, found: FoundImages, rng: np.random.Generator
) -> Reconstruction:
    """Return the best run as a reconstruction, with the adversary's own evidence in its stats."""
    from exhume.attacks.gradients.matching.diagnosis import diagnose

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


def _named(reading: MatchableRelease, labels: Array) -> Array:
    """Convert class indices or probabilities to the data's own labels."""
    classes = reading.step.classes
    if classes is None:
        return labels
    index = labels.argmax(axis=1) if labels.ndim == 2 else labels
    return np.asarray(classes)[index]


class Scheduled(Protocol):
    """Settings of a run: ``steps`` from each of ``restarts`` starts, optionally smoothed first."""

    @property
    def steps(self) -> int:
        """Steps of the optimiser per run."""

    @property
    def restarts(self) -> int:
        """Runs."""

    @property
    def continuation(self) -> bool:
        """Whether to start with a smoothed network."""


def matched(
    attack: Scheduled,
    problem: MatchingProblem,
    prior: ImagePrior,
    optimiser: Optimiser,
    variation: float | None,
    rng: np.random.Generator,
) -> FoundImages:
    """Run the loop; if no weight of total variation is given, choose it first."""
    from exhume.attacks.gradients.matching.loop import StepBudget, match
    from exhume.attacks.gradients.matching.term_weights import chosen_variation

    continuation = continuation_of(attack)
    if variation is None:
        steps = max(30, attack.steps // 4)
        variation = chosen_variation(problem, prior, optimiser, steps, rng, continuation)
    flat = len(problem.frame.record_shape) < 2
    least = 0.0 if flat else noise_variation(problem)
    posed = replace(
        problem,
        total_variation=0.0 if flat else max(variation, least),
        least_variation=least,
    )
    budget = StepBudget(steps=attack.steps, restarts=attack.restarts, enough=1e-12)
    found = match(posed, prior, optimiser, budget, rng, continuation=continuation)
    return FoundImages(posed, found)


SMOOTHNESS = 1.5
"""Factor on the total-variation weight from the noise; on CIFAR-10 half or twice is worse."""


def noise_variation(problem: MatchingProblem) -> float:
    """Return the least total-variation weight next to the cosine of a release with known noise.

    As in Bayes' rule, it grows with the noise's share of the release's square and with the number
    of pixels per released number. The cosine can't exceed the square root of the signal's share,
    and the weight is divided by the square root of that. Without it, the attack fits noise.
    """
    released, frame = problem.released, problem.frame
    noise, entries = released.noise, sum(v.numel() for v in released.values)
    if not noise:
        return 0.0
    pixels = frame.count * math.prod(frame.record_shape)
    # The scatter of the noise limits how well the signal's share is known.
    signal = max(1.0 - noise, math.sqrt(2.0 / entries))
    return SMOOTHNESS * noise * (pixels / entries) / math.sqrt(math.sqrt(signal))


def continuation_of(attack: Scheduled) -> Continuation | None:
    """Return the default continuation if the attack uses one, else None."""
    from exhume.derivatives.smoothed_relu import Continuation

    return Continuation() if attack.continuation else None


def no_image(reading: MatchableRelease) -> str | None:
    """Return why an image prior can't represent the records, or None."""
    shape = reading.knowledge.record_shape
    if len(shape) not in (2, 3):
        return f"the image prior generates images, but records have shape {shape}"
    if min(sides_of(shape)[:2]) < 4:
        return f"the image prior generates images of at least 4 × 4, not {shape}"
    return None


def at_least_one(attack: object, *names: str) -> None:
    """Raise InputError if one of the settings ``names`` is below 1."""
    for name in names:
        if getattr(attack, name) < 1:
            raise InputError(f"{name} must be at least 1, got {getattr(attack, name)}")
