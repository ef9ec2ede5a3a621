"""A model released only through its outputs on probe points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.protocol.arrays import Array, frozen
from exhume.protocol.defence import Defence, undefended
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Outputs, Weights
from exhume.training.model import Model
from exhume.training.recorded import Recorded

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True, eq=False)
class Answers(Mechanism):
    """Publishes the outputs of ``inner`` on the adversary's ``queries`` (q, *record shape)."""

    inner: Mechanism
    queries: Array
    answer: Answer = Answer.SCORES

    def __post_init__(self) -> None:
        object.__setattr__(self, "queries", frozen(self.queries))

    @property
    def wrapped(self) -> Mechanism:
        """The mechanism that is trained and queried."""
        return self.inner

    def publish(self, data: Records, *, rng: np.random.Generator) -> Outputs:
        """Train the inner mechanism and evaluate its model on every query."""
        return self._ask(self.inner.publish(data, rng=rng))

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Outputs]:
        """Train with each target in turn; work is shared as in the inner mechanism."""
        return [self._ask(r) for r in self.inner.publish_each(fixed_set, targets, rngs=rngs)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the inner event: answers are post-processing."""
        return self.inner.event(records)

    def _ask(self, release: object) -> Outputs:
        model = undefended(self.inner)
        if not isinstance(model, Model) or not isinstance(release, Weights):
            raise InputError(f"answers need a mechanism that trains a model, got {self.inner}")
        scores = model.scores(release, self.queries)
        values = scores if self.answer is Answer.SCORES else model.means(scores)
        return Outputs(self.queries, values, self.answer)


def trained_model(mechanism: Mechanism) -> Mechanism:
    """Return the trained mechanism under any defences, answers and records of its steps."""
    return next(
        one for one in layers(mechanism) if not isinstance(one, Defence | Answers | Recorded)
    )


def probes(pool: Records, count: int, *, rng: np.random.Generator) -> Array:
    """Return ``count`` random query points, distributed like the pool."""
    x = np.asarray(pool.x, dtype=np.float64)
    deviation = x.std(axis=0) + 0.1 * float(x.std()) + 1e-12
    draws = rng.standard_normal((count, *pool.record_shape))
    return np.asarray(x.mean(axis=0) + deviation * draws)
