"""A network of the user's own, by the name of the function that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.errors import InputError
from exhume.models.base import Network

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Imported(Network):
    """``source`` is ``package.module:function``; building the network imports and calls it.

    The function takes no argument and returns a torch module that maps records as the data holds
    them (n, *record shape) to scores (n, outputs). Importing runs the user's code: whoever makes
    this object has decided to.
    """

    record_shape: tuple[int, ...]
    outputs: int
    source: str

    def build(self) -> nn.Module:
        """Import the function and call it."""
        import torch

        make = self._function()
        # Whatever the function draws must neither come from nor disturb the caller's stream.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = make()
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"{self.source} must return a torch.nn.Module, got {type(module)}")
        self._check(module)
        return module

    def describe(self) -> str:
        """Return the name."""
        return f"a network made by {self.source}"

    def _function(self) -> Callable[[], object]:
        import importlib

        module, _, name = self.source.partition(":")
        try:
            found: Callable[[], object] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"{self.source} can't be imported ({error}); write package.module:function"
            ) from None
        return found

    def _check(self, module: nn.Module) -> None:
        """Refuse a module that doesn't take the records or give the scores described."""
        import torch

        dtype = next((p.dtype for p in module.parameters()), torch.float32)
        try:
            with torch.no_grad():
                found = tuple(module(torch.zeros(2, *self.record_shape, dtype=dtype)).shape)
        except (RuntimeError, ValueError, TypeError) as error:
            first = str(error).splitlines()[0]
            raise InputError(
                f"{self.source} does not take records of shape {self.record_shape}: {first}"
            ) from None
        if found != (2, self.outputs):
            raise InputError(
                f"{self.source} gives {found[1:]} scores a record, {self.outputs} are needed"
            )
