"""From an easy problem to the true one: kinks that sharpen, an image prior that lets go.

A ReLU's derivative is a step: a gradient jumps where a unit switches on, and the derivative of a
gradient does not see the jump coming. With softplus(βz)/β instead it does. Starting smooth and
letting β grow leads to images that the exact network, alone, does not let an optimiser find.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from exhume.errors import InputError


@dataclass(frozen=True)
class Continuation:
    """``first`` … ``last`` sharpness, geometrically, over the first ``smooth`` of the steps.

    Sharpness is β in units of a layer's own deviation. Thereafter the network is exact. Meanwhile
    the weight of total variation falls to ``variation`` of what it was.
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
        """Return the sharpness when ``done`` of the steps are, None for exact."""
        if done >= self.smooth:
            return None
        return float(self.first * (self.last / self.first) ** (done / self.smooth))

    def variation_factor(self, done: float) -> float:
        """Return what the weight of total variation is multiplied by."""
        along = min(1.0, done / self.smooth) if self.smooth else 1.0
        return float(self.variation**along)


class Kinks:
    """The ReLUs of one module, all to be sharpened at once; exact while ``sharpness`` is None."""

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
        deviation = float(z.detach().std(correction=0))
        if not (math.isfinite(deviation) and deviation > 1e-12):
            return torch.relu(z)
        return nn.functional.softplus(z, beta=self._kinks.sharpness / deviation)
