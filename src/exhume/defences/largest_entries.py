"""The common base of pruning and top-k: only the largest entries of a gradient are sent."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import ReleaseOf, SimulatedInner, Transform

if TYPE_CHECKING:
    import torch


class LargestEntries(Transform):
    """Keeps the largest entries and sets the others to 0.

    As the outermost defence it is not simulated: only sent entries are compared, and the limit on
    the other entries is a constraint (``withheld_limits``).
    """

    shows_zeros: ClassVar[bool] = True
    keeps_largest: ClassVar[bool] = True

    @abstractmethod
    def _kept(self, sizes: Sequence[Array]) -> list[Array]:
        """Return which entries are kept (True), from their absolute values, per parameter."""

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays with the smallest entries set to 0."""
        kept = self._kept([np.abs(a) for a in arrays.values()])
        pairs = zip(arrays.items(), kept, strict=True)
        return {name: np.where(keep, a, a.dtype.type(0)) for (name, a), keep in pairs}

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values that would be kept; their places count as fixed."""
        import torch

        kept = self._kept([v.detach().abs().cpu().numpy() for v in values])
        masks = [torch.tensor(keep, device=v.device) for v, keep in zip(values, kept, strict=True)]
        return [v * mask for v, mask in zip(values, masks, strict=True)]

    def simulated_release(self, inner: SimulatedInner) -> ReleaseOf:
        """Return the inner release with the entries that were sent; if unknown, the largest."""
        sent = inner.sent
        if sent is None:
            return super().simulated_release(inner)

        def release(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            values = inner.release(x, y)
            # If a parameter was not released, its kept entries are unknown.
            made = self.simulated(values) if any(mask is None for mask in sent) else values
            triples = zip(values, made, sent, strict=True)
            return tuple(m if mask is None else v * mask for v, m, mask in triples)

        return release

    @property
    def sending_chance(self) -> float:
        """0: the size of an entry decides whether it is sent."""
        return 0.0

    def withheld_limits(self, arrays: Mapping[str, FloatArray]) -> dict[str, float | None]:
        """Return the smallest entry that was sent; None if noise may have moved entries."""
        if any(self.deviations(arrays, 1).values()):
            return dict.fromkeys(arrays)
        smallest = {n: float(np.abs(a[a != 0.0]).min(initial=math.inf)) for n, a in arrays.items()}
        return dict(smallest) if self._each else dict.fromkeys(arrays, min(smallest.values()))

    @property
    def _each(self) -> bool:
        """Whether entries are compared within their own parameter only."""
        return False


def largest(sizes: Sequence[Array], count: int) -> list[Array]:
    """Mark the ``count`` largest of all; in a tie, the first."""
    flat = np.concatenate([a.ravel() for a in sizes])
    kept = np.zeros(flat.size, dtype=bool)
    kept[np.argsort(-flat, kind="stable")[:count]] = True
    bounds = np.cumsum([a.size for a in sizes])[:-1]
    return [k.reshape(a.shape) for k, a in zip(np.split(kept, bounds), sizes, strict=True)]
