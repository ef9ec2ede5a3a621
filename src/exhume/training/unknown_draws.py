"""Secret random draws of a defence: unknowns that are fitted together with the images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from exhume.protocol.arrays import FloatArray

UnknownDraw: TypeAlias = Callable[[np.random.Generator], FloatArray]
"""Draws the start of an unknown share, as numbers between 0 and 1."""

_EDGE = 1e-3
"""Shares start at least this far from 0 and 1: further out the slope vanishes."""


class UnknownDraws:
    """Shares between 0 and 1 that a simulation requests one after the other, as log odds.

    The first simulation after ``restart`` draws them in the order of its requests; later ones get
    the same tensors again. ``expected`` says whether it will request any.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.expected = False
        self.values: list[Tensor] = []
        self._dtype, self._device = dtype, device
        self._rng = np.random.default_rng(0)
        self._next = 0

    def restart(self, rng: np.random.Generator) -> None:
        """Delete the draws; the next simulation makes new ones."""
        self.values, self._next = [], 0
        self._rng = rng

    def rewind(self) -> None:
        """Start a simulation."""
        self._next = 0

    def share(self, draw: UnknownDraw) -> Tensor:
        """Return the next shares, with their graph; draw them if there are none yet."""
        if self._next == len(self.values):
            start = np.clip(draw(self._rng), _EDGE, 1.0 - _EDGE)
            odds = np.log(start / (1.0 - start))
            value = torch.tensor(odds, dtype=self._dtype, device=self._device)
            self.values.append(value.requires_grad_(True))
        found = self.values[self._next]
        self._next += 1
        return found.sigmoid()

    def kept(self) -> tuple[Tensor, ...]:
        """Return a copy of the current log odds."""
        return tuple(value.detach().clone() for value in self.values)

    def put(self, values: Sequence[Tensor]) -> None:
        """Restore log odds that were ``kept``, in this simulation's own precision."""
        kept = [v.detach().to(self._device, self._dtype, copy=True) for v in values]
        self.values = [v.requires_grad_(True) for v in kept]
        self._next = 0
