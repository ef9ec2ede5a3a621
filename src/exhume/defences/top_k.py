"""Sending only the largest entries of a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from exhume.defences.largest_entries import LargestEntries, largest
from exhume.protocol.arrays import Array
from exhume.protocol.limits import at_least
from exhume.protocol.mechanism import Mechanism


@dataclass(frozen=True, eq=False)
class TopK(LargestEntries):
    """Sends only the ``count`` largest entries."""

    inner: Mechanism
    count: Annotated[int, at_least(1)]
    name: ClassVar[str] = "top-k"

    def _kept(self, sizes: Sequence[Array]) -> list[Array]:
        return largest(sizes, min(self.count, sum(a.size for a in sizes)))

    def describe(self) -> str:
        """Return a short description."""
        return f"only the {self.count:,} largest entries"
