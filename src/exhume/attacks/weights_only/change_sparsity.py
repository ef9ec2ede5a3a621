"""An exact attack on few records: zeros in each record's contribution to the first layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.weights_only.known_initialisation import changed_count
from exhume.attacks.weights_only.read_weights import Released, read_move, without_entrance
from exhume.attacks.weights_only.record_counts import uncounted
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release


@dataclass(frozen=True, eq=False)
class FirstLayerChange:
    """What training added to the first layer (h, d + 1), and of how many records.

    ``rounding`` is the error that arithmetic leaves in an entry.
    """

    change: FloatArray
    final: Released
    count: int
    rounding: float
    knowledge: Knowledge


@dataclass(frozen=True)
class ChangeSparsity(ParsedAttack[FirstLayerChange]):
    """Factorises W_T − W_0 = Δ X by the zeros of Δ, where a record never activated a neuron.

    The rows of the change lie in the span of the records. A record's column of Δ is zero at every
    ReLU that the record never activated during training. Directions with more zeros than expected
    by chance are such columns. The cost doubles with every record; ``largest`` is the largest
    number of records the attack accepts.
    """

    records: int | None = None
    largest: int = 12
    trials: int = 20_000
    name: ClassVar[str] = "change-sparsity"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.WEIGHTS_ALONE

    def __post_init__(self) -> None:
        if self.largest < 1 or self.trials < 1:
            raise InputError(
                f"largest and trials must be at least 1, got {self.largest} and {self.trials}"
            )

    def parse(self, release: Release, knowledge: Knowledge) -> FirstLayerChange | Refusal:
        """Require a network before and after training on few records."""
        move = read_move(release, knowledge)
        if isinstance(move, Refusal):
            return move
        final, change = move.final, move.change.first
        if final.first is None or change is None or not final.rectified:
            return without_entrance(
                knowledge, "the first layer must be fully connected and followed by ReLUs"
            )
        if not change[:, -1].any():
            return Refusal(
                "the first layer has no bias, so the scale of a record is not determined"
            )
        count = changed_count(self.records, move, knowledge)
        if count is None:
            return uncounted(self.name)
        if count > self.largest:
            return Refusal(f"{count} records: the search takes at most {self.largest}")
        eps = np.finfo(np.float32).eps if _single(release) else np.finfo(np.float64).eps
        rounding = float(eps * np.abs(final.first).max())
        return FirstLayerChange(change, final, count, rounding, knowledge)

    def _solve(self, problem: FirstLayerChange, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.gradients.analytic.factorisation import factorise
        from exhume.attacks.gradients.analytic.sparsity import found_columns

        change, count, knowledge = problem.change, problem.count, problem.knowledge
        factors = factorise(change[:, :-1], change[:, -1], count, rounding=problem.rounding)
        columns = found_columns(factors, rng, trials=self.trials)
        if columns.shape[1] < factors.rank or not factors.rank:
            message = f"found {columns.shape[1]} of {factors.rank} directions; all are needed"
            return nothing(knowledge, Status.NOT_CONVERGED, message)
        inputs = factors.inputs(np.linalg.pinv(columns))
        fits = np.isfinite(inputs).all(axis=1)
        samples = inputs[fits] / problem.final.scale + problem.final.centre
        return Reconstruction(
            samples.reshape(-1, *knowledge.record_shape),
            Status.CONVERGED if len(samples) == count else Status.APPROXIMATE,
            stats={"rank": factors.rank, "gap": factors.gap},
        )


def _single(release: Release) -> bool:
    """Whether any released array is in single precision."""
    return any(array.dtype == np.float32 for _, array in release.arrays())
