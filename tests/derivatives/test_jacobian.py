"""Products with a Jacobian, against the whole matrix from torch.func."""

from __future__ import annotations

import pytest
import torch

from exhume.derivatives.jacobian import JacobianProducts

INPUTS, OUTPUTS = 4, 6


def curved(x: torch.Tensor) -> torch.Tensor:
    """Return six numbers that bend with four; the last does not depend on them."""
    products = torch.outer(x, x)[0] * x.sin()
    return torch.cat([products, x.sum()[None], torch.ones(1, dtype=x.dtype)])


@pytest.mark.parametrize("count", [1, 3])
def test_both_products_are_those_of_the_whole_matrix(count):
    draws = torch.Generator().manual_seed(0)
    point = torch.randn(INPUTS, generator=draws, dtype=torch.float64)
    whole = torch.func.jacrev(curved)(point)
    products = JacobianProducts(curved, point)
    right = torch.randn((count, INPUTS), generator=draws, dtype=torch.float64)
    left = torch.randn((count, OUTPUTS), generator=draws, dtype=torch.float64)
    torch.testing.assert_close(products.times(right), right @ whole.T)
    torch.testing.assert_close(products.transposed_times(left), left @ whole)
    assert (products.outputs, products.inputs) == (OUTPUTS, INPUTS)
    torch.testing.assert_close(products.values.detach(), curved(point))


@pytest.mark.parametrize("count", [1, 3])
def test_a_gradient_inside_the_function_is_differentiated(count):
    """The gradient of Σ x⁴ is 4x³, whose Jacobian is diag(12x²)."""

    def gradient(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(x.pow(4).sum(), x, create_graph=True)[0]

    point = torch.arange(1.0, 1.0 + INPUTS, dtype=torch.float64)
    rows = torch.ones((count, INPUTS), dtype=torch.float64)
    products = JacobianProducts(gradient, point)
    torch.testing.assert_close(products.times(rows), (12.0 * point**2).expand(count, -1))
    torch.testing.assert_close(products.transposed_times(rows), (12.0 * point**2).expand(count, -1))


def test_a_constant_has_the_jacobian_0():
    products = JacobianProducts(
        lambda x: torch.ones(OUTPUTS, dtype=x.dtype), torch.zeros(INPUTS, dtype=torch.float64)
    )
    assert products.constant
    rows = torch.ones((2, INPUTS), dtype=torch.float64)
    torch.testing.assert_close(products.times(rows), torch.zeros((2, OUTPUTS), dtype=torch.float64))
    columns = torch.ones((2, OUTPUTS), dtype=torch.float64)
    assert not products.transposed_times(columns).any()
