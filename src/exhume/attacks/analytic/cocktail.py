"""The cocktail party attack: a batch unmixed from the first layer's gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.analytic.observed import observe
from exhume.attacks.base import Attack
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction
from exhume.release import Release


@dataclass(frozen=True)
class Cocktail(Attack):
    """Unmixes the records of a batch from a fully connected first layer's gradient.

    Independent component analysis gives a first guess (Kariyappa et al. 2023). What the adversary
    knows of the network then makes it exact: behind a ReLU by the neurons that a record leaves at
    zero (Dimitrov et al. 2024 search for them; here the guess names them), behind any other
    activation by solving for the records that return what was seen. What is proved is taken out,
    and the rest guessed again, at most ``rounds`` times.
    """

    rounds: int = 8
    name: ClassVar[str] = "cocktail"

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise InputError(f"rounds must be at least 1, got {self.rounds}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Say why the first layer's gradient can't be read."""
        observed = observe(release, knowledge)
        if isinstance(observed, str):
            return observed
        from exhume.attacks.analytic.answer import too_many

        return too_many(observed)

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.analytic import answer
        from exhume.attacks.analytic.consistency import Consistency
        from exhume.attacks.analytic.layer import Backward
        from exhume.attacks.analytic.separation import separate

        observed = observe(release, knowledge)
        assert not isinstance(observed, str)
        factors = observed.factors()
        refuted = answer.contradiction(observed, factors, knowledge)
        if refuted is not None:
            return refuted
        backward = Backward(observed.step, observed.layer, observed.parameters)
        against = Consistency(factors, observed.layer, backward, knowledge)
        found = separate(against, knowledge.record_shape, rng, rounds=self.rounds)
        stats = {"rounds": found.rounds}
        return answer.answer(observed, against, found.unmixing, found.proved, {**stats})
