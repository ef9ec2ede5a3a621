"""Sending a gradient without its smallest entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from exhume.defences.largest_entries import LargestEntries, largest
from exhume.protocol.arrays import Array
from exhume.protocol.limits import Share
from exhume.protocol.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class Pruning(LargestEntries):
    """Sets the ``share`` of smallest entries to 0, of each parameter or of all together."""

    inner: Mechanism
    share: Share
    scope: Literal["layer", "global"] = "layer"
    name: ClassVar[str] = "pruning"

    def _kept(self, sizes: Sequence[Array]) -> list[Array]:
        if self.scope == "layer":
            return [largest([a], _left(a.size, self.share))[0] for a in sizes]
        return largest(sizes, _left(sum(a.size for a in sizes), self.share))

    @property
    def _each(self) -> bool:
        return self.scope == "layer"

    def describe(self) -> str:
        """Return a short description."""
        where = "each parameter's" if self.scope == "layer" else "all"
        return f"{self.share:.4g} of {where} entries pruned"


def _left(size: int, share: float) -> int:
    """Return how many of ``size`` entries are kept: at least one."""
    return max(1, size - round(size * share))
