"""What a batch would have released: the network's gradient, differentiable in the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from exhume.arrays import Array
from exhume.attacks.matching.continuation import Kinks
from exhume.attacks.matching.inner_steps import Plain, Slopes
from exhume.attacks.matching.nuisances import Nuisances
from exhume.training.objective import Objective


@dataclass(eq=False)
class Watch:
    """What the last forward pass saw: inputs' statistics of each normalisation, and features."""

    statistics: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    features: list[Tensor] = field(default_factory=list)

    def clear(self) -> None:
        """Forget the last pass."""
        self.statistics.clear()
        self.features.clear()


class Simulation(ABC):
    """The map from a batch to its release, on the adversary's own copy of the network.

    ``names`` are the parameters it gives; ``watch`` fills up with every simulation; ``kinks`` are
    the network's ReLUs; ``nuisances`` what defences drew, found along with the batch.
    """

    objective: Objective
    names: tuple[str, ...]
    watch: Watch
    kinks: Kinks
    nuisances: Nuisances

    def release(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return what ``x`` (n, *record shape) with ``y`` releases, by ``names``, with its graph.

        ``y`` holds class indices (n,), class shares (n, classes), or numbers (n,).
        """
        self.watch.clear()
        self.nuisances.rewind()
        return self.part(x, y)

    @abstractmethod
    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the same as part of a larger simulation."""


class Around(Simulation):
    """A simulation that makes something of what another one gives."""

    def __init__(self, inner: Simulation) -> None:
        self.objective, self.names, self.watch = inner.objective, inner.names, inner.watch
        self.kinks, self.nuisances = inner.kinks, inner.nuisances
        self.inner = inner


class OneGradient(Simulation):
    """What a step sends of one batch at θ: ∇θ of the mean loss, or what ``slopes`` make of it.

    The parameters are leaves of the module itself: a step costs what the bare double backward
    costs, and nothing is copied.
    """

    def __init__(
        self,
        objective: Objective,
        parameters: Mapping[str, Array],
        names: Sequence[str],
        slopes: Slopes | None = None,
        nuisances: Nuisances | None = None,
    ) -> None:
        self.objective, self.names, self.watch = objective, tuple(names), Watch()
        self.nuisances = nuisances or Nuisances(objective.dtype, objective.device)
        self._slopes = slopes or Plain(objective)
        loaded(objective, parameters)
        self.kinks = Kinks(objective.module)
        own = dict(objective.module.named_parameters())
        self._leaves = [own[name].requires_grad_(True) for name in self.names]

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the gradient of each named parameter."""
        return self._slopes.of(self.objective.module, self._leaves, x, y)


def loaded(objective: Objective, parameters: Mapping[str, Array]) -> None:
    """Write ``parameters`` into the objective's own module."""
    views = objective.unpack(objective.flat(parameters))
    with torch.no_grad():
        for name, values in objective.module.named_parameters():
            values.copy_(views[name]).requires_grad_(False)


def watch_statistics(simulation: Simulation) -> tuple[str, ...]:
    """Have every normalisation's input mean and variance a channel recorded; return their names."""
    found = []
    for name, layer in simulation.objective.module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.register_forward_pre_hook(_statistics_into(simulation.watch))
            found.append(name)
    return tuple(found)


def watch_features(simulation: Simulation, layer: str) -> None:
    """Have the input (n, d) of ``layer`` recorded."""
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
