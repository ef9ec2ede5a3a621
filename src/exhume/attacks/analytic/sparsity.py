"""The exact attack on small batches behind a ReLU: a search for neurons that are zero together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.analytic.observed import observe
from exhume.attacks.base import Attack, nothing
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release

if TYPE_CHECKING:
    from exhume.attacks.analytic.factor import Factors


@dataclass(frozen=True)
class Sparsity(Attack):
    """Finds each record's column of ∂W = Δ X by its zeros alone (Dimitrov et al. 2024, SPEAR).

    It needs no likeness to images and no guess, and its work doubles with every record:
    ``largest`` is the most unknown records it takes on, ``trials`` the most draws of neurons.
    """

    largest: int = 12
    trials: int = 20_000
    name: ClassVar[str] = "sparsity"

    def __post_init__(self) -> None:
        if self.largest < 1 or self.trials < 1:
            raise InputError(
                f"largest and trials must be at least 1, got {self.largest} and {self.trials}"
            )

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Say why there are no zeros to look for."""
        observed = observe(release, knowledge)
        if isinstance(observed, str):
            return observed
        if not observed.layer.rectified:
            return "no ReLU follows the first layer, so that nothing is zero"
        if observed.count > self.largest:
            return f"{observed.count} unknown records: the search takes at most {self.largest}"
        from exhume.attacks.analytic.answer import too_many

        return too_many(observed)

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.analytic import answer
        from exhume.attacks.analytic.consistency import Consistency
        from exhume.attacks.analytic.layer import Backward

        observed = observe(release, knowledge)
        assert not isinstance(observed, str)
        factors = observed.factors()
        refuted = answer.contradiction(observed, factors, knowledge)
        if refuted is not None:
            return refuted
        columns = found_columns(factors, rng, trials=self.trials)
        if columns.shape[1] < factors.rank:
            message = (
                f"{columns.shape[1]} of {factors.rank} directions found in {self.trials} draws, "
                "and a record needs all of them"
            )
            status = Status.NO_INFORMATION if observed.defended else Status.NOT_CONVERGED
            return nothing(knowledge, status, message)
        backward = Backward(observed.step, observed.layer, observed.parameters)
        against = Consistency(factors, observed.layer, backward, knowledge)
        proved = np.ones(factors.rank, dtype=bool)
        return answer.answer(observed, against, np.linalg.pinv(columns), proved, {})


def found_columns(factors: Factors, rng: np.random.Generator, *, trials: int) -> FloatArray:
    """Return the columns of Δ (rank, k ≤ rank) that zeros prove."""
    from exhume.attacks.analytic import kinks

    if factors.rank == 1:
        return np.ones((1, 1))
    neurons = kinks.neurons(factors)
    found: list[FloatArray] = []
    drawn = 0
    while len(found) < factors.rank and drawn < trials:
        batch = min(512, trials - drawn)
        drawn += batch
        space = np.eye(factors.rank)
        for guess in kinks.sparse_directions(neurons, space, rng, trials=batch):
            for column in kinks.columns(neurons, guess, rng):
                if not any(neurons.same(column, other) for other in found):
                    found.append(column)
    return np.array(found[: factors.rank]).reshape(-1, factors.rank).T
