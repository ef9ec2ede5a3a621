"""Nonlinearities with their first two derivatives, written out."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from exhume.models.base import Activation


class Bend(ABC):
    """A nonlinearity, entry by entry."""

    @abstractmethod
    def first(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and first derivative."""

    @abstractmethod
    def curvature(self, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Return the second derivative from what ``first`` gave."""

    def second(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, first and second derivative."""
        value, slope = self.first(z)
        return value, slope, self.curvature(z, value, slope)


class ELU(Bend):
    """z above 0, exp(z) − 1 below."""

    def first(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and first derivative; both come from one exponential."""
        value = torch.nn.functional.elu(z)
        return value, value.clamp_max(0.0).add_(1.0)

    def curvature(self, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Return the slope below 0."""
        return slope * (z < 0).to(z.dtype)


class LeakyReLU(Bend):
    """z above 0, ``leak``·z below; the kink has no curvature."""

    def __init__(self, leak: float) -> None:
        self.leak = leak

    def first(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and first derivative."""
        slope = (z > 0).to(z.dtype)
        if self.leak:
            slope = slope.mul_(1.0 - self.leak).add_(self.leak)
        return slope * z, slope

    def curvature(self, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(z)


class Tanh(Bend):
    """The hyperbolic tangent."""

    def first(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and first derivative."""
        value = torch.tanh(z)
        return value, 1.0 - value * value

    def curvature(self, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Return −2·tanh·slope."""
        return -2.0 * value * slope


class Sigmoid(Bend):
    """The logistic function."""

    def first(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and first derivative."""
        value = torch.sigmoid(z)
        return value, value * (1.0 - value)

    def curvature(self, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Return slope·(1 − 2·value)."""
        return slope * (1.0 - 2.0 * value)


class Softplus(Bend):
    """log(1 + exp(z))."""

    def first(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and first derivative."""
        return torch.nn.functional.softplus(z), torch.sigmoid(z)

    def curvature(self, z: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        """Return slope·(1 − slope)."""
        return slope * (1.0 - slope)


BENDS: dict[Activation, Bend] = {
    Activation.ELU: ELU(),
    Activation.RELU: LeakyReLU(0.0),
    Activation.LEAKY_RELU: LeakyReLU(0.01),
    Activation.TANH: Tanh(),
    Activation.SIGMOID: Sigmoid(),
    Activation.SOFTPLUS: Softplus(),
}
"""The nonlinearities written out here; networks with others go the general way."""
