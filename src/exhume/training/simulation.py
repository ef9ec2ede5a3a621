"""The release of a batch, differentiable in the batch.

``simulation_of`` builds the simulation of a mechanism layer by layer: a gradient, several local
steps, several clients, and the effect of each defence on the release inside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from exhume.derivatives.objective import Loss, Objective
from exhume.derivatives.smoothed_relu import Kinks
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import Defence, SimulatedInner, defended
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism, layers
from exhume.training.gradient import Forward, GradientStep, SimulatedStep, Step
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.unknown_draws import UnknownDraws


@dataclass(eq=False)
class Watch:
    """Records of the last forward pass: input statistics of each normalisation, and features."""

    statistics: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)

    def clear(self) -> None:
        """Delete the records of the last pass."""
        self.statistics.clear()
        self.features.clear()


class Simulation(ABC):
    """The map from a batch to its release, on the adversary's own copy of the network.

    ``names`` are the simulated parameters. Every simulation fills ``watch``. ``kinks`` are the
    network's ReLUs. ``nuisances`` are random draws of defences, fitted together with the batch.
    """

    objective: Objective
    names: tuple[str, ...]
    watch: Watch
    kinks: Kinks
    nuisances: UnknownDraws

    def release(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the release of ``x`` (n, *record shape) with ``y``, by ``names``, with its graph.

        ``y`` holds class indices (n,), class shares (n, classes), or numbers (n,).
        """
        self.watch.clear()
        self.nuisances.rewind()
        return self.part(x, y)

    @abstractmethod
    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the same as part of a larger simulation."""


class Around(Simulation):
    """A simulation that transforms the result of another one."""

    def __init__(self, inner: Simulation) -> None:
        self.objective, self.names, self.watch = inner.objective, inner.names, inner.watch
        self.kinks, self.nuisances = inner.kinks, inner.nuisances
        self.inner = inner


class OneGradient(Simulation):
    """The release of one step for one batch at θ: ∇θ of the mean loss, or the result of ``step``.

    The parameters are leaves of the module itself: a step costs what the bare double backward
    costs, and nothing is copied.
    """

    def __init__(
        self,
        objective: Objective,
        parameters: Mapping[str, Array],
        names: Sequence[str],
        step: SimulatedStep | None = None,
        nuisances: UnknownDraws | None = None,
    ) -> None:
        self.objective, self.names, self.watch = objective, tuple(names), Watch()
        self.nuisances = nuisances or UnknownDraws(objective.dtype, objective.device)
        self._step = step or plain_step(objective)
        loaded(objective, parameters)
        self.kinks = Kinks(objective.module)
        own = dict(objective.module.named_parameters())
        self._leaves = [own[name].requires_grad_(True) for name in self.names]

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the gradient of each named parameter."""
        return self._step(self.objective.module, self._leaves, x, y)


def plain_step(objective: Objective) -> SimulatedStep:
    """Return ∇θ of the mean loss."""

    def step(
        forward: Forward, leaves: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
        mean = mean_loss(objective, forward(x), y)
        return torch.autograd.grad(mean, list(leaves), create_graph=True, materialize_grads=True)

    return step


def mean_loss(objective: Objective, scores: Tensor, y: Tensor) -> Tensor:
    """Return the mean loss of a batch from its scores."""
    if objective.loss is Loss.CROSS_ENTROPY:
        return nn.functional.cross_entropy(scores, y)
    return 0.5 * (scores - y.reshape(scores.shape)).square().sum(dim=1).mean()


def loaded(objective: Objective, parameters: Mapping[str, Array]) -> None:
    """Write ``parameters`` into the objective's module."""
    views = objective.unpack(objective.flat(parameters))
    with torch.no_grad():
        for name, values in objective.module.named_parameters():
            values.copy_(views[name]).requires_grad_(False)


def watch_statistics(simulation: Simulation) -> tuple[str, ...]:
    """Record every normalisation's input mean and variance per channel; return their names."""
    found = []
    for name, layer in simulation.objective.module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.register_forward_pre_hook(_statistics_into(simulation.watch))
            found.append(name)
    return tuple(found)


def watch_features(simulation: Simulation, layer: str) -> None:
    """Record the input (n, d) of ``layer``."""
    watch = simulation.watch

    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        watch.features.append(inputs[0])

    simulation.objective.module.get_submodule(layer).register_forward_pre_hook(hook)


def _statistics_into(watch: Watch) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0]
        axes = [0, *range(2, x.ndim)]
        variance, mean = torch.var_mean(x, dim=axes, correction=0)
        watch.statistics.append((mean, variance))

    return hook


class UnrolledSteps(Simulation):
    """The change of the parameters over a client's local steps, differentiable in its records.

    If the order of mini-batches is not known, every step uses all records: to first order the sum
    of an epoch's steps is the same, and all records are treated equally. Defences inside a step
    are simulated in every step.
    """

    def __init__(
        self,
        objective: Objective,
        parameters: Mapping[str, Array],
        names: Sequence[str],
        local: LocalSteps,
    ) -> None:
        self.objective, self.names, self.watch = objective, tuple(names), Watch()
        self._local = local
        self.nuisances = UnknownDraws(objective.dtype, objective.device)
        self._step = local.client.simulated_step(objective, self.nuisances)
        loaded(objective, parameters)
        self.kinks = Kinks(objective.module)
        self._start = {n: p.detach() for n, p in objective.module.named_parameters()}

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Take the steps and return the change of the parameters."""
        theta = {n: p.requires_grad_(True) for n, p in self._start.items()}
        optimiser = self._local.optimiser
        state = {n: optimiser.start(p) for n, p in theta.items()}
        for chosen in self._local.assumed_steps(len(x)):
            gradient = self._gradient(theta, x[chosen], y[chosen])
            for name, slope in gradient.items():
                theta[name], state[name] = optimiser.step(theta[name], slope, state[name])
        return tuple(theta[name] - self._start[name] for name in self.names)

    def _gradient(self, theta: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
        if not len(x):
            return {name: torch.zeros_like(p) for name, p in theta.items()}

        def forward(records: Tensor) -> Tensor:
            scores: Tensor = functional_call(self.objective.module, theta, (records,))
            return scores

        slopes = self._step(forward, list(theta.values()), x, y)
        return dict(zip(theta, slopes, strict=True))


class Clients(Around):
    """The mean over clients, each of which releases on its own part of the records."""

    def __init__(self, inner: Simulation, clients: int) -> None:
        super().__init__(inner)
        self._clients = clients

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the mean weighted by numbers of records."""
        total: list[Tensor] | None = None
        for part in np.array_split(np.arange(len(x)), self._clients):
            chosen = torch.as_tensor(part, device=x.device)
            share = len(part) / len(x)
            own = [share * g for g in self.inner.part(x[chosen], y[chosen])]
            total = own if total is None else [t + g for t, g in zip(total, own, strict=True)]
        assert total is not None
        return tuple(total)


class Protected(Around):
    """The effect of a defence on the release inside it.

    ``sent`` maps parameters to a mask of sent entries (True), or to None if zeros do not show it.
    """

    def __init__(
        self, inner: Simulation, defence: Defence, sent: Mapping[str, Array] | None
    ) -> None:
        super().__init__(inner)
        device = inner.objective.device
        masks = None
        if sent is not None:
            masks = tuple(
                torch.tensor(sent[n], device=device) if n in sent else None for n in self.names
            )
        shown = SimulatedInner(inner.part, masks, inner.nuisances.expected)
        self._release = defence.simulated_release(shown)

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the defended release."""
        return self._release(x, y)


class Selected(Around):
    """Some parameters of a release whose defence uses all of them."""

    def __init__(self, inner: Simulation, names: Sequence[str]) -> None:
        super().__init__(inner)
        self._index = [inner.names.index(name) for name in names]
        self.names = tuple(names)

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return those parameters."""
        values = self.inner.part(x, y)
        return tuple(values[index] for index in self._index)


def simulation_of(
    mechanism: Mechanism,
    objective: Objective,
    parameters: Mapping[str, Array],
    arrays: Mapping[str, FloatArray],
) -> Simulation:
    """Return the simulation of ``mechanism`` with all its defences; noise is omitted.

    ``arrays`` are its release. If withheld entries show as zeros, the zeros tell which entries
    these are.
    """
    names, stack = tuple(arrays), layers(mechanism)
    if not defended(mechanism):
        return _built(stack, objective, parameters, names, None)
    every = tuple(objective.shapes)
    sent = {n: a != 0.0 for n, a in arrays.items()}
    if mechanism.keeps_largest:
        # The withheld entries are visible, and are known not to exceed those that were sent.
        stack = stack[1:]
    found = _built(stack, objective, parameters, every, sent)
    return found if names == every else Selected(found, names)


def _built(
    stack: Sequence[Mechanism],
    objective: Objective,
    parameters: Mapping[str, Array],
    names: tuple[str, ...],
    sent: Mapping[str, Array] | None,
) -> Simulation:
    """Build from the outside in; ``sent`` is the visible pattern of sent entries at this depth."""
    outer, *rest = stack
    if not outer.shows_zeros:
        sent = None
    match outer:
        case Step():
            nuisances = UnknownDraws(objective.dtype, objective.device)
            step = outer.simulated_step(objective, nuisances)
            return OneGradient(objective, parameters, names, step, nuisances)
        case LocalSteps():
            return UnrolledSteps(objective, parameters, names, outer)
        case Aggregate(client, clients):
            inner = _built(rest, objective, parameters, names, None)
            plain = isinstance(client, GradientStep) and not _normalised(objective)
            # Without batch statistics the mean over clients is the gradient of all records.
            return inner if plain or clients == 1 else Clients(inner, clients)
        case Defence():
            return Protected(_built(rest, objective, parameters, names, sent), outer, sent)
    raise InputError(f"what {type(outer).__name__} releases can't be matched")


def _normalised(objective: Objective) -> bool:
    layers = objective.module.modules()
    norms = [m for m in layers if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    return bool(norms) and objective.batch_statistics
