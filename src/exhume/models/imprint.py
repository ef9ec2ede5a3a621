"""The network of a malicious server: its first block sorts records into bins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Network
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class Imprinted(Network):
    """Linear, ReLU, Linear in front of a network, or in its place (Fowl et al. 2022).

    The first layer has ``bins`` neurons, in ``measurements`` groups of equal size that each measure
    one linear function of the record. Without a network ``behind``, the block returns the scores;
    with one, its output is added to the record, which is the input of that network.

    >>> Imprinted((2, 2), 3, bins=8).parameter_count()
    67
    """

    record_shape: tuple[int, ...]
    outputs: int
    bins: int = 1024
    measurements: int = 1
    behind: Network | None = None

    def __post_init__(self) -> None:
        if self.measurements < 1 or self.bins < 2 * self.measurements:
            raise InputError(
                f"a measurement needs at least 2 bins, got {self.bins} bins for "
                f"{self.measurements} measurements"
            )
        if self.bins % self.measurements:
            raise InputError(f"{self.bins} bins can't be shared by {self.measurements} equally")
        inner = self.behind
        if inner is not None and (inner.record_shape, inner.outputs) != (
            self.record_shape,
            self.outputs,
        ):
            raise InputError(
                f"the network behind takes {inner.record_shape} to {inner.outputs} scores, "
                f"not {self.record_shape} to {self.outputs}"
            )

    def build(self) -> nn.Module:
        """Return the block, and the network behind it."""
        from torch import nn

        size = math.prod(self.record_shape)
        outputs = self.outputs if self.behind is None else size
        inner = None if self.behind is None else self.behind.build()

        class ImprintBlock(nn.Module):
            def __init__(self, bins: int) -> None:
                super().__init__()
                self.imprint = nn.Linear(size, bins)
                self.rectify = nn.ReLU()
                self.spread = nn.Linear(bins, outputs)
                self.behind = inner

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                found: torch.Tensor = self.spread(self.rectify(self.imprint(x.flatten(1))))
                return found if self.behind is None else self.behind(x + found.view_as(x))

        return ImprintBlock(self.bins)

    def describe(self) -> str:
        """Return for example ``an imprint of 1024 bins before a 784-10-10 network (elu)``."""
        block = f"an imprint of {self.bins} bins"
        return block if self.behind is None else f"{block} before {self.behind.describe()}"
