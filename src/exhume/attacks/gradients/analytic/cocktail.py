"""The cocktail party attack: separates a batch from the first layer's gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.gradients.analytic.read_gradient import FirstLayerAttack, FirstLayerGradient
from exhume.protocol.attack import ThreatModel
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Reconstruction, Stat


@dataclass(frozen=True)
class Cocktail(FirstLayerAttack):
    """Separates the records of a batch from the gradient of a fully connected first layer.

    Independent component analysis gives an initial guess (Kariyappa et al. 2023). Knowledge of the
    network then makes it exact. With a ReLU, the attack uses the neurons at which a record is zero
    (Dimitrov et al. 2024 search for them; here the guess identifies them). With any other
    activation, it solves for records that reproduce the gradient. Proved records are removed and
    the rest is guessed again, at most ``rounds`` times.
    """

    rounds: int = 8
    name: ClassVar[str] = "cocktail"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds must be at least 1, got {self.rounds}")

    def _objection(self, observed: FirstLayerGradient) -> str | None:
        from exhume.attacks.gradients.analytic.unmixed_answer import too_many

        return too_many(observed)

    def _solve(self, observed: FirstLayerGradient, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.gradients.analytic import unmixed_answer
        from exhume.attacks.gradients.analytic.unmixing import separate

        factors = observed.factors()
        refuted = unmixed_answer.contradiction(observed, factors)
        if refuted is not None:
            return refuted
        against = observed.consistency(factors)
        found = separate(against, observed.knowledge.record_shape, rng, rounds=self.rounds)
        stats: dict[str, Stat] = {"rounds": found.rounds}
        return unmixed_answer.answer(observed, against, found.unmixing, found.proved, stats)
