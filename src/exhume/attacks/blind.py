"""The oblivious guess: the best an adversary can do without looking at the release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import GroupedAttack, Lacking, Refusal
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Gradient, Release, Update
from exhume.protocol.schema import Schema

_PAIRS, _LEAST_JUDGES = 2e9, 500
"""Numbers that a guess from a table is compared with, and the least rows that judge it."""


@dataclass(frozen=True, eq=False)
class BlindQuestion:
    """How many records to guess, from what is known."""

    count: int
    knowledge: Knowledge


@dataclass(frozen=True)
class Oblivious(GroupedAttack[BlindQuestion]):
    """Guesses one constant: the pool record that is correct, within η, for the most pool records.

    η is the distance from each pool record to its nearest other record, like the audit's default
    threshold for a target. The choice depends on the pool alone.
    """

    name: ClassVar[str] = "oblivious"
    baseline: ClassVar[bool] = True

    def parse(self, release: Release, knowledge: Knowledge) -> BlindQuestion | Refusal:
        """Require a pool to guess from."""
        if knowledge.pool_size < 2:
            return Refusal(
                Lacking("needs at least two records for a guess", "knowledge.shadow_targets")
            )
        return BlindQuestion(_batch_size(release, knowledge), knowledge)

    def _group_key(self, problem: BlindQuestion) -> tuple[int, int, bool]:
        known = problem.knowledge
        return id(known.fixed_set), id(known.shadow_targets), known.candidates is None

    def _solve_group(
        self, problems: Sequence[BlindQuestion], rngs: Sequence[np.random.Generator]
    ) -> list[Reconstruction]:
        """Choose once for a pool that is shared."""
        listed = [problem.knowledge.candidates for problem in problems]
        if listed[0] is not None:
            # Every candidate is as likely as the others: the first one is as good a guess as any.
            firsts = [np.asarray(one.x[0], dtype=np.float64) for one in listed if one is not None]
            return [_guessed(*pair) for pair in zip(problems, firsts, strict=True)]
        guess = _best_guess(problems[0].knowledge)
        return [_guessed(problem, guess) for problem in problems]


def _guessed(problem: BlindQuestion, guess: FloatArray) -> Reconstruction:
    known = problem.knowledge.known_attributes
    if known is not None:
        guess = np.where(known.mask, known.values, guess)
    return Reconstruction(
        np.broadcast_to(guess, (problem.count, *problem.knowledge.record_shape)),
        Status.CONVERGED,
        labels=problem.knowledge.labels,
        message="a constant guess from the pool; the release was not used",
    )


def _batch_size(release: Release, knowledge: Knowledge) -> int:
    if isinstance(release, Gradient | Update):
        return release.batch_size
    return 1 if knowledge.labels is None else len(knowledge.labels)


def _best_guess(knowledge: Knowledge) -> FloatArray:
    from exhume.metrics import RMSE, best_constant_guess
    from exhume.metrics.oblivious import JUDGES

    pool = knowledge.pool()
    scale = column_scale(pool, knowledge.value_range, knowledge.schema)
    judges = JUDGES
    if knowledge.value_range is None:
        # Of a long table, fewer rows tell as well which guess is good.
        judges = int(np.clip(_PAIRS / pool.size, _LEAST_JUDGES, JUDGES))
    guess = best_constant_guess(pool, RMSE(scale=scale), judges=judges).record
    return guess if knowledge.schema is None else knowledge.schema.snap(guess[None])[0]


def column_scale(
    pool: Array, value_range: tuple[float, float] | None, schema: Schema | None = None
) -> FloatArray | None:
    """Return the unit of each entry: the pool's standard deviation for tables, None for images.

    Records with a common value range are compared as they are. Columns that are constant in the
    pool use the mean deviation as their unit. By a ``schema``, all columns of a table have the same
    weight, whatever entries they take.
    """
    if value_range is not None:
        return None
    if schema is not None:
        return schema.scale(pool)
    deviation = np.asarray(pool, dtype=np.float64).std(axis=0)
    usual = float(deviation.mean()) or 1.0
    return np.where(deviation > 1e-12 * usual, deviation, usual)
