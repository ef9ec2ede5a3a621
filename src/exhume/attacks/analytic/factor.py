"""The first layer's gradient as a product: ∂W = Δ X, of what came back and what went in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Factors:
    """∂W ≈ left · right with orthonormal columns ``left`` (width, rank), ``right`` (rank, d).

    Records are X = Q · right for an unknown Q (rank, rank) with Q · ``scale`` = 1 (``scale`` is the
    bias gradient in the same coordinates), and what came back is Δ = left · Q⁻¹. ``noise`` is the
    deviation of an entry of ∂W that no record explains; ``gap`` the last singular value kept over
    the first one dropped.
    """

    left: FloatArray
    right: FloatArray
    scale: FloatArray
    singular: FloatArray
    noise: float
    gap: float
    excess: float

    @property
    def rank(self) -> int:
        """How many directions rise above the noise."""
        return len(self.singular)

    def inputs(self, unmixing: FloatArray) -> FloatArray:
        """Return the layer's inputs (k, d) that rows of Q (k, rank) stand for, rescaled to fit.

        A row without a scale of its own gives numbers that are not finite.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.asarray((unmixing / (unmixing @ self.scale)[:, None]) @ self.right)


def factorise(weight: FloatArray, bias: FloatArray, count: int, *, rounding: float) -> Factors:
    """Split a weight gradient (width, d) of ``count`` records by its singular values.

    The noise is read from the values beyond ``count``, and is at least ``rounding`` (the deviation
    that arithmetic brings into an entry). The rank is how many of the first ``count`` rise above
    what such noise reaches by chance, σ(√width + √d). ``excess`` is the first value beyond
    ``count`` over that reach: much more than 1 means that there were more records.
    """
    size = float(np.abs(weight).max(initial=0.0))
    if size == 0.0:
        return Factors(np.zeros((len(weight), 0)), np.zeros((0, weight.shape[1])), *_NOTHING)
    left, singular, _ = np.linalg.svd(weight / size, full_matrices=False)
    noise, reach = _noise(weight / size, singular, count, rounding / size)
    rank = int(np.sum(singular[:count] > 3.0 * reach))
    after = singular[rank] if rank < len(singular) else 0.0
    beyond = singular[count] if count < len(singular) else 0.0
    kept = left[:, :rank]
    return Factors(
        left=kept,
        right=kept.T @ (weight / size),
        scale=kept.T @ (bias / size),
        singular=singular[:rank],
        noise=noise,
        gap=float(singular[rank - 1] / max(after, 1e-300)) if rank else 1.0,
        excess=float(beyond / reach),
    )


_NOTHING = (np.zeros(0), np.zeros(0), 0.0, 1.0, 0.0)


def _noise(
    weight: FloatArray, singular: FloatArray, count: int, rounding: float
) -> tuple[float, float]:
    """Return the deviation of an unexplained entry, and the largest singular value it makes."""
    # Neurons that nothing reached and features that are always 0 hold no noise either.
    width = int(np.any(weight != 0, axis=1).sum())
    size = int(np.any(weight != 0, axis=0).sum())
    tail = singular[count : min(width, size)]
    noise = max(rounding, 1e-300)
    if len(tail) >= 4:
        # The median withstands a few records more than were announced.
        noise = max(noise, float(np.median(tail)) / np.sqrt(max(width, size)))
    return noise, noise * (np.sqrt(width) + np.sqrt(size))
