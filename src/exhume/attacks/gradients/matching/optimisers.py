"""Descriptions of optimisers and their schedules; the loop calls them once per step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

Closure: TypeAlias = Callable[[], Tensor]
"""Evaluates the loss at the current unknowns, sets their gradients, and returns the loss."""


class Optimiser(ABC):
    """An optimiser of the matching loss."""

    @abstractmethod
    def start(self, unknowns: Sequence[Tensor], steps: int) -> Callable[[Closure], None]:
        """Return a function that takes one of ``steps`` steps with a closure."""


@dataclass(frozen=True)
class LBFGS(Optimiser):
    """L-BFGS with a strong Wolfe line search; one step is ``iterations`` of its iterations."""

    history: int = 100
    iterations: int = 20

    def start(self, unknowns: Sequence[Tensor], steps: int) -> Callable[[Closure], None]:
        """Return the step of torch's L-BFGS."""
        inner = torch.optim.LBFGS(
            list(unknowns),
            max_iter=self.iterations,
            max_eval=2 * self.iterations,
            history_size=self.history,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def contiguous(closure: Closure) -> Tensor:
            loss = closure()
            for unknown in unknowns:
                # Networks that permute records give slopes that L-BFGS can't view as one vector.
                if unknown.grad is not None:
                    unknown.grad = unknown.grad.contiguous()
            return loss

        def step(closure: Closure) -> None:
            inner.step(partial(contiguous, closure))  # type: ignore[no-untyped-call]

        return step


@dataclass(frozen=True)
class SignedAdam(Optimiser):
    """Adam on the gradient's sign; the rate falls ×.1 at 3/8, 5/8 and 7/8 (Geiping et al.)."""

    learning_rate: float = 0.1

    def start(self, unknowns: Sequence[Tensor], steps: int) -> Callable[[Closure], None]:
        """Return a step that takes the sign, updates, and decays the rate."""
        inner = torch.optim.Adam(list(unknowns), self.learning_rate)
        cuts = [math.ceil(steps * eighths / 8) for eighths in (3, 5, 7)]
        schedule = torch.optim.lr_scheduler.MultiStepLR(inner, cuts, 0.1)

        def step(closure: Closure) -> None:
            closure()
            for unknown in unknowns:
                if unknown.grad is not None:
                    unknown.grad.sign_()
            inner.step()
            schedule.step()

        return step


@dataclass(frozen=True)
class CosineAdam(Optimiser):
    """Adam with a learning rate that falls to 0 along a cosine."""

    learning_rate: float = 7e-3

    def start(self, unknowns: Sequence[Tensor], steps: int) -> Callable[[Closure], None]:
        """Return a step that updates and decays the rate."""
        inner = torch.optim.Adam(list(unknowns), self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(inner, max(1, steps))

        def step(closure: Closure) -> None:
            closure()
            inner.step()
            schedule.step()

        return step
