"""A module that is at hand, as a network."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False)
class LiveNetwork(Network):
    """``original`` maps (n, *record shape) to scores (n, outputs); every build is a copy of it."""

    record_shape: tuple[int, ...]
    outputs: int
    original: nn.Module

    def build(self) -> nn.Module:
        """Return a copy of the module, all of whose parameters take gradients."""
        return copy.deepcopy(self.original).requires_grad_(True)

    def describe(self) -> str:
        """Return the name of the module's class."""
        return f"a network of class {type(self.original).__name__}"
