"""Guesses of the unknown part of a record from its known part, given a pool of records.

An attribute-inference attack must beat this guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import numpy as np

from exhume.attacks.blind import column_scale
from exhume.metrics.error import RMSE
from exhume.metrics.oracle import nearest_neighbours
from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.attack import GroupedAttack, Lacking, Refusal
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release
from exhume.stats.covariance import shrunk_covariance

_FOLDS = 5
_JUDGES = 1000
"""Number of pool records, evenly spaced, that the guesses are tested on."""
_PARTS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.001)
"""Multiples of the shrinkage to try: the best one for a covariance may be poor for a guess."""


class Guess(Enum):
    """How the unknown entries are guessed. The value is the short name."""

    GAUSSIAN = "gaussian"
    """The conditional mean under a Gaussian fitted to the pool."""
    NEAREST = "nearest"
    """The unknown entries of the pool record with the nearest known entries."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The better guess, with both mean squared errors from cross-validation.

    ``gaussian`` and ``nearest`` are means over the unknown entries. ``errors`` (u,) are the errors
    of the chosen guess, one per entry. ``shrinkage`` is the multiple of Ledoit and Wolf's shrinkage
    that gave the Gaussian guess the smallest error.
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

    ``known`` (n, f) and ``unknown`` (n, u) are the two parts of the pool's records, in units that
    make entries comparable; ``given`` is (q, f). The Gaussian's covariance is shrunk (Ledoit and
    Wolf 2004, or a multiple of it), so the pool may have fewer records than entries. The linear
    system is n × n or f × f, whichever is smaller.

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

    At most 1000 pool records, evenly spaced, take the role of the target. No other data is used.
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
    """A Gaussian fitted to the pool; one eigendecomposition serves every shrinkage."""

    def __init__(self, known: FloatArray, unknown: FloatArray) -> None:
        self._middle, self._mean = known.mean(axis=0), unknown.mean(axis=0)
        inside, outside = known - self._middle, unknown - self._mean
        shrunk = shrunk_covariance(np.concatenate([inside, outside], axis=1))
        # Without any spread there is nothing to learn, so the ridge is infinite.
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


_MOST_CLASSES = 20
"""Numeric labels with more distinct values than this are treated as a quantity."""


@dataclass(frozen=True)
class ConditionalGuess(GroupedAttack[Knowledge]):
    """Fills in the unknown part of the record from the known part, without using the release.

    The guess is either the conditional mean of a Gaussian fitted to the pool, or the unknown
    entries of the pool record whose known entries (and label, if known) are nearest. Cross-
    validation on the pool chooses the better of the two. An attribute-inference attack is worth
    what it adds to this guess (Balle et al. 2022, §II-C).
    """

    name: ClassVar[str] = "conditional-guess"
    baseline: ClassVar[bool] = True

    def parse(self, release: Release, knowledge: Knowledge) -> Knowledge | Refusal:
        """Require a known part of the record, and a pool to learn the rest from."""
        known = knowledge.known_attributes
        if (known is None or not known.mask.any()) and not _label_known(knowledge):
            return Refusal("nothing is known about the record: no values and no label")
        if known is not None and known.mask.all():
            return Refusal("every value of the record is known: there is nothing to guess")
        if len(knowledge.pool()) < 3:
            return Refusal(
                Lacking("needs at least three records to learn from", "knowledge.shadow_targets")
            )
        return knowledge

    def _group_key(self, problem: Knowledge) -> tuple[object, ...]:
        """Return what the choice of the guess depends on."""
        return (
            id(problem.fixed_set),
            id(problem.shadow_targets),
            problem.value_range,
            _mask(problem).tobytes(),
            _label_known(problem),
        )

    def _solve_group(
        self, problems: Sequence[Knowledge], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        """Choose the guess once for a pool and a mask that are shared, and guess together."""
        return _guessed(problems)


def _guessed(knowledge: Sequence[Knowledge]) -> list[Reconstruction]:
    """Guess for targets that share the pool and the mask of known values."""
    pool, mask = knowledge[0].pool(), _mask(knowledge[0])
    flat, hidden = pool.reshape(len(pool), -1), ~mask.reshape(-1)
    scale = column_scale(flat, knowledge[0].value_range)
    unit = np.ones(flat.shape[1]) if scale is None else scale
    rows = flat / unit
    labels, own = _label_columns(knowledge, float(rows.std(axis=0).mean()) or 1.0)
    known, unknown = np.hstack([rows[:, ~hidden], labels]), rows[:, hidden]
    # Of a batch, every record is guessed by its own known part.
    values = [_values(one).reshape(-1, len(hidden))[:, ~hidden] for one in knowledge]
    counts = [len(one) for one in values]
    own = np.repeat(own, counts, axis=0)
    given = np.hstack([np.concatenate(values) / unit[~hidden], own])
    choice = choose_guess(known, unknown)
    guessed = choice(known, unknown, given) * unit[hidden]
    error = _error_estimate(choice, unit, hidden)
    parts = np.split(guessed, np.cumsum(counts)[:-1])
    return [
        _filled(one, hidden, part, choice, error)
        for one, part in zip(knowledge, parts, strict=True)
    ]


def _filled(
    knowledge: Knowledge, hidden: Array, guessed: FloatArray, choice: Choice, error: float
) -> Reconstruction:
    records = _values(knowledge).reshape(-1, len(hidden)).copy()
    records[:, hidden] = guessed
    return Reconstruction(
        records.reshape(-1, *knowledge.record_shape),
        Status.CONVERGED,
        labels=knowledge.labels,
        error_estimate=np.full(len(records), error),
        message=(
            f"guessed from the known part of the record ({choice.guess.value}); "
            "the release was not used"
        ),
        stats={
            "guess": choice.guess.value,
            "gaussian_mse": choice.gaussian,
            "nearest_mse": choice.nearest,
        },
    )


def _error_estimate(choice: Choice, unit: FloatArray, hidden: Array) -> float:
    """Return the root-mean-square error over the whole record; known entries have no error."""
    return float(np.sqrt(choice.errors @ np.square(unit[hidden]) / len(hidden)))


def _label_columns(knowledge: Sequence[Knowledge], spread: float) -> tuple[FloatArray, FloatArray]:
    """Return the labels of the pool (n, c) and of each target (q, c), scaled to ``spread``."""
    first = knowledge[0]
    if not _label_known(first):
        return np.empty((len(first.pool()), 0)), np.empty((len(knowledge), 0))
    pool = _pool_labels(first)
    assert pool is not None
    own = np.array([one.labels[0] for one in knowledge if one.labels is not None])
    classes = np.unique(pool)
    if pool.dtype.kind in "fiu" and len(classes) > _MOST_CLASSES:
        pool, own = pool[:, None].astype(np.float64), own[:, None].astype(np.float64)
    else:
        pool, own = (np.asarray(y[:, None] == classes, dtype=np.float64) for y in (pool, own))
    deviation = np.where(pool.std(axis=0) > 0, pool.std(axis=0), 1.0)
    return spread * pool / deviation, spread * own / deviation


def _pool_labels(knowledge: Knowledge) -> Array | None:
    parts = [r.y for r in (knowledge.fixed_set, knowledge.shadow_targets) if r is not None]
    labels = [y for y in parts if y is not None]
    return np.concatenate(labels) if labels and len(labels) == len(parts) else None


def _label_known(knowledge: Knowledge) -> bool:
    """Whether the label of the single target is known and the pool has labels to compare with."""
    if knowledge.labels is None or len(knowledge.labels) != 1:
        return False
    return _pool_labels(knowledge) is not None


def _mask(knowledge: Knowledge) -> Array:
    known = knowledge.known_attributes
    return np.zeros(knowledge.record_shape, dtype=bool) if known is None else known.mask


def _values(knowledge: Knowledge) -> FloatArray:
    known = knowledge.known_attributes
    return np.zeros(knowledge.record_shape) if known is None else known.values
