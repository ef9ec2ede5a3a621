"""Sending part of a gradient: the largest entries, or entries at random."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from exhume.arrays import Array
from exhume.defences.base import Transform
from exhume.errors import InputError
from exhume.mechanism import Mechanism

if TYPE_CHECKING:
    import torch


class _Largest(Transform):
    """Keeps entries by their size."""

    @abstractmethod
    def _kept(self, sizes: Sequence[Array]) -> list[Array]:
        """Return which entries are kept (True), from their absolute values, a parameter each."""

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays with the smallest entries set to 0."""
        kept = self._kept([np.abs(a) for a in arrays.values()])
        pairs = zip(arrays.items(), kept, strict=True)
        return {name: np.where(keep, a, a.dtype.type(0)) for (name, a), keep in pairs}

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values that would be kept; which those are counts as fixed."""
        import torch

        kept = self._kept([v.detach().abs().cpu().numpy() for v in values])
        masks = [torch.tensor(keep, device=v.device) for v, keep in zip(values, kept, strict=True)]
        return [v * mask for v, mask in zip(values, masks, strict=True)]


@dataclass(frozen=True, eq=False)
class Pruning(_Largest):
    """Sets the ``share`` of smallest entries to 0, of each parameter or of all together."""

    inner: Mechanism
    share: float
    scope: Literal["layer", "global"] = "layer"
    name: ClassVar[str] = "pruning"

    def __post_init__(self) -> None:
        _require_share("share", self.share)
        if self.scope not in ("layer", "global"):
            raise InputError(f"scope must be 'layer' or 'global', got {self.scope!r}")

    def _kept(self, sizes: Sequence[Array]) -> list[Array]:
        if self.scope == "layer":
            return [_largest([a], _left(a.size, self.share))[0] for a in sizes]
        return _largest(sizes, _left(sum(a.size for a in sizes), self.share))

    def describe(self) -> str:
        """Say what is done."""
        where = "each parameter's" if self.scope == "layer" else "all"
        return f"{self.share:.4g} of {where} entries pruned"


@dataclass(frozen=True, eq=False)
class TopK(_Largest):
    """Sends the ``count`` largest entries only."""

    inner: Mechanism
    count: int
    name: ClassVar[str] = "top-k"

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InputError(f"count must be at least 1, got {self.count}")

    def _kept(self, sizes: Sequence[Array]) -> list[Array]:
        return _largest(sizes, min(self.count, sum(a.size for a in sizes)))

    def describe(self) -> str:
        """Say what is done."""
        return f"only the {self.count:,} largest entries"


@dataclass(frozen=True, eq=False)
class GradientDropout(Transform):
    """Sets entries to 0 at random, each with probability ``rate``; the others are scaled up."""

    inner: Mechanism
    rate: float
    name: ClassVar[str] = "gradient-dropout"

    def __post_init__(self) -> None:
        _require_share("rate", self.rate)

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays with holes in them, right on average."""
        factor = 1.0 / (1.0 - self.rate)
        return {
            name: np.where(rng.random(a.shape) >= self.rate, a * a.dtype.type(factor), 0).astype(
                a.dtype
            )
            for name, a in arrays.items()
        }

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values as they are where they are sent."""
        return [v / (1.0 - self.rate) for v in values]

    def sensitivity(self, records: int) -> float | None:
        """Return the inner one, scaled up: which entries are sent does not depend on the data."""
        inner = self.inner.sensitivity(records)
        return None if inner is None else inner / (1.0 - self.rate)

    def describe(self) -> str:
        """Say what is done."""
        return f"{self.rate:.4g} of the entries dropped at random"


def _require_share(what: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"{what} must be between 0 and 1, got {value}")


def _left(size: int, share: float) -> int:
    """Return how many of ``size`` entries stay; of anything at least one."""
    return max(1, size - round(size * share))


def _largest(sizes: Sequence[Array], count: int) -> list[Array]:
    """Mark the ``count`` largest of all; of equal ones the first."""
    flat = np.concatenate([a.ravel() for a in sizes])
    kept = np.zeros(flat.size, dtype=bool)
    kept[np.argsort(-flat, kind="stable")[:count]] = True
    bounds = np.cumsum([a.size for a in sizes])[:-1]
    return [k.reshape(a.shape) for k, a in zip(np.split(kept, bounds), sizes, strict=True)]
