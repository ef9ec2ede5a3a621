"""What the known part of a record says of the rest, by a pool of records alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from exhume.arrays import FloatArray, frozen
from exhume.errors import InputError
from exhume.metrics.error import RMSE
from exhume.metrics.oracle import nearest_neighbours
from exhume.metrics.shrinkage import shrunk_covariance

_FOLDS = 5
_JUDGES = 1000
"""How many pool records, evenly spaced, judge the guesses."""
_PARTS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
"""Multiples of the shrinkage that are tried: what suits a covariance may not suit a guess."""


class Guess(Enum):
    """How the unknown entries are guessed. The value is its short name."""

    GAUSSIAN = "gaussian"
    """The conditional mean under a Gaussian fitted to the pool."""
    NEAREST = "nearest"
    """The unknown entries of the pool record whose known ones are nearest."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The better guess, and both mean squared errors, by cross-validation.

    ``gaussian`` and ``nearest`` are means over the unknown entries, ``errors`` (u,) those of the
    guess that was chosen, one an entry. ``shrinkage`` is the multiple of Ledoit and Wolf's that
    served the Gaussian best.
    """

    guess: Guess
    gaussian: float
    nearest: float
    shrinkage: float
    errors: FloatArray = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "errors", frozen(self.errors))

    def __call__(self, known: FloatArray, unknown: FloatArray, given: FloatArray) -> FloatArray:
        """Return the chosen guess (q, u); see ``gaussian_guess`` for the arguments."""
        if self.guess is Guess.GAUSSIAN:
            return gaussian_guess(known, unknown, given, shrinkage=self.shrinkage)
        return nearest_guess(known, unknown, given)


def gaussian_guess(
    known: FloatArray, unknown: FloatArray, given: FloatArray, *, shrinkage: float = 1.0
) -> FloatArray:
    """Return the conditional mean (q, u) of the unknown part where the known part is ``given``.

    ``known`` (n, f) and ``unknown`` (n, u) are the two parts of the pool's records, in units in
    which entries compare; ``given`` is (q, f). The Gaussian's covariance is shrunk (Ledoit and
    Wolf 2004, or a multiple of that), so that fewer records than entries will do; the system solved
    is n × n or f × f, whichever is smaller.

    >>> line = np.arange(50.0)[:, None]
    >>> gaussian_guess(line, 2 * line + 1, np.array([[10.0]]), shrinkage=0.001).round(2)
    array([[21.]])
    """
    return _Gaussian(known, unknown).mean(given, shrinkage)


def nearest_guess(known: FloatArray, unknown: FloatArray, given: FloatArray) -> FloatArray:
    """Return the unknown part (q, u) of the pool record nearest to ``given`` in its known part.

    >>> nearest_guess(np.array([[0.0], [1.0]]), np.array([[5.0], [6.0]]), np.array([[0.9]]))
    array([[6.]])
    """
    nearest = nearest_neighbours(given, known, RMSE(), levels=(0.0,))
    return np.asarray(unknown[nearest.nearest_index])


def choose_guess(known: FloatArray, unknown: FloatArray) -> Choice:
    """Choose the guess with the smaller squared error by five-fold cross-validation on the pool.

    The pool's records play the target in turn, at most 1000 of them, evenly spaced; nothing else
    is looked at.
    """
    if len(known) < 3:
        raise InputError(f"choosing a guess needs a pool of at least 3 records, got {len(known)}")
    judges = np.unique(np.linspace(0, len(known) - 1, min(_JUDGES, len(known))).astype(np.intp))
    folds, size = min(_FOLDS, len(judges)), unknown.shape[1]
    gaussian, nearest = np.zeros((len(_PARTS), size)), np.zeros(size)
    for fold in range(folds):
        held = judges[fold::folds]
        kept = np.setdiff1d(np.arange(len(known)), held)
        fitted = _Gaussian(known[kept], unknown[kept])
        for i, part in enumerate(_PARTS):
            gaussian[i] += _squares(fitted.mean(known[held], part), unknown[held])
        nearest += _squares(nearest_guess(known[kept], unknown[kept], known[held]), unknown[held])
    gaussian, nearest = gaussian / len(judges), nearest / len(judges)
    best = int(np.argmin(gaussian.mean(axis=1)))
    means = float(gaussian[best].mean()), float(nearest.mean())
    if means[0] <= means[1]:
        return Choice(Guess.GAUSSIAN, *means, _PARTS[best], gaussian[best])
    return Choice(Guess.NEAREST, *means, _PARTS[best], nearest)


def _squares(guessed: FloatArray, truth: FloatArray) -> FloatArray:
    return np.asarray(np.square(guessed - truth).sum(axis=0))


class _Gaussian:
    """A Gaussian fitted to the pool, ready for any shrinkage: one eigenvalue problem serves all."""

    def __init__(self, known: FloatArray, unknown: FloatArray) -> None:
        self._middle, self._mean = known.mean(axis=0), unknown.mean(axis=0)
        inside, outside = known - self._middle, unknown - self._mean
        shrunk = shrunk_covariance(np.concatenate([inside, outside], axis=1))
        # Without any spread there is nothing to learn, and an infinite ridge says so.
        self._ridge = shrunk.ridge / shrunk.weight if shrunk.share > 0.0 else np.inf
        if inside.shape[1] <= len(inside):
            self._values, vectors = np.linalg.eigh(inside.T @ inside)
            self._left, self._right = vectors, vectors.T @ (inside.T @ outside)
        else:
            self._values, vectors = np.linalg.eigh(inside @ inside.T)
            self._left, self._right = inside.T @ vectors, vectors.T @ outside

    def mean(self, given: FloatArray, shrinkage: float) -> FloatArray:
        """Return the conditional mean (q, u)."""
        strength = np.maximum(self._values, 0.0) + shrinkage * self._ridge
        return np.asarray(
            self._mean + ((given - self._middle) @ self._left / strength) @ self._right
        )
