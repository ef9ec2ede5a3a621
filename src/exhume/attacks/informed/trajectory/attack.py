"""Trajectory inversion: solve the known, deterministic training map for one unknown record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.informed.trajectory.problem import (
    RepeatableRelease,
    TrajectoryProblem,
    repeatable,
)
from exhume.protocol.attack import GroupedAttack, Refusal, ThreatModel
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release, Weights


@dataclass(frozen=True)
class TrajectoryInversion(GroupedAttack[RepeatableRelease]):
    """Solves θ(x) = θ*: it simulates the training on the fixed set and a candidate x.

    The adversary is the informed one of Balle et al. 2022: it knows all other records, the training
    algorithm and its initialisation. No shadow model is trained. Fully connected networks under
    gradient descent are simulated many at a time. If a target's residual stays high, the attack
    tries other starts and other labels, ``retries`` times, with at most ``iterations`` steps each.
    Other chains of layers under gradient descent on all records are solved by linear response: the
    predicted record is corrected by at most ``retrainings`` real trainings (0: never). Unsolved
    targets, and all other trainings that can be repeated, go to Gauss–Newton through the unrolled
    training, with at most ``jacobians`` linearisations (0: never). After linear response, trainings
    that take too long for that are left as they are.
    """

    iterations: int = 60
    retries: int = 6
    jacobians: int = 60
    retrainings: int = 6
    name: ClassVar[str] = "trajectory-inversion"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.NETWORK
    trainings: ClassVar[int] = 500

    def __post_init__(self) -> None:
        if self.iterations < 1 or min(self.retries, self.jacobians, self.retrainings) < 0:
            raise InputError(
                "iterations must be at least 1, retries, jacobians and retrainings at least 0, got "
                f"{self.iterations}, {self.retries}, {self.jacobians} and {self.retrainings}"
            )

    def parse(self, release: Release, knowledge: Knowledge) -> RepeatableRelease | Refusal:
        """Require weights or answers, the training behind them, its start, all other records."""
        found = repeatable(release, knowledge)
        if isinstance(found, Refusal) or self.jacobians or found.alone is None:
            return found
        return found if self._responds(found) else Refusal(found.alone)

    def _responds(self, problem: RepeatableRelease) -> bool:
        """Whether linear response is asked first."""
        return bool(self.retrainings and problem.alone and problem.unresponsive is None)

    def _group_key(self, problem: RepeatableRelease) -> tuple[object, ...]:
        known = problem.knowledge
        shared = (id(known.training), id(known.fixed_set), id(known.initial))
        kind = (type(problem.release), problem.alone is None, self._responds(problem))
        return (*shared, known.target_weight, *kind)

    def _solve_group(
        self, problems: Sequence[RepeatableRelease], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        """Return the answers for releases of one training and fixed set."""
        shared = problems[0].problem()
        fallback = _Fallback(shared, self.jacobians)
        if self._responds(problems[0]):
            return self._by_response(problems, rngs, fallback)
        releases, knowledge = [p.release for p in problems], [p.knowledge for p in problems]
        if problems[0].alone is not None:
            return [fallback.invert(*one) for one in zip(releases, knowledge, rngs, strict=True)]
        from exhume.attacks.informed.trajectory.many_targets.engine import invert_many

        found = invert_many(
            shared, releases, knowledge, iterations=self.iterations, retries=self.retries
        )
        for i, one in enumerate(found):
            if _unsolved(one) and self.jacobians:
                other = fallback.invert(releases[i], knowledge[i], rngs[i])
                found[i] = _better(one, other)
        return found

    def _by_response(
        self,
        problems: Sequence[RepeatableRelease],
        rngs: Sequence[np.random.Generator],
        fallback: _Fallback,
    ) -> list[Reconstruction]:
        """Return the answers of linear response, and of Gauss–Newton where that left a target."""
        from exhume.attacks.informed.trajectory.linear_response.engine import LinearResponse
        from exhume.attacks.informed.trajectory.linear_response.invert import TargetSearch
        from exhume.attacks.informed.trajectory.linear_response.retrain import RealTrainings

        shared = problems[0].problem()
        weight = problems[0].knowledge.target_weight
        retraining = RealTrainings(shared.training, shared.fixed_set, weight)
        engine = LinearResponse(retraining)
        further = self.jacobians > 0 and retraining.work <= _AFFORDABLE
        found = []
        for one, rng in zip(problems, rngs, strict=True):
            if not engine.usable and further:
                found.append(fallback.invert(one.release, one.knowledge, rng))
                continue
            assert isinstance(one.release, Weights)
            released = retraining.objective.flat(one.release.parameters)
            known = shared.known_to(one.knowledge)
            answer = TargetSearch(engine, released, known, rng).run(self.retrainings)
            if further and _unsolved(answer):
                answer = _better(answer, fallback.invert(one.release, one.knowledge, rng))
            found.append(answer)
        return found


_AFFORDABLE = 2e9
"""Gauss–Newton follows up to this many records × parameters × steps: a second per training."""


class _Fallback:
    """Gauss–Newton through the unrolled training, prepared once for all targets that need it."""

    def __init__(self, problem: TrajectoryProblem, jacobians: int) -> None:
        self.problem, self.jacobians = problem, jacobians
        self.prepared: object = None

    def invert(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.informed.trajectory.one_target import invert as one_target
        from exhume.protocol.seeds import stream

        effort = one_target.Effort(jacobians=self.jacobians)
        known = self.problem.known_to(knowledge)
        if not isinstance(self.prepared, one_target.Prepared):
            # A separate random stream: shared work must not depend on which target comes first.
            shared = stream(0, "trajectory-inversion", "references")
            self.prepared = one_target.prepare(release, known, shared, effort=effort)
        return one_target.invert_one(release, known, rng, effort=effort, prepared=self.prepared)


def _unsolved(one: Reconstruction) -> bool:
    """Whether a search ran and ended without an answer."""
    searched = bool(one.stats.get("simulations"))
    return searched and one.status in (Status.NOT_CONVERGED, Status.WRONG_ASSUMPTION)


def _better(one: Reconstruction, other: Reconstruction) -> Reconstruction:
    """Return the answer that explains more, with the effort of both."""
    residuals = [float(each.stats.get("relative_residual", np.inf)) for each in (one, other)]
    doubted = one.status is Status.WRONG_ASSUMPTION and not other.status.ran
    closer = residuals[1] < residuals[0] and not doubted
    chosen, left = (other, one) if closer else (one, other)
    stats = {**left.stats, **chosen.stats, "fallback": chosen is other}
    return Reconstruction(
        chosen.samples,
        chosen.status,
        chosen.labels,
        chosen.confidence,
        chosen.error_estimate,
        chosen.message,
        stats,
    )
