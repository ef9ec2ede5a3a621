"""A model that only answers: trained as usual, released through its outputs on probe points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array, frozen
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Answer, Outputs, Weights
from exhume.training.model import Model

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, eq=False)
class Answers(Mechanism):
    """Publishes what ``inner`` answers on ``queries`` (q, *record shape) of the adversary's."""

    inner: Mechanism
    queries: Array
    answer: Answer = Answer.SCORES

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", frozen(self.queries))

    def publish(self, data: Records, *, rng: np.random.Generator) -> Outputs:
        """Train the inner mechanism and ask its model every query."""
        return self._ask(self.inner.publish(data, rng=rng))

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Outputs]:
        """Train with each target in turn, sharing what the inner mechanism shares."""
        return [self._ask(r) for r in self.inner.publish_each(fixed_set, targets, rngs=rngs)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Answers are post-processing: they cost what the inner mechanism costs."""
        return self.inner.event(records)

    def _ask(self, release: object) -> Outputs:
        from exhume.defences.base import undefended

        model = undefended(self.inner)
        if not isinstance(model, Model) or not isinstance(release, Weights):
            raise InputError(f"answers need a mechanism that trains a model, got {self.inner}")
        scores = model.scores(release, self.queries)
        values = scores if self.answer is Answer.SCORES else model.means(scores)
        return Outputs(self.queries, values, self.answer)


def trained_model(mechanism: Mechanism) -> Mechanism:
    """Return the mechanism under any defences and answers: what was trained."""
    from exhume.defences.base import undefended

    inner = undefended(mechanism)
    return trained_model(inner.inner) if isinstance(inner, Answers) else inner


def probes(pool: Records, count: int, *, rng: np.random.Generator) -> Array:
    """Return ``count`` random points that spread like the pool, for an adversary to ask at."""
    x = np.asarray(pool.x, dtype=np.float64)
    deviation = x.std(axis=0) + 0.1 * float(x.std()) + 1e-12
    draws = rng.standard_normal((count, *pool.record_shape))
    return np.asarray(x.mean(axis=0) + deviation * draws)
