"""The span of the training records, as the first layer's rows show it.

Where training with weight decay has come to rest, every row of W is Σᵢ δᵢ x̄ᵢ: the rows lie in the
span of the training records x̄ = (x − centre, 1). So few directions are left to search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.kkt.general import Released
from exhume.knowledge import Knowledge


@dataclass(frozen=True, eq=False)
class Span:
    """The leading right singular directions of W: ``basis`` (r, d + 1), orthonormal rows.

    What enters W is ``scale``·(x − ``centre``) and a constant 1. A record is a vector of
    coordinates q (r,) with q · ``last`` = 1: its (d + 1)st entry is 1. Without a bias ``last`` is
    zero, and every q is a record.
    """

    basis: Tensor
    singular: Tensor
    centre: Tensor
    scale: Tensor

    @property
    def rank(self) -> int:
        """How many directions there are."""
        return len(self.basis)

    @property
    def last(self) -> Tensor:
        """The constant's coordinates (r,)."""
        return self.basis[:, -1]

    @cached_property
    def scaled(self) -> bool:
        """Whether the constant fixes a record's scale."""
        return bool(self.last.any())

    @property
    def pixels(self) -> Tensor:
        """The map (r, d) from coordinates with q · last = 1 to records, the centre added."""
        return self.basis[:, :-1] / self.scale + torch.outer(self.last, self.centre)

    @cached_property
    def map(self) -> Affine:
        """The map from coordinates to records."""
        offset = torch.zeros_like(self.centre) if self.scaled else self.centre
        return Affine(self.pixels, offset)

    def coordinates(self, records: Tensor) -> Tensor:
        """Return the coordinates (..., r) of records (..., d), projected and made to fit."""
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
class Pixels:
    """Records as their own coordinates: nothing tells where to look for them."""

    centre: Tensor

    @property
    def rank(self) -> int:
        """How many directions there are."""
        return len(self.centre)

    @property
    def map(self) -> Affine:
        """The map from coordinates to records."""
        return Affine(None, torch.zeros_like(self.centre))

    def coordinates(self, records: Tensor) -> Tensor:
        """Return the records."""
        return records

    def fitted(self, q: Tensor) -> Tensor:
        """Return the coordinates as they are."""
        return q


Coordinates: TypeAlias = Span | Pixels


@dataclass(frozen=True, eq=False)
class Affine:
    """x = q · ``matrix`` + ``offset``; no matrix is the identity."""

    matrix: Tensor | None
    offset: Tensor

    def records(self, q: Tensor) -> Tensor:
        """Return records (..., d) at coordinates (..., r)."""
        return self.offset + (q if self.matrix is None else q @ self.matrix)

    def pulled(self, gradient: Tensor) -> Tensor:
        """Return the gradient in coordinates of a gradient in records."""
        return gradient if self.matrix is None else gradient @ self.matrix.T


def coordinates_of(network: Released, records: int, knowledge: Knowledge) -> Coordinates:
    """Return where to look for records: in the first layer's span, or everywhere."""
    if network.first is not None:
        return span_of(network, records)
    return everywhere(network, knowledge)


def everywhere(network: Released, knowledge: Knowledge) -> Pixels:
    """Return all records as places to look, whatever the first layer's rows show.

    They lie around the centre that the release names, the mean of like records, or the middle of
    the value range: whichever the adversary has.
    """
    centre = network.centre
    if not centre.any() and knowledge.shadow_targets is not None:
        centre = knowledge.pool().mean(axis=0).ravel()
    elif not centre.any() and knowledge.value_range is not None:
        centre = np.full(len(centre), float(np.mean(knowledge.value_range)))
    return Pixels(torch.tensor(centre, dtype=torch.float32))


def span_of(network: Released, records: int, *, dtype: torch.dtype = torch.float32) -> Span:
    """Return the first ``records`` directions of W, fewer where its numerical rank is lower.

    None at all where W is nothing but zeros, or has a bias but no constant to scale a record by.

    The change of W since a known initialisation may stand for W: its rows lie in the same span.
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
    return Span(
        right[:rank].to(dtype),
        singular[:rank].to(dtype),
        torch.tensor(network.centre, dtype=dtype),
        torch.tensor(network.scale, dtype=dtype),
    )
