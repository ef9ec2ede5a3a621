"""The Jacobian of a release with respect to the record: products with it, and the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch

    Released: TypeAlias = torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]
    ReleaseFunction: TypeAlias = Callable[[torch.Tensor], Released]
    Record: TypeAlias = torch.Tensor | ArrayLike

DEFAULT_MEMORY_LIMIT = 2**30
"""Bytes that a computation may use, without the graph of the release itself."""


class Jacobian:
    """J (outputs, inputs) of ``release`` at ``record``, by automatic differentiation.

    ``release`` maps a tensor of the record's shape to a tensor, or a sequence or mapping of them,
    which are joined to one vector in that order. It may itself contain a gradient, of
    ``torch.func`` or of ``torch.autograd.grad(..., create_graph=True)``.
    """

    def __init__(self, release: ReleaseFunction, record: Record) -> None:
        import torch

        from exhume.derivatives.jacobian import JacobianProducts

        self._products = JacobianProducts(lambda at: _flat(release(at)), torch.as_tensor(record))
        if self._products.constant:
            raise InputError(
                "the release does not depend on the record through operations that PyTorch "
                "can differentiate; look for detach(), item() or no_grad() in it"
            )

    @property
    def outputs(self) -> int:
        """How many numbers are released."""
        return self._products.outputs

    @property
    def inputs(self) -> int:
        """How many numbers a record has."""
        return self._products.inputs

    @property
    def epsilon(self) -> float:
        """The relative precision of the computation."""
        import torch

        return float(torch.finfo(self._products.values.dtype).eps)

    def times(self, rows: FloatArray) -> FloatArray:
        """J v for each row v: (rows, inputs) → (rows, outputs)."""
        return self._through(self._products.times, rows)

    def transposed_times(self, rows: FloatArray) -> FloatArray:
        """Jᵀ u for each row u: (rows, outputs) → (rows, inputs)."""
        return self._through(self._products.transposed_times, rows)

    def _through(
        self, product: Callable[[torch.Tensor], torch.Tensor], rows: FloatArray
    ) -> FloatArray:
        import torch

        like = self._products.values
        found = product(torch.as_tensor(rows, dtype=like.dtype, device=like.device))
        return found.cpu().numpy().astype(np.float64)

    def dense(self, *, memory_limit: int = DEFAULT_MEMORY_LIMIT) -> FloatArray:
        """All of J as float64, by forward or reverse products, whichever are fewer.

        Raises InputError if J alone is larger than ``memory_limit`` bytes.
        """
        size = self.outputs * self.inputs * 8
        if size > memory_limit:
            raise InputError(
                f"the jacobian ({self.outputs} × {self.inputs}) needs {size} bytes, "
                f"the memory limit is {memory_limit}"
            )
        rows_at_once = max(1, min(64, memory_limit // (64 * (self.outputs + self.inputs))))
        if self.inputs <= self.outputs:
            parts = [self.times(unit) for unit in _unit_rows(self.inputs, rows_at_once)]
            return np.concatenate(parts).T
        parts = [self.transposed_times(unit) for unit in _unit_rows(self.outputs, rows_at_once)]
        return np.concatenate(parts)


def release_jacobian(
    release: ReleaseFunction, record: Record, *, memory_limit: int = DEFAULT_MEMORY_LIMIT
) -> FloatArray:
    """Return the Jacobian (outputs, inputs) of ``release`` at ``record`` as float64.

    Columns come from forward products if a record has fewer numbers than the release, and rows from
    reverse products otherwise. ``memory_limit`` (bytes) is for the Jacobian; larger ones are
    refused.
    """
    return Jacobian(release, record).dense(memory_limit=memory_limit)


def _flat(released: Released) -> torch.Tensor:
    import torch

    if isinstance(released, torch.Tensor):
        return released.reshape(-1)
    parts = list(released.values()) if isinstance(released, Mapping) else list(released)
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts):
        raise InputError("a release function must return a tensor, or a sequence of tensors")
    return torch.cat([part.reshape(-1) for part in parts])


def _unit_rows(size: int, at_once: int) -> Iterator[FloatArray]:
    for start in range(0, size, at_once):
        count = min(at_once, size - start)
        yield np.eye(count, size, k=start)
