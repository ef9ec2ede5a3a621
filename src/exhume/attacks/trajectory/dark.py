"""Adam and the entries that no known record lights: a sign, not a slope.

Where every record of the fixed set is 0, the first layer's gradient is the target's alone, and
Adam's step forgets its size: the weights of that entry move at full speed or not at all. Which of
the two can be read off the release, and neither has a slope to follow down from 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.trajectory.observation import WholeVector
from exhume.attacks.trajectory.unrolled import Unrolled
from exhume.models.mlp import MLP
from exhume.records import Records
from exhume.training.network import Training
from exhume.training.optimisers import Adam

LEAST = 0.02
"""What moved its weights is at least this large: below, Adam's slope is that of a jump."""
_MIDDLE = 0.4


@dataclass(frozen=True, eq=False)
class Dark:
    """Entries (D,) that the release shows to be 0, and those that it shows not to be."""

    unlit: Tensor
    lit: Tensor

    def filled(self, entries: Tensor) -> Tensor:
        """Return a start's entries (D,), 0 where known to be, and not where known not to be."""
        entries = torch.where(self.unlit, torch.zeros_like(entries), entries)
        dim = self.lit & (entries < _MIDDLE / 2)
        return torch.where(dim, torch.full_like(entries, _MIDDLE), entries)


def dark_entries(
    training: Training, fixed_set: Records, unrolled: Unrolled, seen: Tensor
) -> Dark | None:
    """Read off which entries outside the fixed set's reach the target lights; None where n/a."""
    own = training.optimiser
    plain = isinstance(own, Adam) and not own.weight_decay and isinstance(training.network, MLP)
    if not plain or not isinstance(unrolled.observation, WholeVector):
        return None
    flat = np.asarray(fixed_set.x, dtype=np.float64).reshape(len(fixed_set), -1)
    dark = torch.as_tensor((flat == 0).all(axis=0))
    if not bool(dark.any()):
        return None
    first = (seen - unrolled.initial)[: dark.numel() * _width(training)]
    moved = first.reshape(-1, dark.numel())
    still = moved.abs().amax(dim=0) < 1e-6
    return Dark(dark & still, dark & ~still)


def _width(training: Training) -> int:
    network = training.network
    assert isinstance(network, MLP)
    return (*network.hidden, network.outputs)[0]
