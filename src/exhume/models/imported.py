"""A network of the user's own, given by the name of the function that builds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.models.base import Network
from exhume.models.own_code import function_named
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Imported(Network):
    """``source`` is ``package.module:function``; building the network imports and calls it.

    The function takes no argument and returns a torch module that maps records as the data holds
    them (n, *record shape) to scores (n, outputs). Importing runs the user's code: the creator of
    this object has allowed it.
    """

    record_shape: tuple[int, ...]
    outputs: int
    source: str

    def build(self) -> nn.Module:
        """Import the function and call it."""
        import torch

        make = function_named(self.source)
        # Draws of the function must neither use nor change the caller's random stream.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = make()
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"{self.source} must return a torch.nn.Module, got {type(module)}")
        require_scores(module, self.source, self.record_shape, self.outputs)
        return module

    def describe(self) -> str:
        """Return the name."""
        return f"a network made by {self.source}"


def require_scores(
    module: nn.Module, source: str, record_shape: tuple[int, ...], outputs: int
) -> None:
    """Raise InputError unless a module of ``source`` takes such records and gives such scores."""
    import torch

    dtype = next((p.dtype for p in module.parameters()), torch.float32)
    found: list[tuple[int, ...]] = []
    statistics = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with torch.no_grad():
            for count in (2, 3):
                found.append(tuple(module(torch.zeros(count, *record_shape, dtype=dtype)).shape))
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        first = str(error).strip().splitlines()[0]
        if found:
            first = f"their number is fixed to 2; export it with a dynamic one ({first})"
        raise InputError(
            f"{source} does not take records of shape {record_shape}: {first}"
        ) from None
    for name, buffer in module.named_buffers():
        # A module in training mode took the zeros into its running statistics.
        buffer.copy_(statistics[name])
    if found != [(2, outputs), (3, outputs)]:
        raise InputError(f"{source} gives {found[0][1:]} scores per record, {outputs} are needed")
