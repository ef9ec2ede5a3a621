"""What training a network involves beside its parameters: random draws and running statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.models.base import Network, under_own_names
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from exhume.protocol.arrays import Array


@dataclass(frozen=True)
class Normalisation:
    """A batch normalisation with running statistics of ``size`` channels.

    ``momentum`` is the weight of a batch's statistics in them; None is the plain mean of all.
    """

    name: str
    size: int
    momentum: float | None


@dataclass(frozen=True)
class Traits:
    """How a network behaves in training mode.

    ``draws``: a forward pass draws random numbers (dropout). ``normalisations`` are those whose
    running statistics the batches change, in the order of the module.
    """

    draws: bool
    normalisations: tuple[Normalisation, ...]

    @property
    def plain(self) -> bool:
        """Whether records neither meet random numbers nor each other."""
        return not self.draws and not self.normalisations


def traits_of(network: Network) -> Traits:
    """Run the network forwards in training mode and observe what it draws and changes.

    Raises InputError for random numbers from outside PyTorch's generator, which no seed of a
    training reaches, and for buffers that change but are not a batch normalisation's.
    """
    import torch

    module = network.module().train()
    found = tuple(_normalisations(module))
    own = {f"{one.name}.{part}" for one in found for part in _PARTS}
    before = {name: b.clone() for name, b in module.named_buffers()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        first, draws = _forward(module, network)
        changed = [n for n, b in module.named_buffers() if not torch.equal(b, before[n])]
        for name, buffer in module.named_buffers():
            buffer.copy_(before[name])
        second, _ = _forward(module, network)
    if not torch.equal(first, second):
        raise InputError(
            f"{network.describe()} gives other scores each time, although PyTorch's generator is "
            "seeded: draw its random numbers with torch"
        )
    strangers = [name for name in changed if name not in own]
    if strangers:
        raise InputError(
            f"the buffer {strangers[0]!r} changes in training, and only the running statistics of "
            "batch normalisation are known"
        )
    return Traits(draws, found)


def running_in(network: Network, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return the running statistics in a network's checkpoint; none unless it has all of them.

    The number of batches that they are of follows from the training.
    """
    module = network.module()
    sizes = {
        f"{one.name}.{part}": one.size for one in _normalisations(module) for part in _PARTS[:2]
    }
    named = under_own_names(module.state_dict(), arrays)
    found = {n: named[n] for n, size in sizes.items() if n in named and named[n].shape == (size,)}
    return found if len(found) == len(sizes) else {}


_PARTS = ("running_mean", "running_var", "num_batches_tracked")


def _normalisations(module: nn.Module) -> list[Normalisation]:
    from torch.nn.modules.batchnorm import _BatchNorm

    return [
        Normalisation(name, layer.num_features, layer.momentum)
        for name, layer in module.named_modules()
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None
    ]


def _forward(module: nn.Module, network: Network) -> tuple[torch.Tensor, bool]:
    """Return the scores of fixed records, and whether PyTorch's generator moved."""
    import torch

    torch.manual_seed(0)
    x = torch.as_tensor(np.random.default_rng(0).random((4, *network.record_shape)))
    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    before = torch.get_rng_state()
    scores = module(x.to(dtype))
    return scores, not torch.equal(before, torch.get_rng_state())
