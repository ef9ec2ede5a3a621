"""A network's loss as a function of one flat vector of parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from exhume.arrays import Array, FloatArray
from exhume.errors import InputError
from exhume.models.base import Network


class Loss(Enum):
    """What a record costs: labels are class indices, or numbers for the squared error."""

    CROSS_ENTROPY = "cross-entropy"
    SQUARED_ERROR = "squared-error"


class Objective:
    """Scores, losses and gradients at a flat parameter vector θ (P,), on one device.

    The order in θ is the module's own order of parameters, each flattened row by row. ``buffers``
    are set once and never change: with ``batch_norm`` "train" the batch's own statistics are used
    and not remembered, with "eval" the running ones among the buffers.
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
        self.module.train(batch_norm == "train")
        if batch_norm == "train":
            _forget_statistics(self.module)
        if buffers is not None:
            _set_buffers(self.module, buffers)
        self.shapes = {n: tuple(p.shape) for n, p in self.module.named_parameters()}
        self.sizes = [math.prod(shape) for shape in self.shapes.values()]
        self.size = sum(self.sizes)

    def tensor(self, values: Array) -> Tensor:
        """Return numbers on the objective's device, in its precision."""
        return torch.tensor(np.asarray(values), dtype=self.dtype, device=self.device)

    def responses(self, y: Array) -> Tensor:
        """Return labels as the loss wants them: class indices, or numbers."""
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
        """Say in what way named parameters aren't this network's, or return None."""
        for name, shape in self.shapes.items():
            if name not in parameters:
                return f"there is no parameter {name!r} (shape {shape}) among {list(parameters)}"
            if parameters[name].shape != shape:
                found = tuple(parameters[name].shape)
                turned = " (it is transposed)" if found == shape[::-1] else ""
                return f"{name!r} has shape {found}, the network's has {shape}{turned}"
        extra = [name for name in parameters if name not in self.shapes]
        return f"the network has no parameter {extra[0]!r}" if extra else None

    def unpack(self, theta: Tensor) -> dict[str, Tensor]:
        """Return views of θ by name."""
        parts = torch.split(theta, self.sizes)
        shaped = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(shape) for (name, shape), part in shaped}

    def named(self, theta: Tensor) -> dict[str, FloatArray]:
        """Return θ as NumPy arrays by name."""
        return {n: p.detach().cpu().numpy().copy() for n, p in self.unpack(theta).items()}

    def scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return the scores (n, outputs) of records ``x``."""
        scores: Tensor = functional_call(self.module, self.unpack(theta), (x,))
        return scores

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


def _forget_statistics(module: torch.nn.Module) -> None:
    """Keep batch normalisation from writing its running statistics: a loss has no memory."""
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
