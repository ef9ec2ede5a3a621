"""The oblivious guess: the best an adversary can do without looking at the release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Gradient, Release, Update


@dataclass(frozen=True)
class Oblivious(Attack):
    """Guesses one constant: the record that is right, within η, for the most of the pool.

    η is each pool record's distance to its nearest other record, as the audit's default threshold
    is for a target. The choice sees the pool alone.
    """

    name: ClassVar[str] = "oblivious"
    baseline: ClassVar[bool] = True

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for a pool to guess from."""
        if len(knowledge.pool()) < 2:
            return "needs at least two records to guess from (a fixed set or shadow targets)"
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
        """Choose once for every pool that is shared."""
        guesses: dict[tuple[int, int], FloatArray] = {}
        results = []
        for release, one in zip(releases, knowledge, strict=True):
            key = (id(one.fixed_set), id(one.shadow_targets))
            if key not in guesses:
                guesses[key] = _best_guess(one)
            guess = guesses[key]
            known = one.known_attributes
            if known is not None:
                guess = np.where(known.mask, known.values, guess)
            results.append(
                Reconstruction(
                    np.repeat(guess[None], _batch_size(release, one), axis=0),
                    Status.CONVERGED,
                    labels=one.labels,
                    message="a constant guess from the pool; the release was not looked at",
                )
            )
        return results


def _batch_size(release: Release, knowledge: Knowledge) -> int:
    if isinstance(release, Gradient | Update):
        return release.batch_size
    return 1 if knowledge.labels is None else len(knowledge.labels)


def _best_guess(knowledge: Knowledge) -> FloatArray:
    from exhume.metrics import RMSE, best_constant_guess

    pool = knowledge.pool()
    guess = best_constant_guess(pool, RMSE(scale=column_scale(pool, knowledge.value_range)))
    return guess.record


def column_scale(pool: Array, value_range: tuple[float, float] | None) -> FloatArray | None:
    """Return the unit of each entry: the pool's deviation for tables, none for images.

    Records with a common value range are compared as they are. Columns that don't vary in the pool
    count in units of the mean deviation.
    """
    if value_range is not None:
        return None
    deviation = np.asarray(pool, dtype=np.float64).std(axis=0)
    usual = float(deviation.mean()) or 1.0
    return np.where(deviation > 1e-12 * usual, deviation, usual)
