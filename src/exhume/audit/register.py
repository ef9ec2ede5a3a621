"""The adversary's list of possible records, one of which is the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.data import without_copies
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.seeds import stream


@dataclass(frozen=True, eq=False)
class Register:
    """Decoys for each target: ``size`` − 1 of them drawn from ``decoys``, all where it is None.

    A person's own list is used whole; where the target is not on it, it is added. ``count`` is how
    many candidates there are, the fewest of any target.
    """

    @staticmethod
    def drawn(decoys: Records, size: int, seed: int) -> Register:
        """Return a register that draws ``size`` − 1 decoys for each target."""
        return Register(decoys, size, seed, size)

    @staticmethod
    def listed(decoys: Records, truth: Records | None, seed: int) -> Register:
        """Return a person's own list, for targets that may be on it."""
        copies = 0 if truth is None else len(truth) - len(without_copies(truth, decoys))
        added = int(truth is not None and not copies)
        return Register(decoys, None, seed, len(decoys) + added)

    decoys: Records
    size: int | None
    seed: int
    count: int

    def around(self, truth: Records, index: int) -> Records:
        """Return the candidates for a target, which stands at a place that was drawn."""
        rng = stream(self.seed, "candidates", index)
        others = without_copies(self.decoys, truth)
        if self.size is not None:
            if len(others) < self.size - 1:
                raise InputError(
                    f"{self.size} candidates need {self.size - 1} records that are no targets, "
                    f"there are {len(others)}: set fewer knowledge.candidates, or a smaller fixed "
                    "set"
                )
            others = others.take(rng.choice(len(others), self.size - 1, replace=False))
        both = Records(others.x, others.y).with_record(Records(truth.x, truth.y))
        return both.take(rng.permutation(len(both)))


def decoys_of(pools: Sequence[Records | None], size: int) -> Records:
    """Return the first pool that has decoys enough, else all of them together."""
    there = [pool for pool in pools if pool is not None and len(pool)]
    for pool in there:
        if len(pool) >= size:
            return pool
    if not there:
        raise InputError(
            "candidates are drawn from records like the target, and none are left: take more data, "
            "or give a list of your own (knowledge.candidates = FILE)"
        )
    whole = there[0]
    for pool in there[1:]:
        whole = whole.with_record(pool)
    return Records(np.asarray(whole.x), whole.y)
