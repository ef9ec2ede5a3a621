"""Train again with every candidate, and see which one leads to the release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.defences.base import Blurring
from exhume.knowledge import Knowledge
from exhume.mechanism import Mechanism
from exhume.membership.base import Judge, MembershipAttack, uninformed
from exhume.membership.candidates import Candidates
from exhume.membership.vectors import Layout
from exhume.reconstruction import Status
from exhume.records import Records
from exhume.release import Release


@dataclass(frozen=True)
class Retraining(MembershipAttack):
    """Repeats the training with each candidate: the nearest result, or the likeliest, decides.

    For trainings that everybody can repeat exactly this is the trivial strategy of Balle et al.
    2022, §II-D: the release matches one of the results. Behind a defence that adds noise of a
    known size to every number, the score is the log-likelihood ratio of Gaussian noise: for
    Gaussian noise, no test of two candidates is stronger (Neyman and Pearson 1933).
    """

    name: ClassVar[str] = "retraining"

    def accepts(self, knowledge: Knowledge, candidates: Candidates) -> str | None:
        """Ask for a training that comes out the same each time, up to noise of a known size."""
        reason = uninformed(knowledge)
        if reason is not None:
            return reason
        assert knowledge.training is not None
        assert knowledge.fixed_set is not None
        core = _Core(knowledge.training, knowledge.fixed_set, candidates)
        if not core.repeatable():
            return "the training comes out differently each time: shadow models can attack it"
        return None

    def _prepare(
        self, knowledge: Knowledge, candidates: Candidates, rng: np.random.Generator
    ) -> Judge:
        assert knowledge.training is not None
        assert knowledge.fixed_set is not None
        core = _Core(knowledge.training, knowledge.fixed_set, candidates)
        layout, expected = core.results()
        return Likelihood(layout, expected[0], expected[1:], core.deviation)


@dataclass(frozen=True, eq=False)
class Likelihood(Judge):
    """Compares a release with what each candidate leads to.

    ``challenge`` (P,) and ``alternatives`` (m, P) are expected releases, ``deviation`` the noise on
    each number. Without noise the score is (d₀² − d₁²)/‖difference‖², 1 where the release is the
    challenge's own and −1 where it is the nearest alternative's.
    """

    layout: Layout
    challenge: FloatArray
    alternatives: FloatArray
    deviation: float

    def _weigh(self, release: Release, rng: np.random.Generator) -> tuple[float, Status]:
        vector = self.layout.vector(release)
        if vector is None:
            return 0.0, Status.REFUSED
        # Squared distances are taken from the challenge's result, so that what all results share
        # does not drown what tells them apart.
        moved, gaps = vector - self.challenge, self.alternatives - self.challenge
        squares = np.einsum("mp,mp->m", gaps, gaps)
        excess = squares - 2.0 * gaps @ moved
        if not squares.max() > 0.0:
            return 0.0, Status.NO_INFORMATION
        if self.deviation > 0.0:
            return float(_log_ratio(excess / (2.0 * self.deviation**2))), Status.CONVERGED
        nearest = int(np.argmin(excess))
        return float(excess[nearest] / max(squares[nearest], 1e-300)), Status.CONVERGED


def _log_ratio(evidence: FloatArray) -> float:
    """−log of the mean of e^−evidence: the challenge against alternatives of equal chance."""
    from scipy.special import logsumexp

    return float(np.log(len(evidence)) - logsumexp(-evidence))


class _Core:
    """A mechanism without the noise around it, and that noise's size."""

    def __init__(self, mechanism: Mechanism, fixed_set: Records, candidates: Candidates) -> None:
        variance, records = 0.0, len(fixed_set) + 1
        challenge, others = candidates.challenge, candidates.alternatives
        while isinstance(mechanism, Blurring):
            variance += mechanism.deviation(records) ** 2
            fixed_set, challenge = mechanism.prepared(fixed_set), mechanism.prepared(challenge)
            others = None if others is None else mechanism.prepared(others)
            mechanism = mechanism.inner
        self.mechanism, self.fixed_set = mechanism, fixed_set
        self.candidates = Candidates(challenge, others)
        self.deviation = float(np.sqrt(variance))

    def repeatable(self) -> bool:
        """Whether two runs with different streams end in the same release."""
        from exhume.training.network import Training

        if isinstance(self.mechanism, Training):
            return self.mechanism.deterministic
        data = self.fixed_set.with_record(self.candidates.challenge)
        once, again = (
            self.mechanism.publish(data, rng=np.random.default_rng(seed)) for seed in (0, 1)
        )
        layout = Layout.of(once)
        return bool(np.array_equal(layout.vectors([once])[0], layout.vectors([again])[0]))

    def results(self) -> tuple[Layout, FloatArray]:
        """The layout, and what the challenge and each alternative lead to, (1 + m, P)."""
        from exhume.training.network import Training

        if isinstance(self.mechanism, Training) and self.candidates.alternatives is not None:
            return self._simulated(self.mechanism)
        records = self.candidates.records
        rngs = [np.random.default_rng(0) for _ in range(len(records))]
        releases = list(self.mechanism.publish_each(self.fixed_set, records, rngs=rngs))
        if self.candidates.alternatives is None:
            releases.append(self.mechanism.publish(self.fixed_set, rng=np.random.default_rng(0)))
        layout = Layout.of(releases[0])
        return layout, layout.vectors(releases)

    def _simulated(self, training: Mechanism) -> tuple[Layout, FloatArray]:
        """A network's weights, by the fastest simulator there is."""
        from exhume.training.network import Training
        from exhume.training.simulator import simulator_for

        assert isinstance(training, Training)
        records = self.candidates.records
        simulator = simulator_for(training, self.fixed_set)
        moved = simulator.differences(records.x, training.responses(records.labels))
        shapes = training.network.parameter_shapes()
        return Layout(tuple(shapes.items())), simulator.base + moved
