"""The guess from what is known of a record: what an attribute-inference attack must beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.baseline import column_scale
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release

if TYPE_CHECKING:
    from exhume.metrics.conditional import Choice

_MOST_CLASSES = 20
"""Labels with more values than this, if they are numbers, count as a quantity."""


@dataclass(frozen=True)
class ConditionalGuess(Attack):
    """Fills in what is not known of the record from what is, without looking at the release.

    The guess is the conditional mean of a Gaussian fitted to the pool, or the unknown entries of
    the pool record nearest in the known ones (and in the label, where it is known), whichever
    predicts the pool's own records better in cross-validation. Attribute inference is worth what
    it adds to this (Balle et al. 2022, §II-C).
    """

    name: ClassVar[str] = "conditional-guess"
    baseline: ClassVar[bool] = True

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for part of the record, and for a pool to learn the rest from."""
        known = knowledge.known_attributes
        if (known is None or not known.mask.any()) and not _label_known(knowledge):
            return "nothing is known of the record itself: some of its values, or its label"
        if known is not None and known.mask.all():
            return "every value of the record is known: there is nothing to guess"
        if len(knowledge.pool()) < 3:
            return "needs at least three records to learn from (a fixed set or shadow targets)"
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        return self._reconstruct_each([release], [knowledge], [rng])[0]

    def _reconstruct_each(
        self,
        releases: Sequence[Release],
        knowledge: Sequence[Knowledge],
        rngs: Sequence[np.random.Generator],
    ) -> list[Reconstruction]:
        """Choose the guess once for every pool and mask that are shared, and guess together."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for i, one in enumerate(knowledge):
            groups.setdefault(_shared(one), []).append(i)
        results: dict[int, Reconstruction] = {}
        for members in groups.values():
            found = _guessed([knowledge[i] for i in members])
            results |= zip(members, found, strict=True)
        return [results[i] for i in range(len(knowledge))]


def _guessed(knowledge: list[Knowledge]) -> list[Reconstruction]:
    """Guess for targets that share their pool and the mask of what is known."""
    from exhume.metrics.conditional import choose_guess

    pool, mask = knowledge[0].pool(), _mask(knowledge[0])
    flat, hidden = pool.reshape(len(pool), -1), ~mask.reshape(-1)
    scale = column_scale(flat, knowledge[0].value_range)
    unit = np.ones(flat.shape[1]) if scale is None else scale
    rows = flat / unit
    labels, own = _label_columns(knowledge, float(rows.std(axis=0).mean()) or 1.0)
    known, unknown = np.hstack([rows[:, ~hidden], labels]), rows[:, hidden]
    values = np.array([_values(one).reshape(-1)[~hidden] for one in knowledge])
    given = np.hstack([values / unit[~hidden], own])
    choice = choose_guess(known, unknown)
    guessed = choice(known, unknown, given) * unit[hidden]
    error = _error_estimate(choice, unit, hidden)
    return [
        _filled(one, hidden, row, choice, error)
        for one, row in zip(knowledge, guessed, strict=True)
    ]


def _filled(
    knowledge: Knowledge, hidden: Array, guessed: FloatArray, choice: Choice, error: float
) -> Reconstruction:
    record = _values(knowledge).reshape(-1).copy()
    record[hidden] = guessed
    return Reconstruction(
        record.reshape(1, *knowledge.record_shape),
        Status.CONVERGED,
        labels=knowledge.labels,
        error_estimate=np.array([error]),
        message=(
            f"guessed from what is known of the record ({choice.guess.value}); "
            "the release was not looked at"
        ),
        stats={
            "guess": choice.guess.value,
            "gaussian_mse": choice.gaussian,
            "nearest_mse": choice.nearest,
        },
    )


def _error_estimate(choice: Choice, unit: FloatArray, hidden: Array) -> float:
    """The root-mean-square error over the whole record: known entries have none."""
    return float(np.sqrt(choice.errors @ np.square(unit[hidden]) / len(hidden)))


def _label_columns(knowledge: list[Knowledge], spread: float) -> tuple[FloatArray, FloatArray]:
    """Labels of the pool (n, c) and of each target (q, c) as columns that vary by ``spread``."""
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
    """Whether the label is known, of one target, and the pool has labels to compare it with."""
    if knowledge.labels is None or len(knowledge.labels) != 1:
        return False
    return _pool_labels(knowledge) is not None


def _mask(knowledge: Knowledge) -> Array:
    known = knowledge.known_attributes
    return np.zeros(knowledge.record_shape, dtype=bool) if known is None else known.mask


def _values(knowledge: Knowledge) -> FloatArray:
    known = knowledge.known_attributes
    return np.zeros(knowledge.record_shape) if known is None else known.values


def _shared(knowledge: Knowledge) -> tuple[object, ...]:
    """What the choice of the guess depends on."""
    return (
        id(knowledge.fixed_set),
        id(knowledge.shadow_targets),
        knowledge.value_range,
        _mask(knowledge).tobytes(),
        _label_known(knowledge),
    )
