"""A network's loss as a function of one flat vector of parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from exhume.derivatives.attention import make_attention_differentiable
from exhume.models.base import Network, misfits
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError

_Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


class Loss(Enum):
    """The loss of a record: labels are class indices, or numbers for the squared error."""

    CROSS_ENTROPY = "cross-entropy"
    SQUARED_ERROR = "squared-error"


class Objective:
    """Scores, losses and gradients at a flat parameter vector θ (P,), on one device.

    The order in θ is the module's own order of parameters, each flattened row by row. ``buffers``
    are set once and never change: with ``batch_norm`` "train" the batch's own statistics are used
    and not stored, with "eval" the running ones in the buffers. Dropout is off, so that equal
    arguments give equal values; only ``scores_in_training`` draws. ``running`` has the shapes of
    the running statistics by name, in the module's order.
    """

    def __init__(
        self,
        network: Network,
        loss: Loss = Loss.CROSS_ENTROPY,
        *,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        buffers: Mapping[str, Array] | None = None,
        batch_norm: Literal["train", "eval"] = "train",
    ) -> None:
        self.network, self.loss = network, loss
        self.dtype, self.device = dtype, torch.device(device)
        self.module = network.module().to(device=self.device, dtype=dtype)
        make_attention_differentiable(self.module)
        self.running = _running_shapes(self.module)
        self.batch_statistics = batch_norm == "train"
        if self.batch_statistics:
            _forget_statistics(self.module)
        self._settle()
        if buffers is not None:
            _set_buffers(self.module, buffers)
        self.shapes = {n: tuple(p.shape) for n, p in self.module.named_parameters()}
        self._chain = _chain_of(self.module, self.shapes)
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.size = sum(self.sizes)

    def tensor(self, values: Array) -> Tensor:
        """Return numbers on the objective's device, in its precision."""
        return torch.tensor(np.asarray(values), dtype=self.dtype, device=self.device)

    def responses(self, y: Array) -> Tensor:
        """Return labels in the form that the loss needs: class indices, or numbers."""
        if self.loss is Loss.CROSS_ENTROPY:
            return torch.tensor(np.asarray(y), dtype=torch.long, device=self.device)
        return self.tensor(y)

    def flat(self, parameters: Mapping[str, Array]) -> Tensor:
        """Return named parameters as one vector; names and shapes must be the network's."""
        reason = self.mismatch(parameters)
        if reason is not None:
            raise InputError(reason)
        parts = [np.asarray(parameters[name], dtype=np.float64).ravel() for name in self.shapes]
        return self.tensor(np.concatenate(parts))

    def mismatch(self, parameters: Mapping[str, Array]) -> str | None:
        """Return why named parameters do not fit this network, or None."""
        return next(iter(misfits(self.shapes, parameters)), None)

    def unpack(self, theta: Tensor) -> dict[str, Tensor]:
        """Return views of θ by name."""
        parts = torch.split(theta, self.sizes)
        shaped = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in shaped}

    def named(self, theta: Tensor) -> dict[str, FloatArray]:
        """Return θ as NumPy arrays by name."""
        return {n: p.detach().cpu().numpy().copy() for n, p in self.unpack(theta).items()}

    def named_running(self, running: Tensor) -> dict[str, FloatArray]:
        """Return running statistics (S,) as NumPy arrays by name."""
        sizes = [math.prod(shape) for shape in self.running.values()]
        parts = torch.split(running, sizes) if sizes else ()
        pairs = zip(self.running, parts, strict=True)
        return {name: part.detach().cpu().numpy().copy() for name, part in pairs}

    def running_of(self, buffers: Mapping[str, Array]) -> Tensor:
        """Return named running statistics as one vector (S,); all of them must be there."""
        for reason in misfits(self.running, buffers, more=True):
            raise InputError(f"of the running statistics: {reason}")
        parts = [np.asarray(buffers[name], dtype=np.float64).ravel() for name in self.running]
        return self.tensor(np.concatenate(parts)) if parts else self.tensor(np.zeros(0))

    def scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the scores (n, outputs) of records ``x``."""
        parts = self.unpack(theta)
        if self._chain is not None and not any(map(_observed, self.module.modules())):
            for name, layer in self._chain.items():
                x = _applied(layer, name, parts, x)
            return x
        scores: Tensor = functional_call(self.module, parts, (x,))
        return scores

    def scores_in_training(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the scores as a training step sees them: dropout draws from PyTorch's stream."""
        self.module.train()
        try:
            return self.scores(theta, x)
        finally:
            self._settle()

    def scores_in_use(self, theta: Tensor, running: Tensor, x: Tensor) -> Tensor:
        """Return the scores of the trained model with ``running`` (S,) statistics in their order.

        Nothing in them depends on the other records of ``x``.
        """
        sizes = [math.prod(shape) for shape in self.running.values()]
        parts = dict(zip(self.running, torch.split(running, sizes), strict=True))
        handles = [
            layer.register_forward_hook(_normalising(*(parts[f"{name}.{p}"] for p in _STATISTICS)))
            for name, layer in self.module.named_modules()
            if f"{name}.{_STATISTICS[0]}" in parts
        ]
        self.module.eval()
        try:
            return self.scores(theta, x)
        finally:
            self._settle()
            for handle in handles:
                handle.remove()

    def _settle(self) -> None:
        """Turn dropout off; normalisation uses the batch's statistics where it should."""
        self.module.eval()
        for layer in self.module.modules():
            if isinstance(layer, torch.nn.modules.batchnorm._NormBase):
                layer.train(self.batch_statistics)

    def losses(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return each record's loss (n,)."""
        scores = self.scores(theta, x)
        if self.loss is Loss.CROSS_ENTROPY:
            return torch.nn.functional.cross_entropy(scores, y, reduction="none")
        return 0.5 * (scores - y.reshape(scores.shape)).square().sum(dim=1)

    def gradient(
        self, theta: Tensor, x: Tensor, y: Tensor, *, weight: Tensor | None = None, count: int
    ) -> Tensor:
        """Return ∇θ of Σᵢ wᵢ ℓ(xᵢ, yᵢ) / count."""
        theta = theta.detach().requires_grad_(True)
        losses = self.losses(theta, x, y)
        total = losses.sum() if weight is None else (losses * weight).sum()
        return torch.autograd.grad(total / count, theta)[0]

    def gradients_each(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Return each record's own gradient (n, P)."""

        def loss(at: Tensor, one: Tensor, label: Tensor) -> Tensor:
            return self.losses(at, one[None], label[None])[0]

        found: Tensor = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(theta, x, y)
        return found


_STATISTICS = ("running_mean", "running_var")


def _normalising(mean: Tensor, variance: Tensor) -> Callable[..., Tensor]:
    """Return a hook that normalises by these; PyTorch's own layer has no slope in them."""

    def hook(layer: torch.nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> Tensor:
        assert isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
        (x,) = inputs
        shape = [1, -1, *[1] * (x.ndim - 2)]
        found = (x - mean.view(shape)) / (variance.view(shape) + layer.eps).sqrt()
        if not layer.affine:
            return found
        return found * layer.weight.view(shape) + layer.bias.view(shape)

    return hook


def _running_shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the mean and the variance of every normalisation that tracks them."""
    found = {}
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            for part in _STATISTICS:
                if getattr(layer, part) is not None:
                    found[f"{name}.{part}"] = tuple(getattr(layer, part).shape)
    return found


def _forget_statistics(module: torch.nn.Module) -> None:
    """Prevent batch normalisation from updating its running statistics."""
    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.track_running_stats = False


def _set_buffers(module: torch.nn.Module, buffers: Mapping[str, Array]) -> None:
    own = dict(module.named_buffers())
    for name, values in buffers.items():
        if name not in own:
            raise InputError(f"the network has no buffer {name!r}; it has {list(own)}")
        if tuple(own[name].shape) != np.shape(values):
            raise InputError(
                f"buffer {name!r} has shape {np.shape(values)}, the network's has "
                f"{tuple(own[name].shape)}"
            )
        own[name].copy_(torch.tensor(np.asarray(values)))


def _chain_of(module: nn.Module, shapes: _Shapes) -> dict[str, nn.Module] | None:
    """Return a chain of linear layers and activations by name, None for any other network.

    ``functional_call`` takes longer than the arithmetic of a small one.
    """
    layers = dict(module._modules) if type(module) is nn.Sequential else {}
    plain = (_is_linear(layer, name, shapes) or not _state(layer) for name, layer in layers.items())
    return layers if layers and all(plain) else None


def _is_linear(layer: nn.Module, name: str, shapes: _Shapes) -> bool:
    # A layer that is used twice has one name.
    return type(layer) is nn.Linear and f"{name}.weight" in shapes


def _state(layer: nn.Module) -> list[Tensor]:
    return [*layer.parameters(), *layer.buffers()]


def _observed(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def _applied(layer: nn.Module, name: str, parts: Mapping[str, Tensor], x: Tensor) -> Tensor:
    if type(layer) is nn.Linear:
        return nn.functional.linear(x, parts[f"{name}.weight"], parts.get(f"{name}.bias"))
    scores: Tensor = layer(x)
    return scores
