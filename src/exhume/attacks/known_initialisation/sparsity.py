"""The exact attack on few records: zeros in what each of them added to the first layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.base import Attack, nothing
from exhume.attacks.kkt.general import read_move
from exhume.attacks.known_initialisation.attack import changed_count
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release


@dataclass(frozen=True)
class ChangeSparsity(Attack):
    """Splits W_T − W_0 = Δ X by the zeros of Δ: a neuron a record never reached owes it nothing.

    The rows of the change lie in the span of the records, and a record's column of Δ is zero at
    every ReLU that it never woke during training: directions with more zeros than chance gives are
    such columns. The work doubles with every record: ``largest`` is the most it takes on.
    """

    records: int | None = None
    largest: int = 12
    trials: int = 20_000
    name: ClassVar[str] = "change-sparsity"

    def __post_init__(self) -> None:
        if self.largest < 1 or self.trials < 1:
            raise InputError(
                f"largest and trials must be at least 1, got {self.largest} and {self.trials}"
            )

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for a network before and after training on few records."""
        move = read_move(release, knowledge)
        if isinstance(move, str):
            return move
        if move.final.first is None or move.initial.first is None or not move.final.rectified:
            return "the first layer must be fully connected, with ReLUs behind it"
        if not (move.final.first - move.initial.first)[:, -1].any():
            return "the first layer has no bias, and that is what fixes a record's scale"
        count = changed_count(self.records, move, knowledge)
        assert count is not None
        if count > self.largest:
            return f"{count} records: the search takes at most {self.largest}"
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.analytic.factor import factorise
        from exhume.attacks.analytic.sparsity import found_columns

        move = read_move(release, knowledge)
        assert not isinstance(move, str)
        count, change = changed_count(self.records, move, knowledge), move.change.first
        assert count is not None
        assert change is not None
        assert move.final.first is not None
        eps = np.finfo(np.float32).eps if _single(release) else np.finfo(np.float64).eps
        rounding = float(eps * np.abs(move.final.first).max())
        factors = factorise(change[:, :-1], change[:, -1], count, rounding=rounding)
        columns = found_columns(factors, rng, trials=self.trials)
        if columns.shape[1] < factors.rank or not factors.rank:
            message = f"{columns.shape[1]} of {factors.rank} directions found, and all are needed"
            return nothing(knowledge, Status.NOT_CONVERGED, message)
        inputs = factors.inputs(np.linalg.pinv(columns))
        fits = np.isfinite(inputs).all(axis=1)
        samples = inputs[fits] / move.final.scale + move.final.centre
        return Reconstruction(
            samples.reshape(-1, *knowledge.record_shape),
            Status.CONVERGED if len(samples) == count else Status.APPROXIMATE,
            stats={"rank": factors.rank, "gap": factors.gap},
        )


def _single(release: Release) -> bool:
    """Whether anything released is in single precision."""
    return any(array.dtype == np.float32 for _, array in release.arrays())
