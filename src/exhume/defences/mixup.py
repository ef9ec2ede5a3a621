"""MixUp: the gradient on mixtures of two records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.defences.step_defence import StepDefence
from exhume.protocol.errors import InputError
from exhume.protocol.limits import Positive
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep, Step

if TYPE_CHECKING:
    import torch

    from exhume.derivatives.objective import Objective
    from exhume.training.gradient import Forward, SimulatedStep
    from exhume.training.unknown_draws import UnknownDraws


@dataclass(frozen=True, eq=False)
class MixUp(StepDefence):
    """Takes the gradient on λx + (1−λ)x′ with the labels in the same shares (Zhang et al. 2017).

    x′ is the next record of the batch; λ is drawn from Beta(``alpha``, ``alpha``) once per step and
    is secret.
    """

    inner: Step
    alpha: Positive = 1.0
    name: ClassVar[str] = "mixup"

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the gradient on the mixtures."""
        if data.weight is not None:
            raise InputError("MixUp needs records of equal weight in the loss")
        share = float(rng.beta(self.alpha, self.alpha))
        x = np.asarray(data.x)
        mixed = share * x + (1.0 - share) * np.roll(x, -1, axis=0)
        own, other = Records(mixed, data.labels), Records(mixed, np.roll(data.labels, -1))
        parts = [(share, own), (1.0 - share, other)]
        found = [s * self.inner.gradient(objective, theta, part, rng) for s, part in parts]
        return found[0] + found[1]

    def simulated_step(self, objective: Objective, draws: UnknownDraws) -> SimulatedStep:
        """Return the gradient on the mixtures; λ is one of ``draws``."""
        from torch.nn.functional import one_hot

        from exhume.derivatives.objective import Loss

        draws.expected = True
        inner = self.inner.simulated_step(objective, draws)
        # The loss is then linear in the labels: one pass instead of two.
        linear = isinstance(self.inner, GradientStep) and objective.loss is Loss.CROSS_ENTROPY

        def step(
            forward: Forward, leaves: Sequence[torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            share = draws.share(lambda rng: np.asarray(rng.beta(self.alpha, self.alpha)))
            mixed = share * x + (1.0 - share) * x.roll(-1, dims=0)
            if linear:
                if not y.is_floating_point():
                    y = one_hot(y, objective.network.outputs).to(x.dtype)
                return inner(forward, leaves, mixed, share * y + (1.0 - share) * y.roll(-1, 0))
            own = inner(forward, leaves, mixed, y)
            other = inner(forward, leaves, mixed, y.roll(-1, dims=0))
            return tuple(share * a + (1.0 - share) * b for a, b in zip(own, other, strict=True))

        return step

    @property
    def hides_draws(self) -> bool:
        """Return True: the shares are secret."""
        return True

    def describe(self) -> str:
        """Return a short description."""
        return f"MixUp with alpha {self.alpha:g}"
