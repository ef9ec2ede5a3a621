"""Independent components of mixed records: where a cocktail party starts."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from exhume.arrays import FloatArray

Contrast = Literal["logcosh", "exp", "cube"]


def unmix(
    rows: FloatArray,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    contrast: Contrast = "logcosh",
    iterations: int = 500,
) -> FloatArray:
    """Return the rows of an unmixing matrix (k, k) for mixed records ``rows`` (k, d).

    FastICA on the mixed second difference ∂x∂y of images of ``shape`` (h, w) or (h, w, channels):
    pixels of different images are far from independent, their edges nearly are (Kariyappa et al.
    2023 separate whole pixels). Records that are no images are unmixed as they are.
    """
    if len(rows) == 1:
        return np.ones((1, 1))
    left, singular, right = np.linalg.svd(rows, full_matrices=False)
    keep = singular > 1e-12 * max(singular[0], 1e-300)
    if not keep.all():
        return np.asarray(np.linalg.qr(rng.normal(size=(len(rows), len(rows))))[0])
    found = _fast_ica(edges(right, shape), rng, contrast, iterations)
    return np.asarray(found @ (left / singular).T)


def edges(rows: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Return ∂x∂y of each row as an image, flattened; of other records the rows themselves."""
    if len(shape) < 2 or min(shape[:2]) < 3:
        return rows
    images = rows.reshape(len(rows), *shape)
    mixed = np.diff(np.diff(images, axis=1), axis=2)
    return mixed.reshape(len(rows), -1)


def _fast_ica(
    signals: FloatArray, rng: np.random.Generator, contrast: Contrast, iterations: int
) -> FloatArray:
    from sklearn.decomposition import FastICA

    ica = FastICA(
        n_components=len(signals),
        whiten="unit-variance",
        fun=contrast,
        max_iter=iterations,
        random_state=int(rng.integers(2**31)),
    )
    with warnings.catch_warnings():
        # It is a start: whether it was good enough shows in what follows.
        warnings.simplefilter("ignore")
        ica.fit(signals.T)
    return np.asarray(ica.components_)
