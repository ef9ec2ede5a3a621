"""An architecture in a file: a program that torch.export saved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.models.base import Network
from exhume.models.imported import require_scores
from exhume.protocol.attack import Lacking
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn


def program_of(module: nn.Module, x: torch.Tensor) -> bytes:
    """Return a module as the content of a ``.pt2`` file, in evaluation mode, for any batch size.

    ``x`` are two records. InputError where torch.export can't follow the module.
    """
    import io

    import torch

    held = io.BytesIO()
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    try:
        torch.export.save(torch.export.export(module.eval(), (x,), dynamic_shapes=shapes), held)
    except Exception as error:  # whatever torch.export can't follow in a user's module
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"torch.export can't follow the module: {reason}") from None
    return held.getvalue()


@dataclass(frozen=True)
class Exported(Network):
    """The network of a ``.pt2`` file, as it was exported: in training mode or in evaluation mode.

    Its number of records must be dynamic. Loading it runs PyTorch's own reader, which unpickles:
    whoever makes this object trusts the file.
    """

    record_shape: tuple[int, ...]
    outputs: int
    file: Path

    def build(self) -> nn.Module:
        """Load the program and return its module, which stays in the mode that it has."""
        import zipfile

        import torch

        from exhume.models.exported_layers import restore_layers

        if not zipfile.is_zipfile(self.file):
            raise InputError(f"{self.file} can't be read as a program: it is no archive")
        try:
            module = torch.export.load(self.file).module()
            restore_layers(module)
        except Exception as error:  # whatever a damaged archive makes the reader raise
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{self.file} can't be read as an exported program: {reason}"
            ) from None
        # A program has one mode, and raises an error where another one is asked for.
        module.train = lambda mode=True: module  # type: ignore[method-assign]
        module.eval = lambda: module  # type: ignore[method-assign]
        require_scores(module, str(self.file), self.record_shape, self.outputs)
        return module

    def describe(self) -> str:
        """Return the file's name."""
        return f"a network exported to {self.file.name}"


def without_layers(network: Network) -> Lacking | None:
    """Return why a network's layers can't be read one by one; None if all of them can."""
    if not isinstance(network, Exported):
        return None
    if not any(part._parameters and is_bare(part) for part in network.build().modules()):
        return None
    reason = "an exported program does not show its layers"
    return Lacking(reason, "release.model as package.module:function")


def is_bare(part: nn.Module) -> bool:
    """Whether a part of a program only holds parameters, which some operation uses."""
    from torch import nn
    from torch.fx import GraphModule

    return type(part) is nn.Module or isinstance(part, GraphModule)


def normalising(module: nn.Module) -> Iterator[str]:
    """Yield the names of the steps in a program that normalise by a batch or its statistics."""
    graph = getattr(module, "graph", None)
    for node in () if graph is None else graph.nodes:
        if "batch_norm" in str(node.target):
            yield node.name
