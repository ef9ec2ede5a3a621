"""One training with many canaries: a right implementation passes, three wrong ones are caught."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from exhume.attacks.informed.transcript.one_run import EmpiricalEpsilon, canary_run
from exhume.models import MLP
from exhume.protocol.records import Records
from exhume.training import SGD, Batches, DPClipping, Recorded, Training
from exhume.training.batches import Index

if TYPE_CHECKING:
    import torch

    from exhume.derivatives.objective import Objective
    from exhume.training.loop import TrainingState

CANARIES, KNOWN, DELTA = 250, 50, 1e-5
COLUMNS = 5 + CANARIES
# Logistic regression whose start hardly moves: canaries' gradients are clipped at every step.
FULL = Training(
    MLP((COLUMNS,), 2, ()), (0, 1), SGD(1e-3), epochs=20, clipping=DPClipping(10.0, 10.0)
)
SAMPLED = replace(
    FULL, epochs=9, batches=Batches(6, None, poisson=True), clipping=DPClipping(1.0, 1.5)
)


def _records() -> tuple[Records, Records]:
    """Known records use five columns; each canary has a column of its own: all are orthogonal."""
    rng = np.random.default_rng(0)
    known, canaries = np.zeros((KNOWN, COLUMNS)), np.zeros((CANARIES, COLUMNS))
    known[:, :5] = rng.normal(size=(KNOWN, 5))
    canaries[:, 5:] = 100.0 * np.eye(CANARIES)
    labels = rng.integers(2, size=KNOWN + CANARIES)
    return Records(known, labels[:KNOWN]), Records(canaries, labels[KNOWN:])


def _audited(training: Training, seed: int) -> EmpiricalEpsilon:
    fixed_set, canaries = _records()
    return canary_run(Recorded(training), fixed_set, canaries, rng=seed).epsilon(DELTA)


def _claimed(training: Training) -> float:
    event = training.event(KNOWN + CANARIES)
    return float(PLDAccountant().compose(event).get_epsilon(DELTA))


@dataclass(frozen=True)
class _NoiseNotScaled(Training):
    """Adds noise of the multiplier alone, not times the clipping norm."""

    def _private_gradient(
        self,
        objective: Objective,
        place: TrainingState,
        batch: tuple[torch.Tensor, torch.Tensor],
        weight: torch.Tensor | None,
        records: int,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        assert self.clipping is not None
        less = DPClipping(self.clipping.norm, self.clipping.noise_multiplier / self.clipping.norm)
        right = replace(FULL, clipping=less)
        return right._private_gradient(objective, place, batch, weight, records, rng)


@dataclass(frozen=True)
class _ClippedAfterAveraging(Training):
    """Clips the mean gradient, not each record's."""

    def _private_gradient(
        self,
        objective: Objective,
        place: TrainingState,
        batch: tuple[torch.Tensor, torch.Tensor],
        weight: torch.Tensor | None,
        records: int,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        assert self.clipping is not None
        mean = objective.gradient(place.theta, *batch, weight=weight, count=records)
        clipped = mean * min(1.0, self.clipping.norm / float(mean.norm()))
        size = self.clipping.norm * self.clipping.noise_multiplier / records
        return clipped + size * objective.tensor(rng.standard_normal(objective.size))


@dataclass(frozen=True)
class _NotSampled(Training):
    """Goes through the records in their order, and claims Poisson sampling."""

    def steps(self, count: int, rng: np.random.Generator) -> Iterator[Index | None]:
        assert self.batches is not None
        for _ in range(self.epochs):
            for start in range(0, count, self.batches.size):
                yield np.arange(start, min(count, start + self.batches.size))


def _wrong(kind: type[Training], training: Training) -> Training:
    return kind(
        training.network,
        training.classes,
        training.optimiser,
        training.epochs,
        training.batches,
        clipping=training.clipping,
    )


@pytest.mark.parametrize("training", [FULL, SAMPLED], ids=["full", "poisson"])
def test_a_right_implementation_is_not_accused(training: Training) -> None:
    claimed = _claimed(training)
    for seed in range(1 if training is SAMPLED else 3):
        found = _audited(training, seed)
        assert found.lower <= claimed
    assert claimed > 0.5


def test_a_weakly_private_training_is_nearly_shown_to_be() -> None:
    # Little noise: nearly every guess is right, and the limit is what 250 canaries can prove.
    found = _audited(replace(FULL, clipping=DPClipping(10.0, 0.5)), 0)
    assert found.right == found.guesses
    assert found.lower > 3.0
    assert found.gaussian > found.lower


@pytest.mark.parametrize(
    ("kind", "training"),
    [(_NoiseNotScaled, FULL), (_ClippedAfterAveraging, FULL), (_NotSampled, SAMPLED)],
    ids=["noise not scaled", "clipped after averaging", "not sampled"],
)
def test_a_wrong_implementation_is_caught(kind: type[Training], training: Training) -> None:
    claimed = _claimed(training)
    found = _audited(_wrong(kind, training), 1)
    assert found.lower > claimed, (found, claimed)
