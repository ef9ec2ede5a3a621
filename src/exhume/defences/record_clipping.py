"""Clipping every record's own gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.defences.step_defence import StepDefence
from exhume.models.base import Network
from exhume.protocol.errors import InputError
from exhume.protocol.limits import Positive
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep, Step

if TYPE_CHECKING:
    import torch

    from exhume.derivatives.objective import Objective
    from exhume.training.gradient import Forward, SimulatedStep
    from exhume.training.unknown_draws import UnknownDraws

_NUMBERS_AT_ONCE = 2**26
"""The number of values of per-record gradients in memory at once: a quarter of a gigabyte."""


@dataclass(frozen=True, eq=False)
class RecordClipping(StepDefence):
    """Scales every record's own gradient down to ``norm`` if it is longer; sends the mean.

    The number of records in the mean counts as public.
    """

    inner: Step
    norm: Positive
    name: ClassVar[str] = "record-clipping"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_records_apart(self.name, self.inner)

    @property
    def record_clipping(self) -> tuple[float, float]:
        """The norm and the noise multiplier."""
        return self.norm, 0.0

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the mean of the clipped gradients."""
        import torch

        if not len(data):
            raise InputError("a gradient needs at least one record, got an empty batch")
        if data.weight is not None:
            raise InputError("record clipping needs records of equal weight in the loss")
        x = objective.tensor(data.x)
        y = objective.responses(self.plain().responses(data.labels))
        total = theta.new_zeros(theta.shape)
        rows = max(1, _NUMBERS_AT_ONCE // theta.numel())
        for start in range(0, len(x), rows):
            part = slice(start, start + rows)
            each = objective.gradients_each(theta, x[part], y[part])
            norms = torch.linalg.vector_norm(each, dim=1)
            total += (self.norm / norms.clamp_min(1e-30)).clamp_max(1.0) @ each
        return total / len(x)

    def simulated_step(self, objective: Objective, draws: UnknownDraws) -> SimulatedStep:
        """Return the mean of the clipped gradients: one pass per record.

        The leaves must be all parameters, because all of them are in the norm.
        """
        import torch

        inner = self.inner.simulated_step(objective, draws)

        def step(
            forward: Forward, leaves: Sequence[torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            total = [torch.zeros_like(leaf) for leaf in leaves]
            for index in range(len(x)):
                one = slice(index, index + 1)
                own = inner(forward, leaves, x[one], y[one])
                square = torch.stack([g.square().sum() for g in own]).sum()
                factor = (self.norm / square.clamp_min(1e-30).sqrt()).clamp_max(1.0) / len(x)
                total = [t + factor * g for t, g in zip(total, own, strict=True)]
            return tuple(total)

        return step

    def sensitivity(self, records: int) -> float:
        """Return a record's share of the mean."""
        return self.norm / records

    def describe(self) -> str:
        """Return a short description."""
        return f"every record's gradient clipped to {self.norm:g}"


def require_records_apart(name: str, inner: Mechanism) -> None:
    """Refuse mechanisms that mix records: then no record has its own gradient."""
    if not isinstance(inner, GradientStep):
        raise InputError(
            f"{name} needs each record's own gradient: put it first in the list, directly around "
            f"the step, not around {type(inner).__name__}"
        )
    if inner.batch_norm == "train" and _normalises_batches(inner.network):
        raise InputError(
            f"{name} needs each record's own gradient, and batch normalisation in training mixes "
            "records: use batch_norm = 'eval', or a network without it"
        )


@lru_cache(maxsize=64)
def _normalises_batches(network: Network) -> bool:
    """Whether a network has batch normalisation; it is built once, not at every step."""
    import torch

    norms = torch.nn.modules.batchnorm._BatchNorm
    return any(isinstance(layer, norms) for layer in network.module().modules())
