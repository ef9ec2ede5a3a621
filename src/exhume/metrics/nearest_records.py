"""The records nearest to each candidate, by the truth: for studies, not for attacks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.metrics.error import NCC, RMSE
from exhume.metrics.perceptual import SSIM
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.metric import IntArray, Range


@dataclass(frozen=True, eq=False)
class NearestRecord:
    """For each candidate the nearest of some records, by correlation.

    ``index`` (k,) points at it; ``distance`` is the Euclidean one, ``ncc`` and ``ssim`` as usual
    (``ssim`` is NaN if records are not pictures).
    """

    index: IntArray
    distance: FloatArray
    ncc: FloatArray
    ssim: FloatArray


@dataclass(frozen=True, eq=False)
class Comparison:
    """Each candidate compared with the training records, as many held-out ones, and its start.

    ``rank`` (k,) is the rank, from 1, of the nearest training record among all training and
    held-out records by correlation: 1 means that no held-out record is nearer.
    """

    training: NearestRecord
    held_out: NearestRecord
    starting: NearestRecord | None
    rank: IntArray

    def real(self, level: float = 0.7) -> Array:
        """Which candidates (k,) are a training record: nearest to it of all, above ``level``."""
        return np.asarray((self.rank == 1) & (self.training.ncc > level))

    def recovered(self, level: float = 0.7) -> int:
        """How many training records have a candidate that is nearest to them of all records."""
        return len(np.unique(self.training.index[self.real(level)]))

    def false_positives(self, level: float = 0.7) -> int:
        """The same count for held-out records: the effect of chance and similarity alone."""
        wrong = (self.rank > 1) & (self.held_out.ncc > level)
        return len(np.unique(self.held_out.index[wrong]))


def compare(
    samples: Array,
    training: Array,
    held_out: Array,
    *,
    starting: Array | None = None,
    centre: Array | None = None,
    value_range: Range | None = None,
) -> Comparison:
    """Compare candidates (k, *shape) with training and held-out records, equally many of both.

    Every record competes for every candidate on equal terms, so without a leak both kinds win
    equally often. Correlations are computed after ``centre`` (the training mean), if given, is
    subtracted.
    """
    if len(training) != len(held_out):
        raise InputError(
            f"as many held-out as training records are needed: {len(held_out)}, {len(training)}"
        )
    offset = 0.0 if centre is None else np.asarray(centre, dtype=np.float64)
    table = NCC().pairwise(
        np.asarray(samples) - offset, np.concatenate([training, held_out]) - offset
    )
    own, other = table[:, : len(training)], table[:, len(training) :]
    rank = 1 + (table > own.max(axis=1, keepdims=True)).sum(axis=1)
    begun = None
    if starting is not None:
        beside = NCC().pairwise(np.asarray(samples) - offset, np.asarray(starting) - offset)
        begun = _nearest(samples, starting, beside, value_range)
    return Comparison(
        _nearest(samples, training, own, value_range),
        _nearest(samples, held_out, other, value_range),
        begun,
        np.asarray(rank),
    )


def _nearest(
    samples: Array, records: Array, table: FloatArray, value_range: Range | None
) -> NearestRecord:
    index = table.argmax(axis=1)
    chosen = np.asarray(records, dtype=np.float64)[index]
    samples = np.asarray(samples, dtype=np.float64)
    size = np.sqrt(samples[0].size) if len(samples) else 1.0
    likeness = np.full(len(samples), np.nan)
    if value_range is not None and samples.ndim >= 3 and min(samples.shape[1:3]) >= 11:
        likeness = SSIM(value_range=value_range)(chosen, np.clip(samples, *value_range))
    return NearestRecord(index, size * RMSE()(chosen, samples), table.max(axis=1), likeness)
