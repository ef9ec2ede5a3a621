"""The length of a feature, where a homogeneous activation hides it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.features.head import Head, Response

_GRID = np.geomspace(1e-3, 1e3, 400)
_ROUNDS = 6


@dataclass(frozen=True, eq=False)
class Scaled:
    """Features (B, d), residuals (B, K), and the ``factors`` (B,) that gave them their lengths."""

    features: FloatArray
    residuals: FloatArray
    factors: FloatArray
    known: bool


def with_norms(
    head: Head, features: FloatArray, residuals: FloatArray, labels: Array | None
) -> Scaled:
    """Scale each feature so that the head's own residual there is the one that was found.

    σ(W·cx)·(r/c) is the same for every c > 0. But at cx the head answers softmax(scores), so
    r/c = p(cx) − e_y has to hold, an equation in c for each class: least squares, on grids around
    the best point of the last. For numbers, c·(c·f − y) = r is a quadratic equation, if all records
    have one response. Without A or the labels, features are scaled to norm 1. Heads that are not
    homogeneous tell the norm by themselves. ``residuals`` (B, K) are of the summed loss.
    """
    ones = np.ones(len(features))
    if not head.scale_free:
        return Scaled(features, residuals, ones, True)
    norms = np.maximum(np.linalg.norm(features, axis=1), 1e-300)
    if head.output is None or labels is None:
        return _by(features, residuals, 1.0 / norms, known=False)
    values, _ = head.hidden(features / norms[:, None])
    scores = (head.output @ values).T
    offsets = np.zeros(len(head.output)) if head.output_offsets is None else head.output_offsets
    found = residuals * norms[:, None]
    if head.response is Response.NUMBERS:
        lengths = _roots(scores[:, 0], offsets[0] - np.asarray(labels), found[:, 0])
        return _by(features, residuals, lengths / norms, known=bool((lengths != 1.0).all()))
    lengths = np.array(
        [
            _length(score, offsets, residual, int(label))
            for score, residual, label in zip(scores, found, labels, strict=True)
        ]
    )
    return _by(features, residuals, lengths / norms, known=True)


def _roots(score: FloatArray, shifts: FloatArray, residual: FloatArray) -> FloatArray:
    """Return c > 0 with c·(c·f + shift) = r for each record; 1 where there is not just one."""
    lengths = np.ones(len(score))
    if np.ptp(shifts) > 0:
        # Which response belongs to which feature is not known.
        return lengths
    for i in range(len(score)):
        roots = np.roots([score[i], shifts[0], -residual[i]])
        positive = roots[np.isreal(roots) & (roots.real > 0)].real
        if len(positive) == 1:
            lengths[i] = positive[0]
    return lengths


def _length(score: FloatArray, offsets: FloatArray, residual: FloatArray, label: int) -> float:
    """Return c with c·(p(c) − e_y) = ``residual`` (K,), the residual of the direction."""

    def misfit(lengths: FloatArray) -> FloatArray:
        found = lengths[:, None] * _softmax_residual(lengths[:, None] * score + offsets, label)
        return np.asarray(((found - residual) ** 2).sum(axis=1))

    grid = _GRID
    for _ in range(_ROUNDS):
        at = int(np.argmin(misfit(grid)))
        low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
        grid = np.linspace(low, high, 400)
    return float(grid[np.argmin(misfit(grid))])


def _softmax_residual(scores: FloatArray, label: int) -> FloatArray:
    from scipy.special import softmax

    shares: FloatArray = softmax(scores, axis=1)
    shares[:, label] -= 1.0
    return shares


def _by(features: FloatArray, residuals: FloatArray, factors: FloatArray, *, known: bool) -> Scaled:
    column = factors[:, None]
    return Scaled(features * column, residuals / np.maximum(column, 1e-300), factors, known)
