"""How shadow models are made: by the simulator where training can be repeated, else one by one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import Blurring
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer
from exhume.protocol.seeds import stream
from exhume.shadows.order import Order, source_of, wrappers
from exhume.training.answers import Answers
from exhume.training.network import Training
from exhume.training.own_loop import Loop
from exhume.training.simulator import Simulator, simulator_for

CHUNK = 64
"""How many shadow models are trained, kept and shared between processes at a time."""
_LOOPS = 4
"""A loop of somebody's own gains nothing from company, and may take minutes."""


class Maker(ABC):
    """Trains the models of an order, chunk by chunk, and reads them as releases.

    ``source`` names what a chunk's content depends on besides its targets; empty if unknown.
    """

    source: str
    chunk: int = CHUNK
    """How many shadow models are trained, kept and shared between processes at a time."""
    errors: FloatArray | None = None
    """Relative errors on a sample of exactly trained models; None where training is exact."""

    @abstractmethod
    def base(self) -> FloatArray:
        """Return the base of all differences: one vector, float64."""

    @abstractmethod
    def rows(self, targets: Records, name: str) -> Array:
        """Train with each target in turn: one row each, float32, NaN where training diverged."""

    @abstractmethod
    def released(self, rows: Array, base: FloatArray, first: int) -> FloatArray:
        """Return rows as releases laid out in full; ``first`` is the first row's number."""


class Repeated(Maker):
    """Rows are differences to the training without a target; noise is added afterwards."""

    def __init__(self, order: Order) -> None:
        assert isinstance(order.training, Training)
        self._order, self.training = order, order.training
        self._blurs = [one for one in wrappers(order.mechanism) if isinstance(one, Blurring)]
        self.fixed_set = self.prepared(order.fixed_set)
        self.source = source_of(self.training, self.fixed_set)

    @cached_property
    def _simulator(self) -> Simulator:
        return simulator_for(self.training, self.fixed_set)

    def base(self) -> FloatArray:
        """Return the parameters after training without a target."""
        found = np.asarray(self._simulator.base, dtype=np.float64)
        if not np.isfinite(found).all():
            raise InputError(f"training diverged: {self.training.optimiser.describe()}")
        return found

    def rows(self, targets: Records, name: str) -> Array:
        """Return the differences that the targets make (c, P)."""
        x = self.prepared(targets).x
        y = self.training.responses(targets.labels)
        try:
            with np.errstate(all="ignore"):
                return self._simulator.differences(x, y).astype(np.float32)
        except InputError:
            if len(x) == 1:
                return np.full((1, len(self._simulator.base)), np.nan, dtype=np.float32)
            # The training of one target diverged; the others did not.
            return np.concatenate([self.rows(targets.take([i]), name) for i in range(len(x))])

    def released(self, rows: Array, base: FloatArray, first: int) -> FloatArray:
        """Return the release of each trained model."""
        theta = base + np.asarray(rows, dtype=np.float64)
        return self._published(self._order.mechanism, theta, first)

    def prepared(self, records: Records) -> Records:
        """Return records as the training sees them."""
        for blur in self._blurs:
            records = blur.prepared(records)
        return records

    def _published(self, mechanism: Mechanism, theta: FloatArray, first: int) -> FloatArray:
        match mechanism:
            case Training():
                return theta
            case Answers():
                values = self._published(mechanism.inner, theta, first)
                return _answers(self.training, mechanism, values)
            case Blurring():
                values = self._published(mechanism.inner, theta, first)
                if first < 0:  # the training without a target, free of noise
                    return values
                size = mechanism.deviation(len(self.fixed_set) + 1)
                return values + size * self._noise(values.shape, first, mechanism.describe())
            case _:
                raise AssertionError(f"{mechanism} is not repeatable")

    def _noise(self, shape: tuple[int, ...], first: int, role: str) -> FloatArray:
        seed = int(self._order.key[:12], 16)
        draws = [
            stream(seed, "shadow", role, first + i).standard_normal(shape[1:])
            for i in range(shape[0])
        ]
        return np.asarray(draws)


class Published(Maker):
    """Rows are releases of the mechanism itself, each with its own random stream."""

    def __init__(self, order: Order) -> None:
        self._order, self.source = order, order.source
        if isinstance(order.training, Loop):
            self.chunk = _LOOPS

    def base(self) -> FloatArray:
        """Return nothing: there is no base training."""
        return np.zeros(1)

    def rows(self, targets: Records, name: str) -> Array:
        """Publish with each target in turn."""
        order = self._order
        found = np.full((len(targets), order.layout.whole), np.nan, dtype=np.float32)
        for i in range(len(targets)):
            rng = stream(0, "shadow", name, i)
            data = order.fixed_set.with_record(targets.take([i]))
            try:
                release = order.mechanism.publish(data, rng=rng)
            except DivergedError:
                continue
            except InputError:
                # A loop of somebody's own that stops with an error says which.
                if isinstance(order.training, Loop):
                    raise
                continue
            reason = order.layout.mismatch(release)
            if reason is not None:
                raise InputError(reason)
            found[i] = order.layout.raw(release)
        return found

    def released(self, rows: Array, base: FloatArray, first: int) -> FloatArray:
        """Return the rows as they are."""
        return np.asarray(rows, dtype=np.float64)


def _answers(training: Training, asked: Answers, theta: FloatArray) -> FloatArray:
    """Return each model's answers to the queries, (k, queries × outputs)."""
    import torch

    objective = training.objective("float64")
    queries = objective.tensor(asked.queries)
    found = []
    with torch.no_grad():
        for one in theta:
            scores = objective.scores(objective.tensor(one), queries).cpu().numpy()
            found.append(scores if asked.answer is Answer.SCORES else training.means(scores))
    return np.asarray(found, dtype=np.float64).reshape(len(theta), -1)
