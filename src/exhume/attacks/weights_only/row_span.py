"""The span of the training records, as the rows of the first layer show it.

When training with weight decay has converged, every row of W is Σᵢ δᵢ x̄ᵢ: the rows lie in the
span of the training records x̄ = (x − centre, 1). So only few directions remain to be searched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.weights_only.read_weights import Released
from exhume.protocol.knowledge import Knowledge


@dataclass(frozen=True, eq=False)
class RowSpan:
    """The leading right singular directions of W: ``basis`` (r, d + 1), orthonormal rows.

    The input of W is ``scale``·(x − ``centre``) and a constant 1. A record is a vector of
    coordinates q (r,) with q · ``last`` = 1: its (d + 1)st entry is 1. Without a bias ``last`` is
    zero, and every q is a record.
    """

    basis: Tensor
    singular: Tensor
    centre: Tensor
    scale: Tensor

    @property
    def rank(self) -> int:
        """The number of directions."""
        return len(self.basis)

    @property
    def last(self) -> Tensor:
        """The constant's coordinates (r,)."""
        return self.basis[:, -1]

    @cached_property
    def scaled(self) -> bool:
        """Whether the constant determines the scale of a record."""
        return bool(self.last.any())

    @property
    def pixels(self) -> Tensor:
        """The map (r, d) from coordinates with q · last = 1 to records, including the centre."""
        return self.basis[:, :-1] / self.scale + torch.outer(self.last, self.centre)

    @cached_property
    def map(self) -> Affine:
        """The map from coordinates to records."""
        offset = torch.zeros_like(self.centre) if self.scaled else self.centre
        return Affine(self.pixels, offset)

    def coordinates(self, records: Tensor) -> Tensor:
        """Return the coordinates (..., r) of records (..., d), projected so that q · last = 1."""
        constant = torch.ones_like(records[..., :1])
        entering = (records - self.centre) * self.scale
        return self.fitted(torch.cat([entering, constant], dim=-1) @ self.basis.T)

    def fitted(self, q: Tensor) -> Tensor:
        """Return the nearest coordinates with q · last = 1."""
        if not self.scaled:
            return q
        gap = (q @ self.last - 1.0)[..., None]
        return q - gap * (self.last / self.last.square().sum())


@dataclass(frozen=True, eq=False)
class AllPixels:
    """Records as their own coordinates: no span restricts the search."""

    centre: Tensor

    @property
    def rank(self) -> int:
        """The number of directions."""
        return len(self.centre)

    @property
    def map(self) -> Affine:
        """The map from coordinates to records."""
        return Affine(None, torch.zeros_like(self.centre))

    def coordinates(self, records: Tensor) -> Tensor:
        """Return the records."""
        return records

    def fitted(self, q: Tensor) -> Tensor:
        """Return the coordinates unchanged."""
        return q


Coordinates: TypeAlias = RowSpan | AllPixels


@dataclass(frozen=True, eq=False)
class Affine:
    """x = q · ``matrix`` + ``offset``; None as the matrix is the identity."""

    matrix: Tensor | None
    offset: Tensor

    def records(self, q: Tensor) -> Tensor:
        """Return records (..., d) at coordinates (..., r)."""
        return self.offset + (q if self.matrix is None else q @ self.matrix)

    def pulled(self, gradient: Tensor) -> Tensor:
        """Return the gradient with respect to coordinates, given that with respect to records."""
        return gradient if self.matrix is None else gradient @ self.matrix.T


def coordinates_of(network: Released, records: int, knowledge: Knowledge) -> Coordinates:
    """Return the search space: the span of the first layer, or all records."""
    if network.first is not None:
        return span_of(network, records)
    return everywhere(network, knowledge)


def everywhere(network: Released, knowledge: Knowledge) -> AllPixels:
    """Return all records as the search space, ignoring the first layer's rows.

    The records lie around the released centre, the mean of similar records, or the middle of the
    value range, whichever the adversary knows.
    """
    centre = network.centre
    if not centre.any() and knowledge.shadow_targets is not None:
        centre = knowledge.pool().mean(axis=0).ravel()
    elif not centre.any() and knowledge.value_range is not None:
        centre = np.full(len(centre), float(np.mean(knowledge.value_range)))
    return AllPixels(torch.tensor(centre, dtype=torch.float32))


def span_of(network: Released, records: int, *, dtype: torch.dtype = torch.float32) -> RowSpan:
    """Return the first ``records`` directions of W, or fewer if its numerical rank is lower.

    There are none if W is zero, or if it has a bias but no constant that determines the scale.

    W may be replaced by its change since a known initialisation: the rows lie in the same span.
    """
    assert network.first is not None
    first = torch.tensor(network.first, dtype=torch.float64)
    _, singular, right = torch.linalg.svd(first, full_matrices=False)
    rank = min(records, int((singular > 1e-6 * singular[0]).sum()))
    constant = float(right[:rank, -1].norm())
    unscaled = bool(first[:, -1].any()) and constant < 1e-9
    if not 1e-20 < float(singular[0]) < 1e9 or unscaled:
        rank = 0
    if not bool(first[:, -1].any()):
        right[:, -1] = 0.0
    return RowSpan(
        right[:rank].to(dtype),
        singular[:rank].to(dtype),
        torch.tensor(network.centre, dtype=dtype),
        torch.tensor(network.scale, dtype=dtype),
    )
