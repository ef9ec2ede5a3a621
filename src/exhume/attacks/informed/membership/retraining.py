"""Retrains with every candidate and compares the results with the release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.informed.membership.base import (
    MembershipAttack,
    MembershipJudge,
    MembershipQuestion,
    uninformed,
)
from exhume.protocol.arrays import FloatArray
from exhume.protocol.defence import Blurring
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.shadows.release_vector import ReleaseVector


@dataclass(frozen=True)
class Retraining(MembershipAttack):
    """Repeats the training with each candidate; the nearest or most likely result decides.

    If everybody can repeat the training exactly, this is the trivial strategy of Balle et al. 2022,
    §II-D: the release equals one of the results. With a defence that adds noise of a known size to
    every number, the score is the log-likelihood ratio of Gaussian noise. For Gaussian noise, no
    test of two candidates is stronger (Neyman and Pearson 1933).
    """

    name: ClassVar[str] = "retraining"

    def accepts(self, knowledge: Knowledge, candidates: MembershipQuestion) -> str | None:
        """Require a training with a repeatable result, up to noise of a known size."""
        reason = uninformed(knowledge)
        if reason is not None:
            return reason
        assert knowledge.training is not None
        assert knowledge.fixed_set is not None
        core = _Core(knowledge.training, knowledge.fixed_set, candidates)
        if not core.repeatable():
            return "the training gives a different result each time: shadow models can attack it"
        return None

    def _prepare(
        self, knowledge: Knowledge, candidates: MembershipQuestion, rng: np.random.Generator
    ) -> MembershipJudge:
        assert knowledge.training is not None
        assert knowledge.fixed_set is not None
        core = _Core(knowledge.training, knowledge.fixed_set, candidates)
        layout, expected = core.results()
        return Likelihood(layout, expected[0], expected[1:], core.deviation)


@dataclass(frozen=True, eq=False)
class Likelihood(MembershipJudge):
    """Compares a release with the result of each candidate.

    ``challenge`` (P,) and ``alternatives`` (m, P) are expected releases, ``deviation`` the noise on
    each number. Without noise the score is (d₀² − d₁²)/‖difference‖²: 1 if the release is the
    challenge's own and −1 if it is the nearest alternative's.
    """

    layout: ReleaseVector
    challenge: FloatArray
    alternatives: FloatArray
    deviation: float

    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        if self.layout.mismatch(release) is not None:
            return 0.0, Status.REFUSED
        # Squared distances are relative to the challenge's result. Otherwise the common part of all
        # results would hide their small differences in rounding.
        moved = self.layout.vector(release) - self.challenge
        gaps = self.alternatives - self.challenge
        squares = np.einsum("mp,mp->m", gaps, gaps)
        excess = squares - 2.0 * gaps @ moved
        if not squares.max() > 0.0:
            return 0.0, Status.NO_INFORMATION
        if self.deviation > 0.0:
            return float(_log_ratio(excess / (2.0 * self.deviation**2))), Status.CONVERGED
        nearest = int(np.argmin(excess))
        return float(excess[nearest] / max(squares[nearest], 1e-300)), Status.CONVERGED


def _log_ratio(evidence: FloatArray) -> float:
    """Return −log of the mean of e^−evidence: the challenge against equally likely alternatives."""
    from scipy.special import logsumexp

    return float(np.log(len(evidence)) - logsumexp(-evidence))


class _Core:
    """A mechanism without the noise around it, and the size of that noise."""

    def __init__(
        self, mechanism: Mechanism, fixed_set: Records, candidates: MembershipQuestion
    ) -> None:
        variance, records = 0.0, len(fixed_set) + 1
        challenge, others = candidates.challenge, candidates.alternatives
        for layer in layers(mechanism):
            if not isinstance(layer, Blurring):
                break
            variance += layer.deviation(records) ** 2
            fixed_set, challenge = layer.prepared(fixed_set), layer.prepared(challenge)
            others = None if others is None else layer.prepared(others)
        self.mechanism, self.fixed_set = layer, fixed_set
        self.candidates = MembershipQuestion(challenge, others)
        self.deviation = float(np.sqrt(variance))

    def repeatable(self) -> bool:
        """Whether two runs with different random streams give the same release."""
        from exhume.training.network import Training

        if isinstance(self.mechanism, Training):
            return self.mechanism.deterministic
        data = self.fixed_set.with_record(self.candidates.challenge)
        once, again = (
            self.mechanism.publish(data, rng=np.random.default_rng(seed)) for seed in (0, 1)
        )
        layout = ReleaseVector.of(once)
        return bool(np.array_equal(layout.vectors([once])[0], layout.vectors([again])[0]))

    def results(self) -> tuple[ReleaseVector, FloatArray]:
        """The layout, and the results of the challenge and each alternative, (1 + m, P)."""
        from exhume.training.network import Training

        if isinstance(self.mechanism, Training) and self.candidates.alternatives is not None:
            return self._simulated(self.mechanism)
        records = self.candidates.records
        rngs = [np.random.default_rng(0) for _ in range(len(records))]
        releases = list(self.mechanism.publish_each(self.fixed_set, records, rngs=rngs))
        if self.candidates.alternatives is None:
            releases.append(self.mechanism.publish(self.fixed_set, rng=np.random.default_rng(0)))
        layout = ReleaseVector.of(releases[0])
        return layout, layout.vectors(releases)

    def _simulated(self, training: Mechanism) -> tuple[ReleaseVector, FloatArray]:
        """Return a network's weights, by the fastest available simulator."""
        from exhume.training.network import Training
        from exhume.training.simulator import simulator_for

        assert isinstance(training, Training)
        records = self.candidates.records
        simulator = simulator_for(training, self.fixed_set)
        moved = simulator.differences(records.x, training.responses(records.labels))
        shapes = training.network.parameter_shapes()
        return ReleaseVector(tuple(shapes.items())), simulator.base + moved
