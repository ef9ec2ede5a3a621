"""A set of shadow models: the releases for records that the adversary has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.runtime.cache_rows import blocks_of
from exhume.shadows.order import Order

_FAR = 5.0


@dataclass(frozen=True, eq=False)
class ShadowSet:
    """k shadow releases as differences to ``base`` (P,), and the records that made them.

    ``differences`` (k, P) is float32, in memory or mapped from a file of the cache. Where the
    training can be repeated exactly, ``base`` is its outcome without any target; else it is the
    mean of the shadow releases. ``diverged`` shadow models are omitted, and the last ``unkept`` for
    which there was no room. ``problem`` says why the models could not be cached. ``errors`` are
    those of a sample of models trained to first order, relative to exactly trained ones; None if
    all are exact.
    """

    order: Order
    differences: Array
    base: FloatArray
    targets: Records
    diverged: int = 0
    unkept: int = 0
    problem: str = ""
    errors: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.differences)

    def first(self, count: int) -> ShadowSet:
        """Return the first shadow models as a set in memory."""
        rows = np.array(self.differences[:count])
        return replace(self, differences=rows, targets=self.targets.take(slice(count)))

    def read(self, release: Release) -> FloatArray:
        """Return a release's own difference to the base (P,), float64."""
        layout = self.order.layout
        return np.asarray(layout.vector(release)[layout.columns()] - self.base)

    @cached_property
    def _longest(self) -> float:
        lengths = [
            np.einsum("kp,kp->k", rows, rows, dtype=np.float64).max()
            for _, rows in blocks_of(self.differences)
        ]
        return float(np.sqrt(max(lengths)))

    def far_off(self, difference: FloatArray) -> bool:
        """Return whether a difference is much longer than any shadow's: another training."""
        size = float(np.abs(difference).max(initial=0.0))
        if size <= _FAR * self._longest:
            size = float(np.linalg.norm(difference))
        return size > _FAR * self._longest

    def stats(self) -> dict[str, float]:
        """Return the numbers about these shadow models for the log."""
        exact = {} if self.errors is None else {"shadow_error": float(self.errors.mean())}
        return {"shadows": len(self), **exact}

    def note(self) -> str:
        """Return remarks on these shadow models for the reader of the results."""
        parts = []
        if self.errors is not None:
            parts.append(
                f"shadow models were trained to first order, {self.errors.mean():.2%} off "
                f"({self.errors.max():.2%} at most, measured on {len(self.errors)} exact ones)"
            )
        if self.order.left_out:
            parts.append(
                f"{self.order.left_out} shadow targets are in the fixed set and were omitted"
            )
        if self.diverged:
            parts.append(f"{self.diverged} shadow models diverged and were omitted")
        if self.unkept or self.order.unaffordable:
            omitted = self.unkept + self.order.unaffordable
            parts.append(
                f"{omitted} shadow targets were omitted: the cache has no room for their models "
                "(EXHUME_CACHE_LIMIT)"
            )
        if self.problem:
            parts.append(f"shadow models could not be cached: {self.problem}")
        return "; ".join(parts)
