"""Small batches of a mixed table, and the gradients of an untrained network on them."""

from __future__ import annotations

import numpy as np
from tests.contract.cases import Case

from exhume.data import load
from exhume.models import MLP, Activation, Initialisation
from exhume.models.public_units import PublicUnits
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.schema import Schema
from exhume.training.gradient import GradientStep

TABLE = load("diabetes-mixed")
assert TABLE.schema is not None
SCHEMA: Schema = TABLE.schema
OWN = TABLE.train.take(slice(100, 300))
"""What the adversary has; batches are taken from the rows before."""


def network(hidden: tuple[int, ...], activation: Activation = Activation.RELU) -> PublicUnits:
    """A network that gets numbers in standard deviations of the adversary's own rows."""
    rows = np.asarray(OWN.x)
    centre = np.where(SCHEMA.numbers, rows.mean(axis=0), 0.0)
    scale = np.where(SCHEMA.numbers, SCHEMA.scale(rows), 1.0)
    inner = MLP((SCHEMA.width,), 2, hidden, activation)
    return PublicUnits(inner, tuple(centre.tolist()), tuple(scale.tolist()))


def step(hidden: tuple[int, ...] = (60,), seed: int = 0) -> GradientStep:
    return GradientStep(network(hidden), (0, 1), Initialisation(seed=seed))


def batch(count: int, first: int = 0) -> Records:
    return TABLE.train.take(slice(first, first + count))


def knowing(training: object, **known: object) -> Knowledge:
    """Knowledge of the training, the columns, and rows like those of the client."""
    facts = {"training": training, "schema": SCHEMA, "shadow_targets": OWN, **known}
    return Knowledge(record_shape=(SCHEMA.width,), **facts)  # type: ignore[arg-type]


class TableCase(Case):
    """A case whose adversary knows the columns, and rows like those of the client."""

    def _knowledge(self, i: int) -> Knowledge:
        y = self.targets.take([i]).y
        return knowing(self.mechanism, fixed_set=self.fixed_set, labels=y)
