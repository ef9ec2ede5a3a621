"""The release of a client after several local steps, and of several clients together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Update
from exhume.training.batches import Batches, Index
from exhume.training.network import TrainingStep
from exhume.training.optimisers import SGD

if TYPE_CHECKING:
    import dp_accounting

    from exhume.derivatives.objective import Objective

from exhume.protocol.defence import Defence
from exhume.training.gradient import Step


@dataclass(frozen=True, eq=False)
class LocalSteps(Mechanism):
    """Release the change of the parameters over several steps of descent on one client's records.

    ``client`` is the network and its start. With ``batches=None`` every step uses all records;
    otherwise the order of batches is public if it has a seed. The ``batch_size`` of the release is
    the number of the client's records (FedAvg, McMahan et al. 2017).
    """

    client: Step
    optimiser: SGD
    epochs: int = 1
    batches: Batches | None = None

    @property
    def wrapped(self) -> Mechanism:
        """The mechanism of a client."""
        return self.client

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs must be at least 1, got {self.epochs}")

    @property
    def order_known(self) -> bool:
        """Whether everybody who knows the mechanism knows the records of each step."""
        return self.batches is None or self.batches.known

    def steps(self, count: int, rng: np.random.Generator) -> Iterator[Index]:
        """Yield each step's records out of ``count``."""
        if self.batches is None:
            for _ in range(self.epochs):
                yield np.arange(count)
        else:
            yield from self.batches.steps(count, self.epochs, rng)

    def assumed_steps(self, count: int) -> list[Index]:
        """Return each step's records as the adversary takes them; all, where it lacks the order."""
        if self.order_known:
            return list(self.steps(count, np.random.default_rng(0)))
        assert self.batches is not None
        return [np.arange(count)] * (self.epochs * self.batches.steps_an_epoch(count))

    def publish(self, data: Records, *, rng: np.random.Generator) -> Update:
        """Take the steps on ``data`` and return the change of the parameters."""
        objective = self.client.plain().objective()
        walked = self.walk(objective, data, rng=rng)
        start, steps = next(walked).theta, 0
        end = start
        for steps, step in enumerate(walked, start=1):  # noqa: B007
            end = step.theta
        return Update(objective.named(end - start), len(data), steps)

    def walk(
        self, objective: Objective, data: Records, *, rng: np.random.Generator
    ) -> Iterator[TrainingStep]:
        """Yield every step before it is taken, and at the end the final parameters."""
        theta = self.client.plain().theta(objective, rng)
        state = self.optimiser.start(theta)
        for chosen in self.steps(len(data), rng):
            if len(chosen):
                gradient = self.client.gradient(objective, theta, data.take(chosen), rng)
            else:
                gradient = theta.new_zeros(theta.shape)
            yield TrainingStep(theta, gradient, chosen)
            theta, state = self.optimiser.step(theta, gradient, state)
        if not bool(theta.isfinite().all()):
            raise DivergedError(
                f"the local steps diverged to NaN or infinity: {self.optimiser.describe()}; "
                "use a smaller learning rate"
            )
        yield TrainingStep(theta)

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return a step's event for every step with the record: one per epoch."""
        import dp_accounting

        if self.batches is None or not self.batches.poisson:
            one = self.client.event(records if self.batches is None else self.batches.size)
            return _composed(one, self.epochs)
        one = self.client.event(self.batches.size)
        if not self.batches.known and not isinstance(one, dp_accounting.NonPrivateDpEvent):
            share = min(1.0, self.batches.size / records)
            one = dp_accounting.PoissonSampledDpEvent(share, one)
        return _composed(one, self.epochs * self.batches.steps_an_epoch(records))

    @property
    def hides_draws(self) -> bool:
        """Whether the order of the mini-batches is not known."""
        return not self.order_known

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return the noise of all steps, to first order: it adds up, and momentum repeats it."""
        size = records if self.batches is None else min(self.batches.size, records)
        steps = sum(1 for _ in self.steps(records, np.random.default_rng(0)))
        factor = self.optimiser.learning_rate / (1.0 - self.optimiser.momentum)
        one = self.client.deviations(arrays, size)
        return {n: factor * math.sqrt(steps) * s for n, s in one.items()}

    def in_one_round(self, inner: Mechanism) -> LocalSteps:
        """Return the same steps of another client."""
        return replace(self, client=cast(Step, inner))

    def describe(self) -> str:
        """Return for example ``5 local epochs of a 784-10-10 network (elu), …``."""
        network = self.client.plain().network
        parts = [f"{self.epochs} local epochs of {network.describe()}", self.optimiser.describe()]
        if self.batches is not None:
            order = "a known order" if self.batches.known else "a secret order"
            parts.append(f"batches of {self.batches.size} in {order}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Aggregate(Mechanism):
    """Release only the mean of ``clients`` clients' gradients or updates: secure aggregation.

    The records are dealt to the clients in order, in parts that differ by at most one record. A
    client is weighted by the number of its records (McMahan et al. 2017).
    """

    client: Mechanism
    clients: int

    @property
    def wrapped(self) -> Mechanism:
        """The mechanism of a client."""
        return self.client

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise InputError(f"clients must be at least 1, got {self.clients}")

    def publish(self, data: Records, *, rng: np.random.Generator) -> Gradient | Update:
        """Publish every client's release, and return only their mean."""
        if len(data) < self.clients:
            raise InputError(f"{self.clients} clients need a record each, got {len(data)} records")
        parts = np.array_split(np.arange(len(data)), self.clients)
        found = [self.client.publish(data.take(part), rng=rng) for part in parts]
        if not all(isinstance(one, Gradient | Update) for one in found):
            raise InputError("only gradients and updates can be aggregated")
        shares = [len(part) / len(data) for part in parts]
        each = [dict(one.arrays()) for one in found]
        mean: dict[str, Array] = {
            name: np.sum([s * one[name] for s, one in zip(shares, each, strict=True)], axis=0)
            for name in each[0]
        }
        if isinstance(found[0], Update):
            return Update(mean, len(data), found[0].steps)
        return Gradient(mean, len(data))

    def deviations(self, arrays: Mapping[str, FloatArray], records: int) -> dict[str, float]:
        """Return a client's own, averaged over the clients."""
        one = self.client.deviations(arrays, max(1, records // self.clients))
        return {n: s / math.sqrt(self.clients) for n, s in one.items()}

    def in_one_round(self, inner: Mechanism) -> Aggregate:
        """Return the mean over clients that do ``inner``."""
        return replace(self, client=inner)

    def describe(self) -> str:
        """Return for example ``the mean over 4 clients of one gradient of …``."""
        return f"the mean over {self.clients} clients of {described(self.client)}"

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return a client's own event: the mean reveals no more than all clients' releases."""
        return self.client.event(records // self.clients)

    def sensitivity(self, records: int) -> float | None:
        """Return a client's sensitivity times that client's share."""
        most = -(-records // self.clients)
        sizes = {most, max(1, records // self.clients)}
        moved = [(size, self.client.sensitivity(size)) for size in sizes]
        if any(own is None for _, own in moved):
            return None
        return max(size / records * own for size, own in moved if own is not None)


def described(mechanism: Mechanism) -> str:
    """Return a description of what is sent, including defences around it."""
    if isinstance(mechanism, Defence):
        return f"{described(mechanism.inner)}, {mechanism.describe()}"
    if isinstance(mechanism, Step | LocalSteps | Aggregate):
        return mechanism.describe()
    return f"what {type(mechanism).__name__} publishes"


def _composed(event: dp_accounting.DpEvent, times: int) -> dp_accounting.DpEvent:
    import dp_accounting

    if times == 1 or isinstance(event, dp_accounting.NonPrivateDpEvent):
        return event
    return dp_accounting.SelfComposedDpEvent(event, times)
