"""Attribute inference: errors on the unknown entries of a record (Balle et al. 2022, §II-C).

Known entries need no attack, so they must not count: only the unknown entries are scored, and they
are compared with a guess from the known entries without any release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.metrics.error import ScaledMetric
from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.errors import InputError
from exhume.protocol.metric import Metric, Range, require_range
from exhume.stats.proportions import Proportion, clopper_pearson

Levels = tuple[tuple[int, tuple[float, ...]], ...]
"""Discrete entries: the index of each in a flattened record, and the values it can take."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AttributeRMSE(ScaledMetric):
    """Root-mean-square error over the entries that are not ``known`` (record shape, bool).

    >>> metric = AttributeRMSE(known=np.array([True, False, False]))
    >>> metric(np.array([[0.0, 1.0, 2.0]]), np.array([[9.0, 1.0, 4.0]])).round(4)
    array([1.4142])
    """

    name: ClassVar[str] = "attribute-rmse"
    known: Array

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "known", _checked_mask(self.known))

    def embed(self, records: FloatArray) -> FloatArray:
        """Return the unknown entries (n, unknown), in units of ``scale``."""
        _require_shape(records, self.known)
        return super().embed(records)[:, ~self.known.reshape(-1)]

    def from_mean_square(self, mean_square: FloatArray) -> FloatArray:
        """Return the square root."""
        return np.sqrt(mean_square)


@dataclass(frozen=True, eq=False, kw_only=True)
class AttributeMatch(Metric):
    """The share, in [0, 1], of the discrete entries of ``levels`` that are exactly right.

    A sample's entry is first rounded to the nearest level; the truth is not changed.

    >>> metric = AttributeMatch(levels=((1, (0.0, 1.0)), (2, (0.0, 1.0, 2.0))))
    >>> metric(np.array([[7.0, 1.0, 2.0]]), np.array([[0.0, 0.8, 1.1]]))
    array([0.5])
    """

    name: ClassVar[str] = "attribute-match"
    higher_is_better: ClassVar[bool] = True
    levels: Levels
    value_range: Range | None = None

    def __post_init__(self) -> None:
        if self.value_range is not None:
            require_range(self.value_range, name=self.name)
        if not self.levels:
            raise InputError("no unknown entry is discrete: there is nothing to match exactly")

    def _score(self, truth: FloatArray, samples: FloatArray) -> FloatArray:
        truth, samples = truth.reshape(len(truth), -1), samples.reshape(len(samples), -1)
        hits = [truth[:, i] == _nearest_level(samples[:, i], values) for i, values in self.levels]
        return np.asarray(np.mean(hits, axis=0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class AttributeScore:
    """An attack's result on the unknown entries of k records, compared with a guess.

    ``errors`` and ``guess_errors`` (k,) are root-mean-square errors over the unknown entries;
    ``beaten`` counts the records on which the attack was strictly closer than the guess; ``match``
    and ``guess_match`` are mean shares of discrete entries that are exactly right, None without
    such entries.
    """

    errors: FloatArray
    guess_errors: FloatArray
    beaten: Proportion
    match: float | None
    guess_match: float | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "errors", frozen(self.errors))
        object.__setattr__(self, "guess_errors", frozen(self.guess_errors))


def discrete_levels(pool: Array, known: Array, *, most: int = 10) -> Levels:
    """Return the unknown entries that take from 2 to ``most`` values in the pool (n, *shape).

    >>> discrete_levels(np.array([[5.0, 0, 1], [6.0, 1, 1]]), np.array([True, False, False]))
    ((1, (0.0, 1.0)),)
    """
    known = _checked_mask(known)
    rows = np.asarray(pool, dtype=np.float64)
    _require_shape(rows, known)
    rows = rows.reshape(len(rows), -1)
    values = [(int(i), np.unique(rows[:, i])) for i in np.flatnonzero(~known.reshape(-1))]
    return tuple((i, tuple(found.tolist())) for i, found in values if 2 <= len(found) <= most)


def score_attributes(
    truth: Array,
    samples: Array,
    guesses: Array,
    *,
    known: Array,
    scale: Array | None = None,
    levels: Levels = (),
) -> AttributeScore:
    """Compare an attack's samples and a guess's, both (k, *shape), on the entries not known.

    The guess uses the known entries without the release, as the attack ``conditional-guess`` does:
    the improvement of the samples over it comes from the release.
    """
    metric = AttributeRMSE(known=known, scale=scale)
    errors, guessed = metric(truth, samples), metric(truth, guesses)
    match = AttributeMatch(levels=levels) if levels else None
    return AttributeScore(
        errors,
        guessed,
        clopper_pearson(int((errors < guessed).sum()), len(errors)),
        None if match is None else float(match(truth, samples).mean()),
        None if match is None else float(match(truth, guesses).mean()),
    )


def _nearest_level(values: FloatArray, levels: tuple[float, ...]) -> FloatArray:
    choices = np.asarray(levels)
    return np.asarray(choices[np.abs(values[:, None] - choices[None, :]).argmin(axis=1)])


def _checked_mask(known: Array) -> Array:
    mask = frozen(known, dtype=bool)
    if mask.all():
        raise InputError("every entry is known: there is no attribute to infer")
    return mask


def _require_shape(records: FloatArray, known: Array) -> None:
    if records.shape[1:] != known.shape:
        raise InputError(
            f"the mask of known entries has shape {known.shape}, a record {records.shape[1:]}"
        )
