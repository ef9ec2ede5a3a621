"""Trajectory inversion: solve the known, deterministic training map for the one unknown record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.base import Attack
from exhume.attacks.trajectory.problem import Problem, problem_of, unfit, unfolded
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release


@dataclass(frozen=True)
class TrajectoryInversion(Attack):
    """Solves θ(x) = θ*: what training on the fixed set and x would have ended in is simulated.

    The adversary is Balle et al. 2022's informed one, who knows every record but one, the training
    algorithm and its initialisation; no shadow model is trained. Fully connected networks under
    gradient descent are simulated many at a time: a target whose residual stays high is tried again
    from other starts and with other labels, ``retries`` times of at most ``iterations`` steps. What
    is still open then, and every other training that can be repeated, is left to Gauss–Newton
    through the unrolled training, with at most ``jacobians`` linearisations (0: never).
    """

    iterations: int = 60
    retries: int = 6
    jacobians: int = 60
    name: ClassVar[str] = "trajectory-inversion"

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.retries < 0 or self.jacobians < 0:
            raise InputError(
                "iterations must be at least 1, retries and jacobians at least 0, "
                f"got {self.iterations}, {self.retries} and {self.jacobians}"
            )

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for weights or answers, the training behind them, its start, all other records."""
        reason = unfit(release, knowledge)
        if reason is None and not self.jacobians:
            reason = unfolded(release, knowledge)
        return reason

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        return self._reconstruct_each([release], [knowledge], [rng])[0]

    def _reconstruct_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        groups: dict[tuple[object, ...], list[int]] = {}
        for i, (release, known) in enumerate(zip(releases, knowledge, strict=True)):
            shared = (id(known.training), id(known.fixed_set), id(known.initial))
            kind = (type(release), known.target_weight, unfolded(release, known) is None)
            groups.setdefault((*shared, *kind), []).append(i)
        results: dict[int, Reconstruction] = {}
        for members in groups.values():
            found = self._group(
                [releases[i] for i in members],
                [knowledge[i] for i in members],
                [rngs[i] for i in members],
            )
            results.update(zip(members, found, strict=True))
        return [results[i] for i in range(len(releases))]

    def _group(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        """Answer releases of one training and fixed set."""
        problem = problem_of(knowledge[0])
        fallback = _Fallback(problem, self.jacobians)
        if unfolded(releases[0], knowledge[0]) is not None:
            return [fallback.invert(*one) for one in zip(releases, knowledge, rngs, strict=True)]
        from exhume.attacks.trajectory.inversion import invert

        found = invert(
            problem, releases, knowledge, iterations=self.iterations, retries=self.retries
        )
        for i, one in enumerate(found):
            if _unsolved(one) and self.jacobians:
                other = fallback.invert(releases[i], knowledge[i], rngs[i])
                found[i] = _better(one, other)
        return found


class _Fallback:
    """Gauss–Newton through the unrolled training, prepared once for all who need it."""

    def __init__(self, problem: Problem, jacobians: int) -> None:
        self.problem, self.jacobians = problem, jacobians
        self.prepared: object = None

    def invert(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.trajectory import general
        from exhume.seeds import stream

        effort = general.Effort(jacobians=self.jacobians)
        known = self.problem.known_to(knowledge)
        if not isinstance(self.prepared, general.Prepared):
            # A stream of its own: what is shared must not depend on who came first.
            shared = stream(0, "trajectory-inversion", "references")
            self.prepared = general.prepare(release, known, shared, effort=effort)
        return general.invert(release, known, rng, effort=effort, prepared=self.prepared)


def _unsolved(one: Reconstruction) -> bool:
    """Whether a search ended without an answer, rather than never began."""
    searched = bool(one.stats.get("simulations"))
    return searched and one.status in (Status.NOT_CONVERGED, Status.WRONG_ASSUMPTION)


def _better(one: Reconstruction, other: Reconstruction) -> Reconstruction:
    """Return the answer that explains more, with what both took."""
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
