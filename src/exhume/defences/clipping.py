"""Clipping a gradient: the whole of it, or every record's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.defences.base import Blurring, Transform, require_positive, whole_norm
from exhume.defences.inside import StepDefence
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.models.base import Network
from exhume.records import Records
from exhume.training.gradient import GradientStep, Step

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.training.objective import Objective


@dataclass(frozen=True, eq=False)
class Clipping(Transform):
    """Scales the whole gradient down to ``norm`` where it is longer."""

    inner: Mechanism
    norm: float
    name: ClassVar[str] = "clipping"

    def __post_init__(self) -> None:
        require_positive("norm", self.norm)

    def changed(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
        """Return the arrays, scaled."""
        factor = min(1.0, self.norm / max(whole_norm(arrays), 1e-300))
        return {name: a * a.dtype.type(factor) for name, a in arrays.items()}

    def simulated(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values, scaled by their own norm."""
        import torch

        square = torch.stack([v.square().sum() for v in values]).sum()
        factor = (self.norm / square.clamp_min(1e-30).sqrt()).clamp_max(1.0)
        return [v * factor for v in values]

    def sensitivity(self, records: int) -> float:
        """Return the diameter: with the record or without it, the norm is at most ``norm``."""
        inner = self.inner.sensitivity(records)
        return 2.0 * self.norm if inner is None else min(inner, 2.0 * self.norm)

    def describe(self) -> str:
        """Say what is done."""
        return f"the whole gradient clipped to {self.norm:g}"


@dataclass(frozen=True, eq=False)
class RecordClipping(StepDefence):
    """Scales every record's own gradient down to ``norm`` where it is longer; sends their mean.

    The number of records in the mean counts as public.
    """

    inner: Step
    norm: float
    name: ClassVar[str] = "record-clipping"

    def __post_init__(self) -> None:
        require_positive("norm", self.norm)
        _require_records_apart(self.name, self.inner)

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the mean of the clipped gradients."""
        import torch

        if not len(data):
            raise InputError("a gradient needs at least one record, got an empty batch")
        if data.weight is not None:
            raise InputError("record clipping takes records that count alike in the loss")
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

    def sensitivity(self, records: int) -> float:
        """Return a record's share of the mean."""
        return self.norm / records

    def describe(self) -> str:
        """Say what is done."""
        return f"every record's gradient clipped to {self.norm:g}"


_NUMBERS_AT_ONCE = 2**26
"""How many numbers of records' own gradients are held at once: a quarter of a gigabyte."""


@dataclass(frozen=True, eq=False)
class DPSGD(StepDefence, Blurring):
    """Clips every record's gradient to ``norm``, adds noise of norm · ``noise_multiplier``.

    The noise is on the sum, as in Abadi et al. 2016; the mean of n records has 1/n of it.
    """

    inner: Step
    norm: float
    noise_multiplier: float
    name: ClassVar[str] = "dp-sgd"

    def __post_init__(self) -> None:
        require_positive("norm", self.norm)
        require_positive("noise_multiplier", self.noise_multiplier)
        _require_records_apart(self.name, self.inner)

    @property
    def clipped(self) -> RecordClipping:
        """The step with its clipping and without its noise."""
        return RecordClipping(self.inner, self.norm)

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the mean of the clipped gradients with noise on it."""
        mean = self.clipped.gradient(objective, theta, data, rng)
        noise = rng.normal(0.0, self.deviation(len(data)), tuple(theta.shape))
        return mean + objective.tensor(noise)

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return one Gaussian mechanism: the noise is in units of what one record can change."""
        import dp_accounting

        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    def deviation(self, records: int) -> float:
        """Return the deviation of the noise on each number of a mean over ``records``."""
        return self.noise_multiplier * self.norm / records

    def describe(self) -> str:
        """Say what is done."""
        return f"DP-SGD with clipping to {self.norm:g} and noise {self.noise_multiplier:g}"


def _require_records_apart(name: str, inner: Mechanism) -> None:
    """Refuse what mixes records: then no record has a gradient of its own."""
    if not isinstance(inner, GradientStep):
        raise InputError(
            f"{name} needs each record's own gradient: it comes first in the list, right at the "
            f"step, not around {type(inner).__name__}"
        )
    if inner.batch_norm == "train" and _normalises_batches(inner.network):
        raise InputError(
            f"{name} needs each record's own gradient, and batch normalisation in training mixes "
            "records: take batch_norm = 'eval', or a network without it"
        )


@lru_cache(maxsize=64)
def _normalises_batches(network: Network) -> bool:
    """Whether a network has batch normalisation; it is built once, not at every step."""
    import torch

    norms = torch.nn.modules.batchnorm._BatchNorm
    return any(isinstance(layer, norms) for layer in network.module().modules())
