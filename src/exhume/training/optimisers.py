"""Optimisers as pure functions of (parameters, gradient, state), which can be unrolled.

Their arithmetic is that of ``torch.optim`` (tests check this), so that they reproduce a model
trained by a user's own PyTorch code step by step. They take tensors and NumPy arrays alike:
trainings and the searches of attacks share these steps. Steps on tensors can be differentiated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

State: TypeAlias = "tuple[Tensor, ...]"
Values = TypeVar("Values", "Tensor", FloatArray)


@dataclass(frozen=True)
class SGD:
    """Gradient descent: v ← momentum·v + g, θ ← θ − learning rate·v.

    With ``nesterov`` the step is momentum·v + g. Weight decay adds ``weight_decay``·θ to the
    gradient; if ``decoupled``, θ shrinks by learning rate · ``weight_decay`` instead.
    """

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    decoupled: bool = False

    def __post_init__(self) -> None:
        _require_rate(self.learning_rate)
        _require_share("momentum", self.momentum)
        _require_decay(self.weight_decay)
        if self.nesterov and not self.momentum:
            raise InputError("nesterov = true needs a momentum above 0, got 0")

    def start(self, theta: Values) -> tuple[Values, ...]:
        """Return the state before the first step."""
        return (_zeros(theta),)

    def step(
        self, theta: Values, gradient: Values, state: tuple[Values, ...]
    ) -> tuple[Values, tuple[Values, ...]]:
        """Return parameters and state after one step."""
        theta, gradient = _decayed(self, theta, gradient)
        velocity = self.momentum * state[0] + gradient
        move = self.momentum * velocity + gradient if self.nesterov else velocity
        return theta - self.learning_rate * move, (velocity,)

    def at(self, learning_rate: float, momentum: float | None = None) -> SGD:
        """Return the same with another learning rate, and another momentum if one is given."""
        kept = self.momentum if momentum is None else momentum
        return replace(self, learning_rate=_moment(learning_rate), momentum=kept)

    def describe(self) -> str:
        """Return for example ``gradient descent, learning rate 0.2, momentum 0.9``."""
        name = "Nesterov momentum" if self.nesterov else "momentum"
        momentum = f", {name} {self.momentum:g}" if self.momentum else ""
        return f"gradient descent, learning rate {self.learning_rate:g}{momentum}{_decay(self)}"


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction (Kingma & Ba 2015, Algorithm 1).

    With ``decoupled``, weight decay shrinks θ by learning rate · ``weight_decay`` and leaves the
    gradient alone: AdamW (Loshchilov & Hutter 2019).
    """

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def __post_init__(self) -> None:
        _require_rate(self.learning_rate)
        _require_share("beta1", self.beta1)
        _require_share("beta2", self.beta2)
        _require_epsilon(self.epsilon)
        _require_decay(self.weight_decay)

    def start(self, theta: Values) -> tuple[Values, ...]:
        """Return the two moments and the number of steps taken."""
        return (_zeros(theta), _zeros(theta), _no_steps(theta))

    def step(
        self, theta: Values, gradient: Values, state: tuple[Values, ...]
    ) -> tuple[Values, tuple[Values, ...]]:
        """Return parameters and state after one step."""
        theta, gradient = _decayed(self, theta, gradient)
        mean = self.beta1 * state[0] + (1 - self.beta1) * gradient
        square = self.beta2 * state[1] + (1 - self.beta2) * gradient * gradient
        count = state[2] + 1
        size, correction = self.corrections(count)
        root = _root(square / correction) + self.epsilon
        return theta - size * mean / root, (mean, square, count)

    def corrections(self, count: Values) -> tuple[Values, Values]:
        """Return the rate over 1 − β₁ᵗ, and 1 − β₂ᵗ, at step t = ``count`` (from 1)."""
        return self.learning_rate / (1 - self.beta1**count), 1 - self.beta2**count

    def at(self, learning_rate: float, momentum: float | None = None) -> Adam:
        """Return the same with another learning rate, and another ``beta1`` if one is given."""
        kept = self.beta1 if momentum is None else momentum
        return replace(self, learning_rate=_moment(learning_rate), beta1=kept)

    def describe(self) -> str:
        """Return for example ``Adam, learning rate 0.001``."""
        name = "AdamW" if self.decoupled else "Adam"
        return f"{name}, learning rate {self.learning_rate:g}{_decay(self)}"


@dataclass(frozen=True)
class RMSprop:
    """The gradient divided by the root of its mean square (Tieleman & Hinton 2012).

    ``centred`` subtracts the square of the mean first (Graves 2013); ``momentum`` is applied to the
    quotient, as in ``torch.optim.RMSprop``.
    """

    learning_rate: float = 1e-2
    smoothing: float = 0.99
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centred: bool = False

    def __post_init__(self) -> None:
        _require_rate(self.learning_rate)
        _require_share("smoothing", self.smoothing)
        _require_share("momentum", self.momentum)
        _require_epsilon(self.epsilon)
        _require_decay(self.weight_decay)

    def start(self, theta: Values) -> tuple[Values, ...]:
        """Return the mean square, the mean and the velocity."""
        return (_zeros(theta), _zeros(theta), _zeros(theta))

    def step(
        self, theta: Values, gradient: Values, state: tuple[Values, ...]
    ) -> tuple[Values, tuple[Values, ...]]:
        """Return parameters and state after one step."""
        gradient = gradient + self.weight_decay * theta
        square = self.smoothing * state[0] + (1 - self.smoothing) * gradient * gradient
        mean = self.smoothing * state[1] + (1 - self.smoothing) * gradient
        spread = square - mean * mean if self.centred else square
        velocity = self.momentum * state[2] + gradient / (_root(spread) + self.epsilon)
        return theta - self.learning_rate * velocity, (square, mean, velocity)

    def at(self, learning_rate: float, momentum: float | None = None) -> RMSprop:
        """Return the same with another learning rate, and another momentum if one is given."""
        kept = self.momentum if momentum is None else momentum
        return replace(self, learning_rate=_moment(learning_rate), momentum=kept)

    def describe(self) -> str:
        """Return for example ``RMSprop, learning rate 0.01``."""
        momentum = f", momentum {self.momentum:g}" if self.momentum else ""
        return f"RMSprop, learning rate {self.learning_rate:g}{momentum}"


Optimiser: TypeAlias = SGD | Adam | RMSprop


def _decayed(own: SGD | Adam, theta: Values, gradient: Values) -> tuple[Values, Values]:
    """Return parameters and gradient after weight decay: one of them changes."""
    if not own.weight_decay:
        return theta, gradient
    if own.decoupled:
        return theta * (1 - own.learning_rate * own.weight_decay), gradient
    return theta, gradient + own.weight_decay * theta


def _zeros(like: Values) -> Values:
    if isinstance(like, np.ndarray):
        return np.zeros_like(like)
    return like.new_zeros(like.shape)


def _no_steps(like: Values) -> Values:
    """Return a count of 0 in double precision: in single, 1 − β₂ would lose half its digits."""
    if isinstance(like, np.ndarray):
        return np.zeros(())
    return like.new_zeros((), dtype=like.double().dtype)


def _root(square: Values) -> Values:
    """Return the square root, with slope 0 where a gradient has been exactly 0 so far."""
    if isinstance(square, np.ndarray):
        return np.sqrt(square)
    import torch

    return square.clamp_min(torch.finfo(square.dtype).tiny).sqrt()


def _decay(own: SGD | Adam) -> str:
    return f", decoupled weight decay {own.weight_decay:g}" if own.decoupled else ""


def _moment(learning_rate: float) -> float:
    """Return a schedule's rate, which may be 0 for a moment, as a positive number."""
    return max(learning_rate, 1e-300)


def _require_rate(value: float) -> None:
    if not 0 < value < float("inf"):
        raise InputError(f"learning_rate must be a positive number, got {value}")


def _require_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise InputError(f"{name} must be in [0, 1), got {value}")


def _require_epsilon(value: float) -> None:
    if not 0 < value < float("inf"):
        raise InputError(f"epsilon must be a positive number, got {value}")


def _require_decay(value: float) -> None:
    if not 0 <= value < float("inf"):
        raise InputError(f"weight_decay can't be negative, got {value}")
