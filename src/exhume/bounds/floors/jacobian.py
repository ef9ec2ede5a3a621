"""The Jacobian of a release with respect to the record: products with it, and the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from exhume.arrays import FloatArray
from exhume.errors import InputError

if TYPE_CHECKING:
    import torch

    Released: TypeAlias = torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]
    ReleaseFunction: TypeAlias = Callable[[torch.Tensor], Released]
    Record: TypeAlias = torch.Tensor | ArrayLike

DEFAULT_MEMORY_LIMIT = 2**30
"""Bytes. What a computation may use beside the graph of the release itself."""


class Jacobian:
    """J (outputs, inputs) of ``release`` at ``record``, by automatic differentiation.

    ``release`` maps a tensor of the record's shape to a tensor, or a sequence or mapping of them,
    read as one vector in that order. It may itself hold a gradient, of ``torch.func`` or of
    ``torch.autograd.grad(..., create_graph=True)``. It is evaluated once, here: every product
    reuses its graph.
    """

    def __init__(self, release: ReleaseFunction, record: Record) -> None:
        import torch

        self._record = torch.as_tensor(record).detach().clone().requires_grad_()
        with torch.enable_grad():
            self._released = _flat(release(self._record))
            self._weights = torch.zeros_like(self._released, requires_grad=True)
            if not self._released.requires_grad:
                raise InputError(
                    "the release does not depend on the record through operations that PyTorch "
                    "can differentiate; look for detach(), item() or no_grad() in it"
                )
            (self._weighted,) = torch.autograd.grad(
                self._released,
                self._record,
                self._weights,
                create_graph=True,
                materialize_grads=True,
            )

    @property
    def outputs(self) -> int:
        """How many numbers are released."""
        return self._released.numel()

    @property
    def inputs(self) -> int:
        """How many numbers a record has."""
        return self._record.numel()

    @property
    def epsilon(self) -> float:
        """The relative precision of the numbers computed with."""
        import torch

        return float(torch.finfo(self._released.dtype).eps)

    def times(self, rows: FloatArray) -> FloatArray:
        """J v for each row v: (rows, inputs) → (rows, outputs), by differentiating Jᵀu in u."""
        if not self._weighted.requires_grad:
            return np.zeros((len(rows), self.outputs))
        return _pulled_back(self._weighted, self._weights, rows)

    def transposed_times(self, rows: FloatArray) -> FloatArray:
        """Jᵀ u for each row u: (rows, outputs) → (rows, inputs)."""
        return _pulled_back(self._released, self._record, rows)

    def dense(self, *, memory_limit: int = DEFAULT_MEMORY_LIMIT) -> FloatArray:
        """All of J as float64, from the side that needs fewer products.

        Raises InputError where J alone is larger than ``memory_limit`` bytes.
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

    Columns by forward products where a record has fewer numbers than the release, rows by reverse
    products otherwise. ``memory_limit`` (bytes) is for the Jacobian; larger ones are refused.
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


def _pulled_back(outputs: torch.Tensor, inputs: torch.Tensor, rows: FloatArray) -> FloatArray:
    import torch

    weights = torch.as_tensor(rows, dtype=outputs.dtype, device=outputs.device)
    weights = weights.reshape(len(rows), *outputs.shape)
    try:
        batch = _gradient(outputs, inputs, weights, batched=True)
    except RuntimeError:
        # Some operations have no batched derivative; one row at a time they do.
        batch = torch.stack([_gradient(outputs, inputs, row, batched=False) for row in weights])
    return batch.reshape(len(rows), -1).cpu().numpy().astype(np.float64)


def _gradient(
    outputs: torch.Tensor, inputs: torch.Tensor, weights: torch.Tensor, *, batched: bool
) -> torch.Tensor:
    import torch

    (result,) = torch.autograd.grad(
        outputs,
        inputs,
        weights,
        retain_graph=True,
        is_grads_batched=batched,
        materialize_grads=not batched,
    )
    return result
