"""From mixed records to single ones: guess, prove what can be proved, guess the rest again.

The guess is by independent components: the start of the cocktail party attack.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from exhume.attacks.gradients.analytic import relu_separation
from exhume.attacks.gradients.analytic.factorisation import Consistency, Factors, Returned
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.images import channels_last, sides_of

Contrast = Literal["logcosh", "exp", "cube"]
_CONTRASTS: tuple[Contrast, ...] = ("logcosh", "logcosh", "exp", "cube")
_CONSISTENT = 0.02
"""A column of Δ counts as found within this distance of the errors of its own record."""


@dataclass(frozen=True, eq=False)
class Separation:
    """An unmixing Q (rank, rank), a mask of its proved rows, and the number of rounds."""

    unmixing: FloatArray
    proved: Array
    rounds: int


def separate(
    against: Consistency, shape: tuple[int, ...], rng: np.random.Generator, *, rounds: int
) -> Separation:
    """Separate records of ``shape`` from ``against.factors`` in at most ``rounds`` rounds.

    Proved columns of Δ confine the other records to a smaller space (a row of Q is orthogonal to
    every other record's column), which makes the next guess easier.
    """
    if against.factors.rank == 1:
        return Separation(np.ones((1, 1)), np.ones(1, dtype=bool), 0)
    if against.layer.rectified:
        return _by_zeros(against, shape, rng, rounds)
    return _by_consistency(against, shape, rng, rounds)


def polished(
    against: Consistency, unmixing: FloatArray, rng: np.random.Generator, *, enough: float
) -> tuple[FloatArray, FloatArray]:
    """Refine an approximate unmixing until its records reproduce the gradient.

    It tries full steps, then short steps, then (with a ReLU) the zeros that the guess predicts.
    Each is tried only if ``enough`` was not reached, and kept only if it is an improvement. Returns
    the unmixing and its residual (rank,).
    """
    best, returned = against.solved(unmixing)
    for way in (_by_short_steps, _by_named_zeros):
        if returned.residual.max() < enough:
            break
        other, its = way(against, best, rng)
        if its.residual.mean() < returned.residual.mean():
            best, returned = other, its
    return best, returned.residual


def _by_short_steps(
    against: Consistency, guess: FloatArray, _: np.random.Generator
) -> tuple[FloatArray, Returned]:
    return against.crept(guess)


def _by_named_zeros(
    against: Consistency, guess: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, Returned]:
    """Restart with the guess's nearest columns replaced by those that ReLU zeros prove."""
    if not against.layer.rectified:
        return guess, against.returned(guess)
    rank = against.factors.rank
    proved = _with_proved(against, np.zeros((rank, 0)), guess, rng)
    own = np.linalg.pinv(guess)
    own = own / np.linalg.norm(own, axis=0)
    near = np.abs(proved.T @ own).max(axis=0, initial=0.0)
    kept = np.argsort(near, kind="stable")[: rank - proved.shape[1]]
    return against.solved(np.linalg.pinv(np.concatenate([proved, own[:, kept]], axis=1)))


def _by_zeros(
    against: Consistency, shape: tuple[int, ...], rng: np.random.Generator, rounds: int
) -> Separation:
    """Prove columns by their zeros at a ReLU."""
    factors = against.factors
    columns: FloatArray = np.zeros((factors.rank, 0))
    taken = 0
    for taken in range(1, rounds + 1):
        guess = _guess(factors, columns, shape, rng, _CONTRASTS[(taken - 1) % len(_CONTRASTS)])
        before, columns = columns.shape[1], _with_proved(against, columns, guess, rng)
        if columns.shape[1] >= factors.rank or (taken > 3 and columns.shape[1] == before == 0):
            break
    count = columns.shape[1]
    if count < factors.rank:
        guess = _guess(factors, columns, shape, rng, "logcosh")
        columns = np.concatenate([columns, np.linalg.pinv(guess)], axis=1)
    return Separation(np.linalg.pinv(columns), np.arange(factors.rank) < count, taken)


def _by_consistency(
    against: Consistency, shape: tuple[int, ...], rng: np.random.Generator, rounds: int
) -> Separation:
    """Iterate guesses to their fixed point; guess again where that fails."""
    factors = against.factors
    columns: FloatArray = np.zeros((factors.rank, 0))
    best: FloatArray = np.eye(factors.rank)
    residual: FloatArray = np.ones(factors.rank)
    taken = 0
    for taken in range(1, rounds + 1):
        guess = _guess(factors, columns, shape, rng, _CONTRASTS[(taken - 1) % len(_CONTRASTS)])
        start = np.linalg.pinv(np.concatenate([columns, np.linalg.pinv(guess)], axis=1))
        unmixing, returned = against.solved(start)
        better = returned.residual.mean() < 0.9 * residual.mean()
        if better:
            best, residual = unmixing, returned.residual
        if not better or (residual < _CONSISTENT).all():
            break
        found = np.linalg.pinv(best)
        columns = (found / np.linalg.norm(found, axis=0))[:, residual < 5.0 * _CONSISTENT]
        if columns.shape[1] == factors.rank:
            break
    return Separation(best, residual < _CONSISTENT, taken)


def _guess(
    factors: Factors,
    columns: FloatArray,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    contrast: Contrast,
) -> FloatArray:
    """Return rows of Q for the records whose columns are not yet proved."""
    known = columns.shape[1]
    rest = np.linalg.qr(columns, mode="complete")[0][:, known:]
    if not known:
        rest = np.eye(factors.rank)
    return np.asarray(unmix(rest.T @ factors.right, shape, rng, contrast=contrast) @ rest.T)


def _with_proved(
    against: Consistency, columns: FloatArray, guess: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Add the columns that zeros at a ReLU prove."""
    factors, backward = against.factors, against.backward
    found = relu_separation.neurons(factors)
    inputs = np.nan_to_num(factors.inputs(guess), posinf=1e6, neginf=-1e6)
    before = (inputs @ backward.weight.T + backward.bias)[:, found.alive]
    kept = list(columns.T)
    for one in before:
        # A poor guess is right only at the clearest neurons; a good one needs all of them.
        for share in (0.6, 1.0):
            before_these = len(kept)
            inactive = relu_separation.believed_inactive(one, factors.rank, share=share)
            for column in _proved(found, inactive, rng):
                if not any(found.same(column, other) for other in kept):
                    kept.append(column)
            if len(kept) > before_these:
                break
    return np.array(kept[: factors.rank]).reshape(-1, factors.rank).T


def _proved(
    found: relu_separation.Neurons, inactive: Array, rng: np.random.Generator
) -> list[FloatArray]:
    if inactive.sum() < found.rank:
        return []
    return relu_separation.columns(found, relu_separation.sharpened(found, inactive), rng)


def unmix(
    rows: FloatArray,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    contrast: Contrast = "logcosh",
    iterations: int = 500,
) -> FloatArray:
    """Return the rows of an unmixing matrix (k, k) for mixed records ``rows`` (k, d).

    Applies FastICA to the mixed second difference ∂x∂y of images of ``shape`` (h, w) or (h, w,
    channels). Pixels of different images are far from independent, but their edges nearly are
    (Kariyappa et al. 2023 separate the pixels themselves). Other records are used as they are.
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
    """Return ∂x∂y of each row as a flattened image, or the rows if they are not images."""
    if len(shape) not in (2, 3) or min(sides_of(shape)[:2]) < 3:
        return rows
    images = channels_last(rows.reshape(len(rows), *shape))
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
        # This is only a start: later steps show whether it was good enough.
        warnings.simplefilter("ignore")
        ica.fit(signals.T)
    return np.asarray(ica.components_)
