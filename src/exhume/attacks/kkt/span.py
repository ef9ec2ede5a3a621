"""The span of the training records, as the first layer's rows show it.

Where training with weight decay has come to rest, every row of W is Σᵢ δᵢ x̄ᵢ: the rows lie in the
span of the training records x̄ = (x − centre, 1). So few directions are left to search.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.kkt.network import HiddenLayer


@dataclass(frozen=True, eq=False)
class Span:
    """The leading right singular directions of W: ``basis`` (r, d + 1), orthonormal rows.

    A record is a vector of coordinates q (r,) with q · ``last`` = 1: its (d + 1)st entry is 1.
    """

    basis: Tensor
    singular: Tensor
    centre: Tensor

    @property
    def rank(self) -> int:
        """How many directions there are."""
        return len(self.basis)

    @property
    def last(self) -> Tensor:
        """The constant's coordinates (r,)."""
        return self.basis[:, -1]

    @property
    def pixels(self) -> Tensor:
        """The map (r, d) from coordinates with q · last = 1 to records, the centre added."""
        return self.basis[:, :-1] + torch.outer(self.last, self.centre)

    def coordinates(self, records: Tensor) -> Tensor:
        """Return the coordinates (..., r) of records (..., d), projected and made to fit."""
        constant = torch.ones_like(records[..., :1])
        inside = torch.cat([records - self.centre, constant], dim=-1) @ self.basis.T
        return self.fitted(inside)

    def fitted(self, q: Tensor) -> Tensor:
        """Return the nearest coordinates with q · last = 1."""
        gap = (q @ self.last - 1.0)[..., None]
        return q - gap * (self.last / self.last.square().sum())


def span_of(network: HiddenLayer, records: int, *, dtype: torch.dtype = torch.float32) -> Span:
    """Return the first ``records`` directions of W, fewer where its numerical rank is lower.

    None at all where W is nothing but zeros, or holds no constant to scale a record by.

    The change of W since a known initialisation may stand for W: its rows lie in the same span.
    """
    first = torch.tensor(network.first, dtype=torch.float64)
    _, singular, right = torch.linalg.svd(first, full_matrices=False)
    rank = min(records, int((singular > 1e-6 * singular[0]).sum()))
    if not 1e-20 < float(singular[0]) < 1e9 or float(right[:rank, -1].norm()) < 1e-9:
        rank = 0
    return Span(
        right[:rank].to(dtype),
        singular[:rank].to(dtype),
        torch.tensor(network.centre, dtype=dtype),
    )
