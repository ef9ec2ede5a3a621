"""Where the fits start: the first order's view of each class, or the tensor method's directions."""

from __future__ import annotations

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.features.first_order import FirstOrder
from exhume.attacks.features.head import Head

LONGEST = 30.0
"""No start is longer than this, in units in which the hidden weights have mean square 1."""
_PRESENT = 0.1
_ROUNDS = 4


def class_starts(head: Head, order: FirstOrder, labels: Array, unit: float) -> FloatArray:
    """Return a start (B, d) for each label: the mean feature of its class, to first order.

    With rᵢ = (p̄ − e_y)/B the slopes are C ≈ E[σ′]/B · (z p̄ᵀ − M), z the sum of all features and
    column k of M the sum of class k. Absent classes have M = 0 and so give z; present ones count
    little, as if all features were alike. The mean prediction p̄ and E[σ′] are the head's own at the
    last starts. ``unit`` turns the slopes into those of the summed loss.
    """
    outputs = order.slopes.shape[1]
    counts = np.bincount(labels, minlength=outputs).astype(np.float64)
    weights = np.where(counts == 0, 1.0, _PRESENT)
    slopes = order.slopes * unit
    starts = _capped(-2.0 * slopes[:, labels].T / counts[labels, None])
    for _ in range(_ROUNDS):
        values, steps = head.hidden(starts)
        shares = head.residuals(values, labels, outputs).mean(axis=0) + counts / len(labels)
        lifted = slopes / max(float(steps.mean()), 0.05)
        excess = shares - counts / len(labels)
        total = lifted @ (weights * excess) / max(float(weights @ excess**2), 1e-12)
        sums = total[:, None] * shares - lifted
        starts = _capped(sums[:, labels].T / counts[labels, None])
    return starts


def scattered(starts: FloatArray, spread: float, rng: np.random.Generator) -> FloatArray:
    """Return ``starts`` (B, d) each moved by ``spread`` of its own length, at random."""
    lengths = np.maximum(np.linalg.norm(starts, axis=1, keepdims=True), 0.1)
    noise = rng.standard_normal(starts.shape) / np.sqrt(starts.shape[1])
    moved: FloatArray = starts + spread * lengths * noise
    return moved


def _capped(starts: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(starts, axis=1, keepdims=True)
    capped: FloatArray = starts * np.minimum(1.0, LONGEST / np.maximum(lengths, 1e-300))
    return capped
