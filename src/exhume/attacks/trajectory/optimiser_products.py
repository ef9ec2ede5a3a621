"""An optimiser's step to first order: what a moved gradient does to the parameters, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import torch
from torch import Tensor

from exhume.training.optimisers import SGD, Adam, Optimiser, State

Memory: TypeAlias = tuple[Tensor, ...]


class Moves(ABC):
    """The optimiser along one path. ``note`` is called once a step, in order, as training goes."""

    @abstractmethod
    def note(self, theta: Tensor, gradient: Tensor, state: State) -> None:
        """Remember what the products of this step will need; ``state`` is the one after it."""

    @abstractmethod
    def start(self, like: Tensor) -> Memory:
        """Return a memory of zeros: tangents (forwards) or cotangents (backwards) of the state."""

    @abstractmethod
    def push(
        self, step: int, slope: Tensor, tangent: Tensor, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """Return what to add to the tangent of θ when the gradient moves by ``slope``."""

    @abstractmethod
    def pull(self, step: int, cotangent: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Return the gradient's cotangent, what weight decay adds to θ's, and the memory before."""


class MomentumMoves(Moves):
    """v ← momentum·v + g, θ ← θ − rate·v is linear: nothing need be remembered."""

    def __init__(self, optimiser: SGD) -> None:
        self.optimiser = optimiser

    def note(self, theta: Tensor, gradient: Tensor, state: State) -> None:
        """Remember nothing."""

    def start(self, like: Tensor) -> Memory:
        """Return the velocity's zeros."""
        return (torch.zeros_like(like),)

    def push(
        self, step: int, slope: Tensor, tangent: Tensor, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """Return the velocity's move times the rate."""
        if self.optimiser.weight_decay:
            slope = slope + self.optimiser.weight_decay * tangent
        velocity = self.optimiser.momentum * memory[0] + slope
        return -self.optimiser.learning_rate * velocity, (velocity,)

    def pull(self, step: int, cotangent: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Return the same backwards."""
        velocity = memory[0] - self.optimiser.learning_rate * cotangent
        decayed = self.optimiser.weight_decay * velocity
        return velocity, decayed, (self.optimiser.momentum * velocity,)


class AdamMoves(Moves):
    """Adam's step is −size·mean/root: its two slopes and the gradient are kept for each step.

    Where a gradient has been exactly 0 so far, the step jumps like a sign as soon as it isn't; its
    slope there is 1/epsilon, and that is what these products say.
    """

    def __init__(self, optimiser: Adam) -> None:
        self.optimiser = optimiser
        self._noted: list[tuple[Tensor, Tensor, Tensor]] = []

    def note(self, theta: Tensor, gradient: Tensor, state: State) -> None:
        """Keep the step's slopes in the mean, in the mean square, and of the square itself."""
        own = self.optimiser
        mean, square, count = state
        size = own.learning_rate / (1 - own.beta1**count)
        correction = 1 - own.beta2**count
        deviation = (square / correction).sqrt()
        root = deviation + own.epsilon
        in_mean = size / root
        bare = deviation.clamp_min(torch.finfo(deviation.dtype).tiny ** 0.5)
        in_square = size * mean / (root * root * 2 * correction * bare)
        if own.weight_decay:
            gradient = gradient + own.weight_decay * theta
        self._noted.append((in_mean, in_square, 2 * (1 - own.beta2) * gradient))

    def start(self, like: Tensor) -> Memory:
        """Return the zeros of both moments."""
        return (torch.zeros_like(like), torch.zeros_like(like))

    def push(
        self, step: int, slope: Tensor, tangent: Tensor, memory: Memory
    ) -> tuple[Tensor, Memory]:
        """Return the step's move."""
        own = self.optimiser
        in_mean, in_square, doubled = self._noted[step]
        if own.weight_decay:
            slope = slope + own.weight_decay * tangent
        mean = own.beta1 * memory[0] + (1 - own.beta1) * slope
        square = own.beta2 * memory[1] + doubled * slope
        return in_square * square - in_mean * mean, (mean, square)

    def pull(self, step: int, cotangent: Tensor, memory: Memory) -> tuple[Tensor, Tensor, Memory]:
        """Return the same backwards."""
        own = self.optimiser
        in_mean, in_square, doubled = self._noted[step]
        mean = memory[0] - in_mean * cotangent
        square = memory[1] + in_square * cotangent
        slope = (1 - own.beta1) * mean + doubled * square
        return slope, own.weight_decay * slope, (own.beta1 * mean, own.beta2 * square)


def moves_of(optimiser: Optimiser) -> Moves:
    """Return the first-order form of the optimiser, for one path."""
    return MomentumMoves(optimiser) if isinstance(optimiser, SGD) else AdamMoves(optimiser)
