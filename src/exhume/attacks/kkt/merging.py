"""Candidates of several restarts brought together: what they agree on comes first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.metrics.error import NCC

ALIKE = 0.9
"""Normalised correlation from which two candidates are taken for the same record."""


@dataclass(frozen=True, eq=False)
class Groups:
    """``members`` (k,): the best candidate of each group, best group first.

    ``agreement`` (k,) is the share of all restarts that have a candidate in the group.
    """

    members: Array
    agreement: FloatArray


def grouped(samples: FloatArray, quality: FloatArray, restart: Array) -> Groups:
    """Group like candidates (n, d), the best of each leading; ``quality`` (n,), higher is better.

    ``restart`` (n,) says which restart a candidate came from.
    """
    alike = _correlations(samples) > ALIKE
    restarts = len(np.unique(restart))
    free = np.ones(len(samples), dtype=bool)
    members: list[int] = []
    agreement: list[float] = []
    for i in np.argsort(-quality, kind="stable"):
        if free[i]:
            group = alike[i] & free
            members.append(int(i))
            agreement.append(len(np.unique(restart[group])) / restarts)
            free &= ~group
    return Groups(np.array(members, dtype=np.intp), np.array(agreement))


def _correlations(samples: FloatArray) -> FloatArray:
    """Return every pair's normalised correlation (n, n)."""
    return np.asarray(NCC().pairwise(samples, samples))
