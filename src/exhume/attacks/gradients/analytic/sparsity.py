"""The exact attack on small batches with a ReLU: a search for neurons that are zero together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.gradients.analytic.read_gradient import FirstLayerAttack, FirstLayerGradient
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Reconstruction, Status

if TYPE_CHECKING:
    from exhume.attacks.gradients.analytic.factorisation import Factors


@dataclass(frozen=True)
class Sparsity(FirstLayerAttack):
    """Finds each record's column of ∂W = Δ X by its zeros alone (Dimitrov et al. 2024, SPEAR).

    It needs neither images nor a guess, but its cost doubles with every record. ``largest`` is the
    most unknown records it accepts, ``trials`` the most draws of neurons.
    """

    largest: int = 12
    trials: int = 20_000
    name: ClassVar[str] = "sparsity"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT

    def __post_init__(self) -> None:
        if self.largest < 1 or self.trials < 1:
            raise InputError(
                f"largest and trials must be at least 1, got {self.largest} and {self.trials}"
            )

    def _objection(self, observed: FirstLayerGradient) -> str | None:
        if not observed.layer.rectified:
            return "no ReLU follows the first layer, so no errors are zero"
        if observed.count > self.largest:
            return f"{observed.count} unknown records: the search takes at most {self.largest}"
        from exhume.attacks.gradients.analytic.unmixed_answer import too_many

        return too_many(observed)

    def _solve(self, observed: FirstLayerGradient, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.gradients.analytic import unmixed_answer

        factors = observed.factors()
        refuted = unmixed_answer.contradiction(observed, factors)
        if refuted is not None:
            return refuted
        columns = found_columns(factors, rng, trials=self.trials)
        if columns.shape[1] < factors.rank:
            message = (
                f"found {columns.shape[1]} of {factors.rank} directions in {self.trials} draws; "
                "a record needs all of them"
            )
            status = Status.NO_INFORMATION if observed.defended else Status.NOT_CONVERGED
            return nothing(observed.knowledge, status, message)
        against = observed.consistency(factors)
        proved = np.ones(factors.rank, dtype=bool)
        return unmixed_answer.answer(observed, against, np.linalg.pinv(columns), proved, {})


def found_columns(factors: Factors, rng: np.random.Generator, *, trials: int) -> FloatArray:
    """Return the columns of Δ (rank, k ≤ rank) that zeros prove."""
    from exhume.attacks.gradients.analytic import relu_separation

    if factors.rank == 1:
        return np.ones((1, 1))
    neurons = relu_separation.neurons(factors)
    found: list[FloatArray] = []
    drawn = 0
    while len(found) < factors.rank and drawn < trials:
        batch = min(512, trials - drawn)
        drawn += batch
        space = np.eye(factors.rank)
        for guess in relu_separation.sparse_directions(neurons, space, rng, trials=batch):
            for column in relu_separation.columns(neurons, guess, rng):
                if not any(neurons.same(column, other) for other in found):
                    found.append(column)
    return np.array(found[: factors.rank]).reshape(-1, factors.rank).T
