"""A gradient with a defence inside it, differentiable in the records that it is taken on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from exhume.arrays import FloatArray
from exhume.attacks.matching.nuisances import Nuisances
from exhume.defences import DPSGD, ActivationDropout, MixUp, RecordClipping
from exhume.defences.inside import dropped_layers
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.training.gradient import GradientStep
from exhume.training.objective import Loss, Objective

Forward: TypeAlias = Callable[[Tensor], Tensor]
"""From records to scores, at the parameters that the gradient is taken at."""


class Slopes(ABC):
    """What a step sends, by parameter."""

    @abstractmethod
    def of(
        self, forward: Forward, leaves: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradient of each of ``leaves`` on the batch, with its graph."""


@dataclass(frozen=True, eq=False)
class Plain(Slopes):
    """∇θ of the mean loss."""

    objective: Objective

    def of(
        self, forward: Forward, leaves: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradient as it is."""
        mean = loss(self.objective, forward(x), y)
        return torch.autograd.grad(mean, list(leaves), create_graph=True, materialize_grads=True)


@dataclass(frozen=True, eq=False)
class RecordsClipped(Slopes):
    """The mean of the records' own gradients, each scaled down to ``norm``: one pass a record."""

    inner: Slopes
    norm: float

    def of(
        self, forward: Forward, leaves: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the mean; ``leaves`` must be all parameters, since all count in the norm."""
        total = [torch.zeros_like(leaf) for leaf in leaves]
        for index in range(len(x)):
            one = slice(index, index + 1)
            own = self.inner.of(forward, leaves, x[one], y[one])
            square = torch.stack([g.square().sum() for g in own]).sum()
            factor = (self.norm / square.clamp_min(1e-30).sqrt()).clamp_max(1.0) / len(x)
            total = [t + factor * g for t, g in zip(total, own, strict=True)]
        return tuple(total)


@dataclass(frozen=True, eq=False)
class Mixed(Slopes):
    """The gradient on λx + (1−λ)x′, x′ the next record; λ is one of the ``nuisances``."""

    inner: Slopes
    objective: Objective
    alpha: float
    nuisances: Nuisances

    def of(
        self, forward: Forward, leaves: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradient on the mixtures, labels in the same shares."""
        share = self.nuisances.share(lambda rng: np.asarray(rng.beta(self.alpha, self.alpha)))
        mixed = share * x + (1.0 - share) * x.roll(-1, dims=0)
        if isinstance(self.inner, Plain) and self.objective.loss is Loss.CROSS_ENTROPY:
            # The loss is linear in the labels: one pass instead of two.
            if not y.is_floating_point():
                y = nn.functional.one_hot(y, self.objective.network.outputs).to(x.dtype)
            return self.inner.of(forward, leaves, mixed, share * y + (1.0 - share) * y.roll(-1, 0))
        own = self.inner.of(forward, leaves, mixed, y)
        other = self.inner.of(forward, leaves, mixed, y.roll(-1, dims=0))
        return tuple(share * a + (1.0 - share) * b for a, b in zip(own, other, strict=True))


class Dropped(Slopes):
    """The gradient with inputs of fully connected layers dropped; masks are ``nuisances``.

    A mask is a share of each input of each record, and starts at what is kept on average.
    """

    def __init__(
        self, inner: Slopes, objective: Objective, rate: float, nuisances: Nuisances
    ) -> None:
        self._inner, self._rate, self._nuisances = inner, rate, nuisances
        module = objective.module
        names = dropped_layers(module, objective.network.record_shape)
        self._layers = [module.get_submodule(name) for name in names]

    def of(
        self, forward: Forward, leaves: Sequence[Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gradient with these inputs as they are kept."""
        handles = [layer.register_forward_pre_hook(self._kept) for layer in self._layers]
        try:
            return self._inner.of(forward, leaves, x, y)
        finally:
            for handle in handles:
                handle.remove()

    def _kept(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values, kept = inputs[0], 1.0 - self._rate
        spread = min(kept, self._rate)

        def draw(rng: np.random.Generator) -> FloatArray:
            return kept + 0.1 * spread * rng.standard_normal(tuple(values.shape))

        return values * self._nuisances.share(draw) / kept, *inputs[1:]


def slopes_of(step: Mechanism, objective: Objective, nuisances: Nuisances) -> Slopes:
    """Return the simulation of a step with defences inside; noise is left out."""
    match step:
        case GradientStep():
            return Plain(objective)
        case RecordClipping(inner, norm) | DPSGD(inner, norm):
            return RecordsClipped(slopes_of(inner, objective, nuisances), norm)
        case MixUp(inner, alpha):
            nuisances.expected = True
            return Mixed(slopes_of(inner, objective, nuisances), objective, alpha, nuisances)
        case ActivationDropout(inner, rate):
            nuisances.expected = True
            return Dropped(slopes_of(inner, objective, nuisances), objective, rate, nuisances)
    raise InputError(f"a step of {type(step).__name__} can't be simulated")


def loss(objective: Objective, scores: Tensor, y: Tensor) -> Tensor:
    """Return the mean loss of a batch from its scores."""
    if objective.loss is Loss.CROSS_ENTROPY:
        return nn.functional.cross_entropy(scores, y)
    return 0.5 * (scores - y.reshape(scores.shape)).square().sum(dim=1).mean()
