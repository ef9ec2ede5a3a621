"""Activations with their slopes, and both as differences that lose no digits.

A model trained with one more record differs little from the one without; subtracting two nearly
equal activations would throw away what the difference is made of. Each activation therefore gives
φ(z + d) − φ(z) and φ′(z + d) − φ′(z) in a form that is accurate for small d.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from exhume.models.base import Activation


class Slopes(ABC):
    """An activation, elementwise: value, slope, and the differences of both."""

    @abstractmethod
    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(z), φ′(z)."""

    @abstractmethod
    def differences(self, z: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(z + d) − φ(z), φ′(z + d) − φ′(z)."""

    @abstractmethod
    def bend(self, z: Tensor) -> Tensor:
        """Return φ″(z), 0 at a kink."""


class _Elu(Slopes):
    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        below = torch.expm1(z.clamp_max(0.0))
        return z.clamp_min(0.0) + below, below + 1.0

    def differences(self, z: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        # With z⁻ = min(z, 0): φ = z⁺ + expm1(z⁻), φ′ = exp(z⁻), and z⁻ moves by min(d, −z) + z⁺,
        # which is d itself, to the last digit, where both ends are below 0.
        inside = torch.minimum(d, -z).add_(z.clamp_min(0.0))
        slope = torch.expm1(inside).mul_(torch.exp(z.clamp_max(0.0)))
        return torch.sub(d, inside, out=inside).add_(slope), slope

    def bend(self, z: Tensor) -> Tensor:
        return torch.exp(z.clamp_max(0.0)) * (z < 0)


class _Relu(Slopes):
    def __init__(self, leak: float = 0.0) -> None:
        self.leak = leak

    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        # As tensors of z's own precision: a Python number would be rounded to float32 first.
        slope = torch.where(z > 0, z.new_tensor(1.0), z.new_tensor(self.leak))
        return z * slope, slope

    def differences(self, z: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        before, after = self.at(z)[1], self.at(z + d)[1]
        # Across the kink: leak·z⁻ on one side, z⁺ on the other.
        return d * after + z * (after - before), after - before

    def bend(self, z: Tensor) -> Tensor:
        return torch.zeros_like(z)


class _Tanh(Slopes):
    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.tanh(z)
        return value, 1.0 - value * value

    def differences(self, z: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        before = torch.tanh(z)
        step = torch.tanh(d)
        change = step * (1.0 - before * before) / (1.0 + before * step)
        return change, -change * (2.0 * before + change)

    def bend(self, z: Tensor) -> Tensor:
        value, slope = self.at(z)
        return -2.0 * value * slope


class _Sigmoid(Slopes):
    def at(self, z: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.sigmoid(z)
        return value, value * (1.0 - value)

    def differences(self, z: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        before = torch.sigmoid(z)
        grown = torch.expm1(d.clamp(-60.0, 60.0))
        change = before * (1.0 - before) * grown / (1.0 + before * grown)
        return change, change * (1.0 - 2.0 * before - change)

    def bend(self, z: Tensor) -> Tensor:
        value, slope = self.at(z)
        return slope * (1.0 - 2.0 * value)


_LARGE = 20.0

SLOPES: dict[Activation, Slopes] = {
    Activation.ELU: _Elu(),
    Activation.RELU: _Relu(),
    Activation.LEAKY_RELU: _Relu(0.01),
    Activation.TANH: _Tanh(),
    Activation.SIGMOID: _Sigmoid(),
}
"""The activations that there are such forms for."""


def softmax_difference(p: Tensor, d: Tensor, dim: int) -> Tensor:
    """Return softmax(z + d) − p where p = softmax(z)."""
    if float(d.abs().max()) > _LARGE:
        return _far_softmax_difference(p, d, dim)
    grown = torch.expm1(d).mul_(p)
    mean = grown.sum(dim=dim, keepdim=True)
    return grown.addcmul_(p, mean, value=-1.0).div_(1.0 + mean)


def _far_softmax_difference(p: Tensor, d: Tensor, dim: int) -> Tensor:
    """The same where some scores move so far that exp would overflow, or its sum vanish.

    There nothing is lost by subtracting the two softmaxes; the rest keeps the accurate form.
    """
    far = d.abs().amax(dim=dim, keepdim=True) > _LARGE
    near = softmax_difference(p, torch.where(far, 0.0, d), dim)
    moved = torch.softmax(p.clamp_min(torch.finfo(p.dtype).tiny).log() + d, dim=dim)
    return torch.where(far, moved - p, near)
