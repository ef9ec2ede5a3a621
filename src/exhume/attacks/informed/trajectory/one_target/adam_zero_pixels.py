"""Adam and the entries that are 0 in all known records: the update shows a sign, not a slope.

If an entry is 0 in every record of the fixed set, the first layer's gradient there is the target's
alone. Adam's step does not depend on the size of that gradient: the weights of that entry move at
full speed or not at all. The release shows which of the two it is. Neither case has a slope that
leads to or away from 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import WholeVector
from exhume.attacks.informed.trajectory.one_target.unrolled import Unrolled
from exhume.models.mlp import MLP
from exhume.protocol.records import Records
from exhume.training.network import Training
from exhume.training.optimisers import Adam

LEAST = 0.02
"""An entry that moved its weights is at least this large: below, Adam's slope is a jump's."""
_MIDDLE = 0.4


@dataclass(frozen=True, eq=False)
class ZeroPixels:
    """Entries (D,) that the release shows to be 0, and those that it shows not to be."""

    unlit: Tensor
    lit: Tensor

    def filled(self, entries: Tensor) -> Tensor:
        """Return a start's entries (D,): 0 if known to be 0, and not 0 if known not to be."""
        entries = torch.where(self.unlit, torch.zeros_like(entries), entries)
        dim = self.lit & (entries < _MIDDLE / 2)
        return torch.where(dim, torch.full_like(entries, _MIDDLE), entries)


def zero_pixels(
    training: Training, fixed_set: Records, unrolled: Unrolled, seen: Tensor
) -> ZeroPixels | None:
    """Infer which entries that are 0 in the fixed set are not 0 in the target, or None."""
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
    return ZeroPixels(dark & still, dark & ~still)


def _width(training: Training) -> int:
    network = training.network
    assert isinstance(network, MLP)
    return (*network.hidden, network.outputs)[0]
