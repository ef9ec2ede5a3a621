"""Activations with their derivatives, elementwise, for arrays of NumPy and of PyTorch.

A model trained with one more record differs little from the one without it. Subtracting two nearly
equal activations would lose the digits of their difference. Activations therefore also give
φ(z + d) − φ(z) and φ′(z + d) − φ′(z), in a form that is accurate for small d.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np

from exhume.models.base import Activation
from exhume.protocol.arrays import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

A = TypeVar("A", FloatArray, "Tensor")
_LARGE = 20.0


@dataclass(frozen=True)
class Library(Generic[A]):
    """The functions of NumPy or PyTorch that implement activations.

    ``elu`` returns value and slope, ``step`` 1 above 0 and 0 elsewhere, in the array's precision;
    ``below`` and ``above`` limit an array to its entries below and above 0. ``subtract`` writes
    the difference of two arrays into the second.
    """

    exp: Callable[[A], A]
    expm1: Callable[[A], A]
    tanh: Callable[[A], A]
    sigmoid: Callable[[A], A]
    softplus: Callable[[A], A]
    normal: Callable[[A], A]
    """The distribution function of the standard normal."""
    elu: Callable[[A], tuple[A, A]]
    step: Callable[[A], A]
    zeros: Callable[[A], A]
    below: Callable[[A], A]
    above: Callable[[A], A]
    minimum: Callable[[A, A], A]
    subtract: Callable[[A, A], A]


class WithSlope(ABC, Generic[A]):
    """An activation and its first derivative."""

    def __init__(self, library: Library[A]) -> None:
        self.library: Library[A] = library

    @abstractmethod
    def first(self, z: A) -> tuple[A, A]:
        """Return φ(z) and φ′(z); at a kink the slope from the left."""


class WithCurvature(WithSlope[A]):
    """An activation and its first two derivatives."""

    jump: ClassVar[float] = 0.0
    """The jump of the slope at 0."""

    @abstractmethod
    def curvature(self, z: A, value: A, slope: A) -> A:
        """Return φ″(z), 0 at a kink, from what ``first`` gave."""

    def second(self, z: A) -> tuple[A, A, A]:
        """Return φ(z), φ′(z) and φ″(z)."""
        value, slope = self.first(z)
        return value, slope, self.curvature(z, value, slope)


class WithDifferences(WithCurvature[A]):
    """An activation, its first two derivatives and accurate differences."""

    @abstractmethod
    def differences(self, z: A, d: A) -> tuple[A, A]:
        """Return φ(z + d) − φ(z) and φ′(z + d) − φ′(z)."""


class _ELU(WithDifferences[A]):
    def first(self, z: A) -> tuple[A, A]:
        return self.library.elu(z)

    def curvature(self, z: A, value: A, slope: A) -> A:
        return slope * (z < 0)

    def differences(self, z: A, d: A) -> tuple[A, A]:
        # With z⁻ = min(z, 0): φ = z⁺ + expm1(z⁻), φ′ = exp(z⁻), and z⁻ moves by min(d, −z) + z⁺,
        # which is exactly d if both ends are below 0.
        lib = self.library
        inside = lib.minimum(d, -z)
        inside += lib.above(z)
        slope = lib.expm1(inside)
        slope *= lib.exp(lib.below(z))
        value = lib.subtract(d, inside)
        value += slope
        return value, slope


class _LeakyReLU(WithDifferences[A]):
    leak: ClassVar[float] = 0.01
    jump: ClassVar[float] = 0.99

    def first(self, z: A) -> tuple[A, A]:
        slope = self.library.step(z)
        if self.leak:
            slope *= 1.0 - self.leak
            slope += self.leak
        return slope * z, slope

    def curvature(self, z: A, value: A, slope: A) -> A:
        return self.library.zeros(z)

    def differences(self, z: A, d: A) -> tuple[A, A]:
        before, after = self.first(z)[1], self.first(z + d)[1]
        # Across the kink: leak·z⁻ on one side, z⁺ on the other.
        return d * after + z * (after - before), after - before


class _ReLU(_LeakyReLU[A]):
    leak: ClassVar[float] = 0.0
    jump: ClassVar[float] = 1.0


class _Tanh(WithDifferences[A]):
    def first(self, z: A) -> tuple[A, A]:
        value = self.library.tanh(z)
        return value, 1.0 - value * value

    def curvature(self, z: A, value: A, slope: A) -> A:
        return -2.0 * value * slope

    def differences(self, z: A, d: A) -> tuple[A, A]:
        before, step = self.library.tanh(z), self.library.tanh(d)
        change = step * (1.0 - before * before) / (1.0 + before * step)
        return change, -change * (2.0 * before + change)


class _Sigmoid(WithDifferences[A]):
    def first(self, z: A) -> tuple[A, A]:
        value = self.library.sigmoid(z)
        return value, value * (1.0 - value)

    def curvature(self, z: A, value: A, slope: A) -> A:
        return slope * (1.0 - 2.0 * value)

    def differences(self, z: A, d: A) -> tuple[A, A]:
        before = self.library.sigmoid(z)
        grown = self.library.expm1(d.clip(-60.0, 60.0))
        change = before * (1.0 - before) * grown / (1.0 + before * grown)
        return change, change * (1.0 - 2.0 * before - change)


class _Softplus(WithCurvature[A]):
    def first(self, z: A) -> tuple[A, A]:
        return self.library.softplus(z), self.library.sigmoid(z)

    def curvature(self, z: A, value: A, slope: A) -> A:
        return slope * (1.0 - slope)


class _GELU(WithSlope[A]):
    def first(self, z: A) -> tuple[A, A]:
        share = self.library.normal(z)
        return z * share, share + z * self.library.exp(-0.5 * z * z) / float(np.sqrt(2 * np.pi))


class _SiLU(WithSlope[A]):
    def first(self, z: A) -> tuple[A, A]:
        share = self.library.sigmoid(z)
        return z * share, share * (1.0 + z * (1.0 - share))


class _ShiftedReLU(WithSlope[A]):
    def first(self, z: A) -> tuple[A, A]:
        return _ReLU(self.library).first(z + 1.0)


class _ShiftedTanh(WithSlope[A]):
    def first(self, z: A) -> tuple[A, A]:
        return _Tanh(self.library).first(z + 1.0)


class _ReLUPlusTanh(WithSlope[A]):
    def first(self, z: A) -> tuple[A, A]:
        relu, step = _ReLU(self.library).first(z)
        tanh, slope = _Tanh(self.library).first(z)
        return relu + tanh, step + slope


_DIFFERENCED: dict[Activation, type[WithDifferences[Any]]] = {
    Activation.ELU: _ELU,
    Activation.RELU: _ReLU,
    Activation.LEAKY_RELU: _LeakyReLU,
    Activation.TANH: _Tanh,
    Activation.SIGMOID: _Sigmoid,
}
_CURVED: dict[Activation, type[WithCurvature[Any]]] = {
    **_DIFFERENCED,
    Activation.SOFTPLUS: _Softplus,
}
_ALL: dict[Activation, type[WithSlope[Any]]] = {
    **_CURVED,
    Activation.GELU: _GELU,
    Activation.SILU: _SiLU,
    Activation.SHIFTED_RELU: _ShiftedReLU,
    Activation.SHIFTED_TANH: _ShiftedTanh,
    Activation.RELU_PLUS_TANH: _ReLUPlusTanh,
}

DIFFERENCED = frozenset(_DIFFERENCED)
"""The activations with accurate differences."""

CURVED = frozenset(_CURVED)
"""The activations with a second derivative; networks with others are differentiated by autograd."""

HOMOGENEOUS = frozenset({Activation.RELU, Activation.LEAKY_RELU})
"""φ(cz) = c·φ(z) for c > 0: without a bias, a gradient does not determine a feature's norm."""

ODD = frozenset({Activation.TANH})
"""φ(−z) = −φ(z): a gradient does not distinguish z from −z."""

KINKS = {
    Activation.RELU: (0.0,),
    Activation.LEAKY_RELU: (0.0,),
    Activation.ELU: (0.0,),
    Activation.SHIFTED_RELU: (-1.0,),
    Activation.RELU_PLUS_TANH: (0.0,),
}
"""The points where the slope or its derivative jumps: a quadrature must not step over them."""


def with_differences(activation: Activation, library: Library[A]) -> WithDifferences[A]:
    """Return one of the ``DIFFERENCED`` activations for arrays of a library."""
    return _DIFFERENCED[activation](library)


def with_curvature(activation: Activation, library: Library[A]) -> WithCurvature[A]:
    """Return one of the ``CURVED`` activations for arrays of a library."""
    return _CURVED[activation](library)


def value_and_slope(activation: Activation, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return φ(z) and φ′(z) of any activation in NumPy; at a kink the slope from the left.

    >>> value, slope = value_and_slope(Activation.LEAKY_RELU, np.array([-1.0, 2.0]))
    >>> value.tolist(), slope.tolist()
    ([-0.01, 2.0], [0.01, 1.0])
    """
    return _ALL[activation](NUMPY).first(z)


def softmax_difference(p: Tensor, d: Tensor, dim: int) -> Tensor:
    """Return softmax(z + d) − p, where p = softmax(z), without loss of digits for small d."""
    if float(d.abs().max()) > _LARGE:
        return _far_softmax_difference(p, d, dim)
    grown = d.expm1().mul_(p)
    mean = grown.sum(dim=dim, keepdim=True)
    return grown.addcmul_(p, mean, value=-1.0).div_(1.0 + mean)


def _far_softmax_difference(p: Tensor, d: Tensor, dim: int) -> Tensor:
    """Return the same if some scores move so far that exp would overflow, or its sum vanish.

    There, subtracting the two softmaxes loses nothing; the rest keeps the accurate form.
    """
    import torch

    far = d.abs().amax(dim=dim, keepdim=True) > _LARGE
    near = softmax_difference(p, torch.where(far, 0.0, d), dim)
    moved = torch.softmax(p.clamp_min(torch.finfo(p.dtype).tiny).log() + d, dim=dim)
    return torch.where(far, moved - p, near)


def _numpy_elu(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    slope = np.exp(np.minimum(z, 0.0))
    return np.maximum(z, 0.0) + (slope - 1.0), slope


def _numpy_normal(z: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    return np.asarray(ndtr(z))


NUMPY: Library[FloatArray] = Library(
    exp=np.exp,
    expm1=np.expm1,
    tanh=np.tanh,
    # Several times as fast as scipy's; below −37 it is 0.
    sigmoid=lambda z: 0.5 * (1.0 + np.tanh(0.5 * z)),
    softplus=lambda z: np.logaddexp(0.0, z),
    normal=_numpy_normal,
    elu=_numpy_elu,
    step=lambda z: (z > 0).astype(z.dtype),
    zeros=np.zeros_like,
    below=lambda z: np.minimum(z, 0.0),
    above=lambda z: np.maximum(z, 0.0),
    minimum=np.minimum,
    subtract=lambda one, other: np.subtract(one, other, out=other),
)


@cache
def torch_library() -> Library[Tensor]:
    """Return PyTorch's functions; only this imports it."""
    import torch

    def elu(z: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.nn.functional.elu(z)
        return value, value.clamp_max(0.0).add_(1.0)

    return Library(
        exp=torch.exp,
        expm1=torch.expm1,
        tanh=torch.tanh,
        sigmoid=torch.sigmoid,
        softplus=torch.nn.functional.softplus,
        normal=torch.special.ndtr,
        elu=elu,
        step=lambda z: (z > 0).to(z.dtype),
        zeros=torch.zeros_like,
        below=lambda z: z.clamp_max(0.0),
        above=lambda z: z.clamp_min(0.0),
        minimum=torch.minimum,
        subtract=lambda one, other: torch.sub(one, other, out=other),
    )
