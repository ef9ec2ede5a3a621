"""Optimisers as pure functions of (parameters, gradient, state): they can be unrolled.

Their arithmetic is that of ``torch.optim`` (tests hold them together), so a model trained by
somebody's own PyTorch code is reached step for step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from exhume.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

State: TypeAlias = "tuple[Tensor, ...]"


@dataclass(frozen=True)
class SGD:
    """Gradient descent: v ← momentum·v + g, θ ← θ − learning rate·v."""

    learning_rate: float
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _require_rate(self.learning_rate)
        _require_share("momentum", self.momentum)
        _require_decay(self.weight_decay)

    def start(self, theta: Tensor) -> State:
        """Return the state before the first step."""
        return (theta.new_zeros(theta.shape),)

    def step(self, theta: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        """Return parameters and state after one step."""
        if self.weight_decay:
            gradient = gradient + self.weight_decay * theta
        velocity = self.momentum * state[0] + gradient
        return theta - self.learning_rate * velocity, (velocity,)

    def describe(self) -> str:
        """Return for example ``gradient descent, learning rate 0.2, momentum 0.9``."""
        momentum = f", momentum {self.momentum:g}" if self.momentum else ""
        return f"gradient descent, learning rate {self.learning_rate:g}{momentum}"


@dataclass(frozen=True)
class Adam:
    """Adam with bias correction (Kingma & Ba 2015, Algorithm 1)."""

    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _require_rate(self.learning_rate)
        _require_share("beta1", self.beta1)
        _require_share("beta2", self.beta2)
        _require_decay(self.weight_decay)

    def start(self, theta: Tensor) -> State:
        """Return the two moments and the number of steps taken."""
        return (theta.new_zeros(theta.shape), theta.new_zeros(theta.shape), theta.new_zeros(()))

    def step(self, theta: Tensor, gradient: Tensor, state: State) -> tuple[Tensor, State]:
        """Return parameters and state after one step."""
        if self.weight_decay:
            gradient = gradient + self.weight_decay * theta
        mean = self.beta1 * state[0] + (1 - self.beta1) * gradient
        square = self.beta2 * state[1] + (1 - self.beta2) * gradient * gradient
        count = state[2] + 1
        size = self.learning_rate / (1 - self.beta1**count)
        root = (square / (1 - self.beta2**count)).sqrt() + self.epsilon
        return theta - size * mean / root, (mean, square, count)

    def describe(self) -> str:
        """Return for example ``Adam, learning rate 0.001``."""
        return f"Adam, learning rate {self.learning_rate:g}"


Optimiser: TypeAlias = SGD | Adam


def _require_rate(value: float) -> None:
    if not 0 < value < float("inf"):
        raise InputError(f"learning_rate must be a positive number, got {value}")


def _require_share(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise InputError(f"{name} must be in [0, 1), got {value}")


def _require_decay(value: float) -> None:
    if not 0 <= value < float("inf"):
        raise InputError(f"weight_decay can't be negative, got {value}")
