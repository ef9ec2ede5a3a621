"""Trajectory inversion: solve the known, deterministic training map for the one unknown record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.base import Attack
from exhume.defences.base import Blurring, Defence, undefended
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction
from exhume.release import Release, Weights
from exhume.training.network import Training

if TYPE_CHECKING:
    from exhume.attacks.trajectory.inversion import Problem


@dataclass(frozen=True)
class TrajectoryInversion(Attack):
    """Solves θ(x) = θ*: what training on the fixed set and x would have ended in is simulated.

    The adversary is Balle et al. 2022's informed one, who knows every record but one, the training
    algorithm and its initialisation; no shadow model is trained. A target whose residual stays high
    is tried again from other starts and with other labels, ``retries`` times. ``iterations`` is a
    limit for each try, a few simulations each.
    """

    iterations: int = 60
    retries: int = 3
    name: ClassVar[str] = "trajectory-inversion"

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.retries < 0:
            raise InputError(
                "iterations must be at least 1 and retries at least 0, "
                f"got {self.iterations} and {self.retries}"
            )

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for weights, the training that they are from, its start, and all other records."""
        if not isinstance(release, Weights):
            return "takes the weights of a network, nothing else"
        training = None if knowledge.training is None else undefended(knowledge.training)
        if not isinstance(training, Training):
            return "needs the training of a network (knowledge.training)"
        return (
            _unknown(training, knowledge)
            or _unreadable(knowledge)
            or training.objective().mismatch(release.parameters)
            or _unsupported(training, knowledge)
        )

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
        from exhume.attacks.trajectory.inversion import invert

        groups: dict[tuple[int, int, int], list[int]] = {}
        for i, known in enumerate(knowledge):
            key = (id(known.training), id(known.fixed_set), id(known.initial))
            groups.setdefault(key, []).append(i)
        results: dict[int, Reconstruction] = {}
        for members in groups.values():
            problem = self._problem(knowledge[members[0]])
            found = invert(
                problem,
                [releases[i] for i in members],
                [knowledge[i] for i in members],
                iterations=self.iterations,
                retries=self.retries,
            )
            results.update(zip(members, found, strict=True))
        return [results[i] for i in range(len(releases))]

    def _problem(self, knowledge: Knowledge) -> Problem:
        from exhume.attacks.trajectory.certificate import Given
        from exhume.attacks.trajectory.inversion import Problem

        assert knowledge.training is not None
        assert knowledge.fixed_set is not None
        training, fixed_set, variance = knowledge.training, knowledge.fixed_set, 0.0
        while isinstance(training, Defence):
            assert isinstance(training, Blurring)
            variance += training.deviation(len(fixed_set) + 1) ** 2
            fixed_set = training.prepared(fixed_set)
            training = training.inner
        assert isinstance(training, Training)
        if knowledge.initial is not None:
            theta = training.objective("float64").flat(knowledge.initial).numpy()
            training = replace(training, initial=Given(theta=theta))
        return Problem(training, fixed_set, float(np.sqrt(variance)))


def _unknown(training: Training, knowledge: Knowledge) -> str | None:
    """Name the first thing that is missing to repeat the training."""
    if knowledge.fixed_set is None or len(knowledge.fixed_set) == 0:
        return "needs every other training record (knowledge.fixed_set)"
    if knowledge.fixed_set.y is None:
        return "needs the labels of the fixed set"
    if not training.initial.known and knowledge.initial is None:
        return "needs the initial parameters: a known seed, or knowledge.initial"
    if training.batches is not None and not training.batches.known:
        return "needs the order of the mini-batches"
    if knowledge.initial is not None:
        return training.objective().mismatch(knowledge.initial)
    return None


def _unreadable(knowledge: Knowledge) -> str | None:
    """Say which defence on the way hides the training, or return None."""
    mechanism = knowledge.training
    while isinstance(mechanism, Defence):
        if not isinstance(mechanism, Blurring):
            return f"does not see through the defence {mechanism.name!r}"
        mechanism = mechanism.inner
    return None


def _unsupported(training: Training, knowledge: Knowledge) -> str | None:
    from exhume.training.folded import unfoldable

    if knowledge.record_shape != training.network.record_shape:
        return (
            f"a record has shape {knowledge.record_shape}, "
            f"the network takes {training.network.record_shape}"
        )
    if knowledge.target_weight != 1.0:
        return f"takes a target of weight 1, got {knowledge.target_weight}"
    if training.classes is None and knowledge.labels is None:
        return "needs the response of the target of a regression (knowledge.labels)"
    if knowledge.labels is not None and len(knowledge.labels) != 1:
        return f"rebuilds one record, got {len(knowledge.labels)} labels"
    return unfoldable(training)
