"""Releases of several local steps and of several clients, simulated through their own steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from exhume.arrays import Array
from exhume.attacks.matching.continuation import Kinks
from exhume.attacks.matching.simulation import OneGradient, Simulation, Watch, loaded, loss
from exhume.defences import undefended
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.training.gradient import Aggregate, GradientStep, LocalSteps
from exhume.training.objective import Objective


class Unrolled(Simulation):
    """The change of the parameters over a client's local steps, differentiable in its records.

    Where the order of mini-batches is not known, every step is taken on all records: to first
    order the sum of an epoch's steps is the same, and no record is favoured.
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
        loaded(objective, parameters)
        self.kinks = Kinks(objective.module)
        self._start = {n: p.detach() for n, p in objective.module.named_parameters()}

    def release(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Take the steps and return where they led, less where they began."""
        self.watch.clear()
        theta = {n: p.requires_grad_(True) for n, p in self._start.items()}
        optimiser = self._local.optimiser
        velocity = {n: torch.zeros_like(p) for n, p in theta.items()}
        for chosen in self._order(len(x)):
            gradient = self._gradient(theta, x[chosen], y[chosen])
            for name, slope in gradient.items():
                slope = slope + optimiser.weight_decay * theta[name]
                velocity[name] = optimiser.momentum * velocity[name] + slope
                theta[name] = theta[name] - optimiser.learning_rate * velocity[name]
        return tuple(theta[name] - self._start[name] for name in self.names)

    def _gradient(self, theta: dict[str, Tensor], x: Tensor, y: Tensor) -> dict[str, Tensor]:
        if not len(x):
            return {name: torch.zeros_like(p) for name, p in theta.items()}
        scores = functional_call(self.objective.module, theta, (x,))
        mean = loss(self.objective, scores, y)
        slopes = torch.autograd.grad(
            mean, list(theta.values()), create_graph=True, materialize_grads=True
        )
        return dict(zip(theta, slopes, strict=True))

    def _order(self, count: int) -> list[Tensor]:
        local = self._local
        device = self.objective.device
        if local.order_known:
            steps = local.steps(count, np.random.default_rng(0))
            return [torch.as_tensor(chosen, device=device) for chosen in steps]
        assert local.batches is not None
        number = local.epochs * local.batches.steps_an_epoch(count)
        return [torch.arange(count, device=device)] * number


class Clients(Simulation):
    """The mean over clients, each of which releases on its own part of the records."""

    def __init__(self, inner: Simulation, clients: int) -> None:
        self.objective, self.names, self.watch = inner.objective, inner.names, inner.watch
        self.kinks = inner.kinks
        self._inner, self._clients = inner, clients

    def release(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the mean by numbers of records."""
        total: list[Tensor] | None = None
        for part in np.array_split(np.arange(len(x)), self._clients):
            chosen = torch.as_tensor(part, device=x.device)
            share = len(part) / len(x)
            own = [share * g for g in self._inner.release(x[chosen], y[chosen])]
            total = own if total is None else [t + g for t, g in zip(total, own, strict=True)]
        assert total is not None
        return tuple(total)


def simulation_of(
    mechanism: Mechanism,
    objective: Objective,
    parameters: Mapping[str, Array],
    names: Sequence[str],
) -> Simulation:
    """Return the simulation of a mechanism, defences around it left out."""
    match undefended(mechanism):
        case GradientStep():
            return OneGradient(objective, parameters, names)
        case LocalSteps() as local:
            return Unrolled(objective, parameters, names, local)
        case Aggregate(client, clients):
            inner = simulation_of(client, objective, parameters, names)
            plain = isinstance(client, GradientStep) and not _normalised(objective)
            # Without batch statistics the mean over clients is the gradient of all records.
            return inner if plain or clients == 1 else Clients(inner, clients)
        case other:
            raise InputError(f"what {type(other).__name__} releases can't be matched")


def _normalised(objective: Objective) -> bool:
    module = objective.module
    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    return bool(norms) and module.training
