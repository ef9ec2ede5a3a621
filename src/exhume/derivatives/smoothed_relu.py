"""Continuation from a smooth problem to the true one: ReLUs sharpen, the image prior fades.

A ReLU's derivative is a step: a gradient jumps where a unit switches on, and the derivative of a
gradient does not show this. With softplus(βz)/β it does. If the search starts smooth and β grows,
it finds images that an optimiser does not find on the exact network alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exhume.protocol.errors import InputError


@dataclass(frozen=True)
class Continuation:
    """``first`` … ``last`` sharpness, geometrically, over the first ``smooth`` of the steps.

    Sharpness is β in units of a layer's own deviation. Then the network is exact. Meanwhile, the
    weight of total variation falls to the share ``variation``.
    """

    first: float = 1.5
    last: float = 60.0
    smooth: float = 0.85
    variation: float = 0.05

    def __post_init__(self) -> None:
        fine = 0 < self.first <= self.last and 0 <= self.smooth < 1 and 0 < self.variation <= 1
        if not fine:
            raise InputError(
                "a continuation needs 0 < first <= last, 0 <= smooth < 1 and 0 < variation <= 1, "
                f"got {self}"
            )

    def sharpness(self, done: float) -> float | None:
        """Return the sharpness after ``done`` of the steps, None for exact."""
        if done >= self.smooth:
            return None
        return float(self.first * (self.last / self.first) ** (done / self.smooth))

    def variation_factor(self, done: float) -> float:
        """Return the factor on the weight of total variation."""
        along = min(1.0, done / self.smooth) if self.smooth else 1.0
        return float(self.variation**along)


_TINY = 1e-12
"""A layer whose outputs differ by less is taken as it is."""


class Kinks:
    """The ReLUs of one module, sharpened together; exact while ``sharpness`` is None."""

    def __init__(self, module: nn.Module) -> None:
        self.sharpness: float | None = None
        self.count = self._replace(module)

    def _replace(self, module: nn.Module) -> int:
        found = 0
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, _Kink(self))
                found += 1
            else:
                found += self._replace(child)
        return found


class _Kink(nn.Module):
    def __init__(self, kinks: Kinks) -> None:
        super().__init__()
        self._kinks = kinks

    def forward(self, z: Tensor) -> Tensor:
        if self._kinks.sharpness is None:
            return torch.relu(z)
        # Tensors throughout, so that several networks can be passed through at once.
        deviation = z.detach().std(correction=0)
        sharpness = self._kinks.sharpness / deviation.clamp_min(_TINY)
        return nn.functional.softplus(z * sharpness) / sharpness
