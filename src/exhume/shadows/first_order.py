"""Shadow models to first order, where that is much cheaper and its error is known to be small.

The Hessians of a training are the same for all of its models. They are kept in the cache, a file
per step, so that processes share the work and a killed one loses a step at most.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from exhume.models.mlp import MLP
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.cache import Cache, shelf_name
from exhume.runtime.fingerprint import fingerprint
from exhume.shadows.maker import Maker, Published, Repeated
from exhume.shadows.order import Order
from exhume.training.network import Training

if TYPE_CHECKING:
    from exhume.training.fixed_set_run import Nominal, RecordedStep
    from exhume.training.linearised import LinearisedSimulator

MOST_OFF = 0.01
"""The largest mean error that is accepted, relative to the difference that a record makes."""
SAMPLE = 16
"""How many models are also trained exactly, to measure the error."""
WORTH = 1.0
"""The exact way must need this many times the arithmetic, Hessians included.

That is from 5,000 models of 784-10-10 on 10,000 records on; then it takes more than twice as long.
"""
MODELS = 2048
"""How many models are trained at a time: every time all Hessians are read once."""
_FORMAT = 1
"""Raised when a new version gives other numbers for the same order."""


class LinearisedModels(Repeated):
    """Rows to first order; ``errors`` are the relative errors on a sample of exact models.

    Memory: four Hessians, 3 · P float32 numbers per model of a chunk, and the tiles of all steps
    (half a gigabyte at most).
    """

    chunk = MODELS

    def __init__(self, order: Order, cache: Cache, errors: FloatArray) -> None:
        super().__init__(order)
        self._cache, self.errors = cache, errors
        self.source = fingerprint(self.source, "first order", _FORMAT)
        self._shelf = shelf_name("curvature", self.source)

    @cached_property
    def _simulator(self) -> LinearisedSimulator:
        from exhume.training.linearised import Hessian, LinearisedSimulator

        def kept(nominal: Nominal, step: RecordedStep) -> Hessian:
            arrays = self._kept(nominal, step, wait=True)
            assert arrays is not None
            return Hessian.unpacked(nominal, arrays)

        return LinearisedSimulator(self.training, self.fixed_set, curvatures=kept)

    def rows(self, targets: Records, name: str) -> Array:
        """Return the differences that the targets make (c, P), to first order."""
        self._prepare()
        return super().rows(targets, name)

    def _prepare(self) -> None:
        """Compute the Hessians that are not kept; those that another process has begun, last."""
        nominal = self._simulator.nominal
        for wait in (False, True):
            for step in nominal.steps():
                if not self._cache.holds(self._shelf, _name(step.number)):
                    self._kept(nominal, step, wait=wait)

    def _kept(self, nominal: Nominal, step: RecordedStep, *, wait: bool) -> dict[str, Array] | None:
        from exhume.training.linearised import Hessian

        return self._cache.computed(
            self._shelf,
            _name(step.number),
            lambda: Hessian.of(nominal, step).packed(nominal),
            about="from the Hessian of a training",
            wait=wait,
        )


def _name(step: int) -> str:
    return f"step-{step:06d}"


def maker_for(order: Order, cache: Cache) -> Maker:
    """Return the fastest way to fill an order that is exact, or nearly so and far cheaper."""
    if not order.repeatable:
        return Published(order)
    exact = Repeated(order)
    if not exact.source or not _worth_it(order) or not _fits(order, cache):
        return exact
    sample = order.targets.take(slice(0, SAMPLE))
    found = cache.computed(
        shelf_name("shadows", exact.source),
        fingerprint("first order", _FORMAT, sample)[:40],
        lambda: {"errors": measured_errors(exact, sample)},
        about=f"from {len(sample)} exact models",
        wait=True,
    )
    assert found is not None
    errors = found["errors"]
    return LinearisedModels(order, cache, errors) if errors.mean() <= MOST_OFF else exact


def measured_errors(exact: Repeated, sample: Records) -> FloatArray:
    """Return ‖error‖ / ‖θᵢ − θ₋‖ (c,) of training to first order; infinite where it diverged.

    No Hessian is formed for it: the cost is that of training the sample exactly, twice.
    """
    from exhume.training.linearised import LinearisedSimulator, RecordByRecord

    truth = exact.rows(sample, "").astype(np.float64)
    follow = LinearisedSimulator(exact.training, exact.fixed_set, curvatures=RecordByRecord)
    x, y = exact.prepared(sample).x, exact.training.responses(sample.labels)
    try:
        found = follow.differences(x, y)
    except InputError:
        return np.full(len(sample), np.inf)
    gaps = np.linalg.norm(found - truth, axis=1)
    return np.asarray(gaps / np.maximum(np.linalg.norm(truth, axis=1), 1e-300))


def _worth_it(order: Order) -> bool:
    """Whether the exact way needs ``WORTH`` times the arithmetic of the first layer."""
    from exhume.training.linearised import unlinearisable

    training, models = order.training, len(order.targets)
    if not isinstance(training, Training) or unlinearisable(training) is not None:
        return False
    exact, hessians, each = arithmetic(order)
    return exact * models >= WORTH * (hessians + each * models)


def arithmetic(order: Order) -> tuple[float, float, float]:
    """Return the operations per step of an exact model, of the Hessian, and of one by it."""
    training = order.training
    assert isinstance(training, Training)
    free, rest, records = _sizes(training, order)
    return 4.0 * records * free, 1.5 * records * free**2, 2.0 * (free + rest) ** 2


def _fits(order: Order, cache: Cache) -> bool:
    """Whether the cache has room for the Hessians and the models."""
    training = order.training
    assert isinstance(training, Training)
    free, rest, _ = _sizes(training, order)
    steps = training.step_count(len(order.fixed_set) + 1)
    hessians = 4 * steps * ((free + rest) ** 2 // 2)
    return hessians + 4 * len(order.targets) * order.layout.whole <= cache.room()


def _sizes(training: Training, order: Order) -> tuple[int, int, int]:
    """Return the first layer's numbers, those of the second, and the records of a step."""
    network, known = training.network, len(order.fixed_set)
    assert isinstance(network, MLP)
    inputs = min(math.prod(network.record_shape) + 1, known)
    width, batches = network.hidden[0], training.batches
    records = known if batches is None else min(known, batches.size)
    return width * inputs, network.outputs * (width + 1), records
