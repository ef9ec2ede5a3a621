"""Products with the Jacobian of a function of tensors; they all share one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class JacobianProducts:
    """Products with J (outputs, inputs) of ``function`` at ``point``, by reverse passes alone.

    ``function`` maps a tensor of the point's shape to a flat tensor, ``values`` (outputs,), and may
    itself hold gradients (``create_graph=True``). It is evaluated once, here. J v is the derivative
    of Jᵀu in u, so that both directions reuse one graph.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], point: Tensor) -> None:
        import torch

        self._point = point.detach().clone().requires_grad_()
        with torch.enable_grad():
            self.values = function(self._point)
            self._weights = torch.zeros_like(self.values, requires_grad=True)
            self._weighted = torch.zeros_like(self._point)
            if self.values.requires_grad:
                (self._weighted,) = torch.autograd.grad(
                    self.values,
                    self._point,
                    self._weights,
                    create_graph=True,
                    materialize_grads=True,
                )

    @property
    def constant(self) -> bool:
        """Whether the values do not depend on the point through differentiable operations."""
        return not self.values.requires_grad

    @property
    def outputs(self) -> int:
        """The number of values."""
        return self.values.numel()

    @property
    def inputs(self) -> int:
        """The number of the point's coordinates."""
        return self._point.numel()

    def times(self, rows: Tensor) -> Tensor:
        """Return J v of each row v: (k, inputs) → (k, outputs)."""
        return _pulled(self._weighted, self._weights, rows)

    def transposed_times(self, rows: Tensor) -> Tensor:
        """Return Jᵀu of each row u: (k, outputs) → (k, inputs)."""
        return _pulled(self.values, self._point, rows)


def _pulled(outputs: Tensor, inputs: Tensor, rows: Tensor) -> Tensor:
    """Return the gradient in ``inputs`` of each row's weighted sum of ``outputs``."""
    import torch

    if not outputs.requires_grad:
        return rows.new_zeros((len(rows), inputs.numel()))
    weights = rows.reshape(len(rows), *outputs.shape)
    if len(rows) > 1:
        try:
            found = torch.autograd.grad(
                outputs, inputs, weights, retain_graph=True, is_grads_batched=True
            )[0]
            return found.reshape(len(rows), -1)
        except RuntimeError:
            # Some operations have no batched derivative, only one per row.
            pass
    each = [
        torch.autograd.grad(outputs, inputs, row, retain_graph=True, materialize_grads=True)[0]
        for row in weights
    ]
    return torch.stack(each).reshape(len(rows), -1)
