"""Was this picture trained on? The candidates of a reconstruction as evidence for one image."""

from __future__ import annotations

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.metrics.error import NCC


def claims(
    images: Array, samples: Array, authenticity: FloatArray, *, centre: Array | None = None
) -> FloatArray:
    """Score images (n, *shape): the best of correlation × authenticity over all candidates, (n,).

    Held-out images, and images put to a network that was trained without them, must score low:
    ``judge.calibrate`` measures that.
    """
    offset = 0.0 if centre is None else np.asarray(centre, dtype=np.float64)
    table = NCC().pairwise(np.asarray(images) - offset, np.asarray(samples) - offset)
    return np.asarray((np.maximum(table, 0.0) * authenticity[None, :]).max(axis=1))
