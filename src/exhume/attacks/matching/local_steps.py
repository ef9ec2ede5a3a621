"""Releases of several local steps and of several clients, simulated through their own steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from exhume.arrays import Array
from exhume.attacks.matching.continuation import Kinks
from exhume.attacks.matching.inner_steps import slopes_of
from exhume.attacks.matching.nuisances import Nuisances
from exhume.attacks.matching.simulation import Around, Simulation, Watch, loaded
from exhume.training.gradient import LocalSteps
from exhume.training.objective import Objective


class Unrolled(Simulation):
    """The change of the parameters over a client's local steps, differentiable in its records.

    Where the order of mini-batches is not known, every step is taken on all records: to first
    order the sum of an epoch's steps is the same, and no record is favoured. Defences inside a step
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
        self.nuisances = Nuisances(objective.dtype, objective.device)
        self._slopes = slopes_of(local.client, objective, self.nuisances)
        loaded(objective, parameters)
        self.kinks = Kinks(objective.module)
        self._start = {n: p.detach() for n, p in objective.module.named_parameters()}

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Take the steps and return where they led, less where they began."""
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

        def forward(records: Tensor) -> Tensor:
            scores: Tensor = functional_call(self.objective.module, theta, (records,))
            return scores

        slopes = self._slopes.of(forward, list(theta.values()), x, y)
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


class Clients(Around):
    """The mean over clients, each of which releases on its own part of the records."""

    def __init__(self, inner: Simulation, clients: int) -> None:
        super().__init__(inner)
        self._clients = clients

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the mean by numbers of records."""
        total: list[Tensor] | None = None
        for part in np.array_split(np.arange(len(x)), self._clients):
            chosen = torch.as_tensor(part, device=x.device)
            share = len(part) / len(x)
            own = [share * g for g in self.inner.part(x[chosen], y[chosen])]
            total = own if total is None else [t + g for t, g in zip(total, own, strict=True)]
        assert total is not None
        return tuple(total)
