"""From mixed records to single ones: guess, prove what can be proved, guess the rest again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.analytic import kinks
from exhume.attacks.analytic.consistency import Consistency, Returned
from exhume.attacks.analytic.factor import Factors
from exhume.attacks.analytic.unmixing import Contrast, unmix

_CONTRASTS: tuple[Contrast, ...] = ("logcosh", "logcosh", "exp", "cube")
_CONSISTENT = 0.02
"""A column of Δ this close to what its record would return is taken as found."""


@dataclass(frozen=True, eq=False)
class Separation:
    """An unmixing Q (rank, rank), which of its rows are proved, and the rounds it took."""

    unmixing: FloatArray
    proved: Array
    rounds: int


def separate(
    against: Consistency, shape: tuple[int, ...], rng: np.random.Generator, *, rounds: int
) -> Separation:
    """Unmix records of ``shape`` behind ``against.factors``, at most ``rounds`` times over.

    Proved columns of Δ confine the other records to a smaller space (a row of Q is orthogonal to
    every other record's column), in which the next guess is easier.
    """
    if against.factors.rank == 1:
        return Separation(np.ones((1, 1)), np.ones(1, dtype=bool), 0)
    if against.layer.rectified:
        return _by_zeros(against, shape, rng, rounds)
    return _by_consistency(against, shape, rng, rounds)


def polished(
    against: Consistency, unmixing: FloatArray, rng: np.random.Generator, *, enough: float
) -> tuple[FloatArray, FloatArray]:
    """Bring an approximate unmixing to where its records return what was seen.

    By whole steps, then by short ones, then behind a ReLU by the zeros that the guess names: each
    only where ``enough`` was not reached, and kept only where it came nearer. Returns the unmixing
    and its residual (rank,).
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
    """Begin again with what zeros behind a ReLU prove in place of the guess's nearest columns."""
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
    """Prove columns by their zeros behind a ReLU."""
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
    """Bring guesses to their fixed point; guess again what stays far from it."""
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
    """Return rows of Q for the records whose columns are not proved yet."""
    known = columns.shape[1]
    rest = np.linalg.qr(columns, mode="complete")[0][:, known:]
    if not known:
        rest = np.eye(factors.rank)
    return np.asarray(unmix(rest.T @ factors.right, shape, rng, contrast=contrast) @ rest.T)


def _with_proved(
    against: Consistency, columns: FloatArray, guess: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Add the columns that the zeros behind a ReLU prove."""
    factors, backward = against.factors, against.backward
    found = kinks.neurons(factors)
    inputs = np.nan_to_num(factors.inputs(guess), posinf=1e6, neginf=-1e6)
    before = (inputs @ backward.weight.T + backward.bias)[:, found.alive]
    kept = list(columns.T)
    for one in before:
        # A poor guess is right on the clearest neurons only, a good one needs all to stand out.
        for share in (0.6, 1.0):
            before_these = len(kept)
            inactive = kinks.believed_inactive(one, factors.rank, share=share)
            for column in _proved(found, inactive, rng):
                if not any(found.same(column, other) for other in kept):
                    kept.append(column)
            if len(kept) > before_these:
                break
    return np.array(kept[: factors.rank]).reshape(-1, factors.rank).T


def _proved(found: kinks.Neurons, inactive: Array, rng: np.random.Generator) -> list[FloatArray]:
    if inactive.sum() < found.rank:
        return []
    return kinks.columns(found, kinks.sharpened(found, inactive), rng)
