"""Another fixed set to learn from first: φ goes on from there (Balle et al. 2022, appendix B)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from exhume.records import Records
from exhume.shadows import Order
from exhume.shadows.order import disjoint


def earlier_order(order: Order, shadow_targets: Records, first: int) -> Order | str:
    """Return an order with another fixed set, both from shadow targets that ``order`` leaves over.

    The last of them are the other fixed set, of the same size; ``first`` more are its shadow
    targets. Returns the reason where there are too few.
    """
    pool, _ = disjoint(shadow_targets, order.fixed_set)
    used, known = len(order.targets), len(order.fixed_set)
    if len(pool) < used + first + known:
        return (
            f"to learn from another fixed set first, needs {used + first + known} shadow targets "
            f"({used} + first = {first} + {known} for the fixed set), got {len(pool)}"
        )
    other, targets = _parts(pool, used, first, known)
    return replace(order, fixed_set=other, targets=targets, left_out=0)


@lru_cache(maxsize=4)
def _parts(pool: Records, used: int, first: int, known: int) -> tuple[Records, Records]:
    """The same objects for the same call: orders of equal records are compared often."""
    return pool.take(slice(len(pool) - known, None)), pool.take(slice(used, used + first))
