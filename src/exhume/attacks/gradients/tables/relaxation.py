"""Rows of a table as free numbers: categories by a softmax, numbers within bounds by a sigmoid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.protocol.arrays import FloatArray
from exhume.protocol.schema import Schema

_MARGIN = 0.25
"""Numbers may lie this share of the known range beyond it: the pool need not hold the extremes."""
_EDGE = 1e-3
"""Starts are at least so far inside the bounds, as a share of their width."""


@dataclass(frozen=True, eq=False)
class Relaxation:
    """Maps free numbers (…, width) to rows of ``schema`` and back to what a start needs.

    ``low`` and ``high`` (width,) bound the numbers; ``centre`` and ``spread`` (width,) are where
    those of known records lie. A missing flag is a share between 0 and 1, as a level is.
    """

    schema: Schema
    low: FloatArray
    high: FloatArray
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, schema: Schema, pool: FloatArray) -> Relaxation:
        """Return the relaxation with bounds from the adversary's own records (n, width)."""
        low, high = pool.min(axis=0), pool.max(axis=0)
        wide = np.maximum(high - low, 1e-6 * np.maximum(1.0, np.abs(high)))
        return cls(
            schema,
            low - _MARGIN * wide,
            high + _MARGIN * wide,
            pool.mean(axis=0),
            np.maximum(pool.std(axis=0), 1e-3 * wide),
        )

    def start(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw free numbers (*shape, width): numbers as in the pool, levels equally likely."""
        free = rng.standard_normal((*shape, self.schema.width))
        for column, place in zip(self.schema.columns, self.schema.places, strict=True):
            if column.kind.numeric:
                i = place.start
                drawn = self.centre[i] + self.spread[i] * free[..., i]
                share = (drawn - self.low[i]) / (self.high[i] - self.low[i])
                share = np.clip(share, _EDGE, 1.0 - _EDGE)
                free[..., i] = np.log(share / (1.0 - share))
        return free

    def rows(self, free: Tensor, temperature: float) -> Tensor:
        """Return rows (…, width); the lower the temperature, the closer to one level each."""
        parts: list[Tensor] = []
        for column, place in zip(self.schema.columns, self.schema.places, strict=True):
            own = free[..., place]
            if not column.kind.numeric:
                parts.append(torch.softmax(own / temperature, dim=-1))
                continue
            low, high = float(self.low[place.start]), float(self.high[place.start])
            number = low + (high - low) * torch.sigmoid(own[..., :1])
            if not column.missing:
                parts.append(number)
                continue
            absent = torch.sigmoid(own[..., 1:] / temperature)
            parts += [number + absent * (column.fill - number), absent]
        return torch.cat(parts, dim=-1)
