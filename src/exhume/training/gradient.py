"""What federated learning sends: a gradient, the change of local steps, a mean over clients."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from exhume.arrays import Array, frozen
from exhume.errors import DivergedError, InputError
from exhume.knowledge import Knowledge
from exhume.mechanism import Mechanism
from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.records import Records
from exhume.release import Gradient, Update
from exhume.training.batches import Batches, Index
from exhume.training.model import Label
from exhume.training.network import Training
from exhume.training.optimisers import SGD

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.training.objective import Objective

Named: TypeAlias = Mapping[str, Array] | tuple[tuple[str, Array], ...]


class Step(Mechanism):
    """One gradient at parameters that the server knows: plain, or with a defence inside.

    Local steps take several of them, each at where the last one led.
    """

    @abstractmethod
    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return what is sent (P,) of the (weighted) mean loss's gradient on ``data``."""

    def plain(self) -> GradientStep:
        """Return the step without any defence in it."""
        found = gradient_step(self)
        assert found is not None
        return found

    def publish(self, data: Records, *, rng: np.random.Generator) -> Gradient:
        """Return the gradient on ``data``, all of it one batch."""
        objective = self.plain().objective()
        theta = self.plain().theta(objective, rng)
        return Gradient(objective.named(self.gradient(objective, theta, data, rng)), len(data))

    @abstractmethod
    def describe(self) -> str:
        """Say in a few words what is sent, for the report."""


@dataclass(frozen=True, eq=False)
class GradientStep(Step):
    """Release the gradient of the mean loss of the whole batch, at parameters the server knows.

    The parameters are drawn from ``initial``, or given by name as ``state`` (a model already
    trained). ``buffers`` are what a network keeps beside its parameters (running statistics of
    batch normalisation); left out, they are the network's own at the start. ``batch_norm`` says
    whether normalisation uses the batch's own statistics ("train") or the running ones ("eval").
    Mappings are kept as pairs, so that the mechanism can be sent to other processes.
    """

    network: Network
    classes: tuple[Label, ...] | None
    initial: Initialisation = field(default_factory=Initialisation)
    state: Named | None = field(default=None, repr=False)
    buffers: Named | None = field(default=None, repr=False)
    precision: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    batch_norm: Literal["train", "eval"] = "train"

    def __post_init__(self) -> None:
        wanted = 1 if self.classes is None else len(self.classes)
        if self.network.outputs != wanted:
            raise InputError(
                f"the network has {self.network.outputs} outputs, but there are {wanted} classes"
                if self.classes is not None
                else f"a regression has one output, the network {self.network.outputs}"
            )
        for name in ("state", "buffers"):
            given = getattr(self, name)
            if given is not None:
                pairs = given.items() if isinstance(given, Mapping) else given
                object.__setattr__(self, name, tuple((str(n), frozen(a)) for n, a in pairs))

    @property
    def known(self) -> bool:
        """Whether everybody who knows the mechanism knows the parameters."""
        return self.state is not None or self.initial.known

    def parameters(self) -> dict[str, Array]:
        """Return the public parameters by name; InputError where they are drawn in secret."""
        if not self.known:
            raise InputError("the parameters are drawn in secret: give the initialisation a seed")
        return self._start(np.random.default_rng(0))

    def objective(self, precision: str | None = None) -> Objective:
        """Return the loss whose gradient is taken, at a flat vector of parameters."""
        import torch

        from exhume.training.objective import Loss, Objective

        return Objective(
            self.network,
            Loss.SQUARED_ERROR if self.classes is None else Loss.CROSS_ENTROPY,
            dtype=getattr(torch, precision or self.precision),
            device=self.device,
            buffers=None if self.buffers is None else dict(self.buffers),
            batch_norm=self.batch_norm,
        )

    def responses(self, labels: Array) -> Array:
        """Return labels as class indices, or as numbers for a regression."""
        return Training(self.network, self.classes).responses(labels)

    def theta(self, objective: Objective, rng: np.random.Generator) -> torch.Tensor:
        """Return the parameters θ (P,); ``rng`` is used only where they are drawn in secret."""
        return objective.flat(self._start(rng))

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return ∇θ (P,) of the (weighted) mean loss of ``data``."""
        if not len(data):
            raise InputError("a gradient needs at least one record, got an empty batch")
        weight = None if data.weight is None else objective.tensor(data.weight)
        x, y = objective.tensor(data.x), objective.responses(self.responses(data.labels))
        return objective.gradient(theta, x, y, weight=weight, count=len(data))

    def describe(self) -> str:
        """Return for example ``one gradient of a 784-10-10 network (elu)``."""
        return f"one gradient of {self.network.describe()}, {self._where()}"

    def _where(self) -> str:
        if self.state is not None:
            return "at given parameters"
        return "at its initialisation" if self.known else "at an initialisation of its own"

    def _start(self, rng: np.random.Generator) -> dict[str, Array]:
        if self.state is not None:
            return dict(self.state)
        return dict(self.initial.draw(self.network, rng))


@dataclass(frozen=True, eq=False)
class LocalSteps(Mechanism):
    """Release the change of the parameters over several steps of descent on one client's records.

    ``client`` says which network, and where it starts. ``batches`` None takes every step on all
    records; otherwise their order is public where it has a seed. The ``batch_size`` of the release
    is the number of the client's records (FedAvg, McMahan et al. 2017).
    """

    client: Step
    optimiser: SGD
    epochs: int = 1
    batches: Batches | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs must be at least 1, got {self.epochs}")

    @property
    def order_known(self) -> bool:
        """Whether everybody who knows the mechanism knows which records a step sees."""
        return self.batches is None or self.batches.known

    def steps(self, count: int, rng: np.random.Generator) -> Iterator[Index]:
        """Yield each step's records out of ``count``."""
        if self.batches is None:
            for _ in range(self.epochs):
                yield np.arange(count)
        else:
            yield from self.batches.steps(count, self.epochs, rng)

    def publish(self, data: Records, *, rng: np.random.Generator) -> Update:
        """Take the steps on ``data`` and return where they led, less where they began."""
        client = self.client.plain()
        objective = client.objective()
        start = theta = client.theta(objective, rng)
        state, steps = self.optimiser.start(theta), 0
        for chosen in self.steps(len(data), rng):
            if len(chosen):
                gradient = self.client.gradient(objective, theta, data.take(chosen), rng)
            else:
                gradient = theta.new_zeros(theta.shape)
            theta, state = self.optimiser.step(theta, gradient, state)
            steps += 1
        if not bool(theta.isfinite().all()):
            raise DivergedError(
                f"the local steps diverged to NaN or infinity: {self.optimiser.describe()}; "
                "a smaller learning rate would be right"
            )
        return Update(objective.named(theta - start), len(data), steps)

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return a step's event for every step that a record takes part in: one an epoch."""
        import dp_accounting

        if self.batches is None or not self.batches.poisson:
            one = self.client.event(records if self.batches is None else self.batches.size)
            return _composed(one, self.epochs)
        one = self.client.event(self.batches.size)
        if not isinstance(one, dp_accounting.NonPrivateDpEvent):
            share = min(1.0, self.batches.size / records)
            one = dp_accounting.PoissonSampledDpEvent(share, one)
        return _composed(one, self.epochs * self.batches.steps_an_epoch(records))

    def describe(self) -> str:
        """Return for example ``5 local epochs of a 784-10-10 network (elu), …``."""
        network = self.client.plain().network
        parts = [f"{self.epochs} local epochs of {network.describe()}", self.optimiser.describe()]
        if self.batches is not None:
            order = "a known order" if self.batches.known else "an order of its own"
            parts.append(f"batches of {self.batches.size} in {order}")
        return ", ".join(parts)


@dataclass(frozen=True, eq=False)
class Aggregate(Mechanism):
    """Release only the mean of ``clients`` clients' gradients or updates: secure aggregation.

    The records are dealt to the clients in order, in parts that differ by one record at most; a
    client counts by the number of its records (McMahan et al. 2017).
    """

    client: Mechanism
    clients: int

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise InputError(f"clients must be at least 1, got {self.clients}")

    def publish(self, data: Records, *, rng: np.random.Generator) -> Gradient | Update:
        """Publish every client's own release, and return their mean alone."""
        if len(data) < self.clients:
            raise InputError(f"{self.clients} clients need a record each, got {len(data)} records")
        parts = np.array_split(np.arange(len(data)), self.clients)
        found = [self.client.publish(data.take(part), rng=rng) for part in parts]
        if not all(isinstance(one, Gradient | Update) for one in found):
            raise InputError("clients send gradients or updates, and nothing else is aggregated")
        shares = [len(part) / len(data) for part in parts]
        each = [dict(one.arrays()) for one in found]
        mean: dict[str, Array] = {
            name: np.sum([s * one[name] for s, one in zip(shares, each, strict=True)], axis=0)
            for name in each[0]
        }
        if isinstance(found[0], Update):
            return Update(mean, len(data), found[0].steps)
        return Gradient(mean, len(data))

    def describe(self) -> str:
        """Return for example ``the mean over 4 clients of one gradient of …``."""
        return f"the mean over {self.clients} clients of {described(self.client)}"

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return a client's own: whoever hears the mean hears no more than each client says."""
        return self.client.event(records // self.clients)

    def sensitivity(self, records: int) -> float | None:
        """Return what one record moves its client's release by, times that client's share."""
        most = -(-records // self.clients)
        sizes = {most, max(1, records // self.clients)}
        moved = [(size, self.client.sensitivity(size)) for size in sizes]
        if any(own is None for _, own in moved):
            return None
        return max(size / records * own for size, own in moved if own is not None)


def described(mechanism: Mechanism) -> str:
    """Say what is sent, defences around it included."""
    from exhume.defences import Defence

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


def public_parameters(knowledge: Knowledge) -> Mapping[str, Array] | None:
    """Return the parameters at which a gradient was taken, as far as the adversary knows them."""
    if knowledge.initial is not None:
        return knowledge.initial
    step = gradient_step(knowledge.training)
    return step.parameters() if step is not None and step.known else None


def gradient_step(mechanism: Mechanism | None) -> GradientStep | None:
    """Return the gradient step under defences, clients and local steps, or None."""
    from exhume.defences import undefended

    while mechanism is not None:
        mechanism = undefended(mechanism)
        if not isinstance(mechanism, LocalSteps | Aggregate):
            break
        mechanism = mechanism.client
    return mechanism if isinstance(mechanism, GradientStep) else None
