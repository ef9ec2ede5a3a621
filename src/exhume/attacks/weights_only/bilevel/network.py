"""The lower level for any network: L-BFGS training and a quasi-Newton inverse Hessian."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exhume.derivatives.objective import Objective
from exhume.training.stationary import Stationary


class NetworkLevel:
    """Training as ``Stationary`` defines it, warm-started, with implicit differentiation.

    The inverse Hessian is a quasi-Newton one (Lorraine et al. 2020; Runkel et al. 2024, eq. 7):
    BFGS with exact steps on the quadratic of H. It takes the same steps as conjugate gradients and
    needs no memory of its own. ``products`` bounds the Hessian–vector products.
    """

    def __init__(
        self, training: Stationary, classes: Tensor, *, steps: int = 40, products: int = 30
    ) -> None:
        self.training, self.classes = training, classes
        self.steps, self.products = steps, products
        self.objective = Objective(training.network, dtype=torch.float64)

    def train(self, x: Tensor, start: Tensor, *, settled: bool = True) -> Tensor:
        """Return parameters (P,) after up to ``steps`` steps of L-BFGS from ``start``.

        If ``start`` is not the end of a training on similar records, the limit is ten times higher:
        a training stopped early near the released parameters would look like one that ends there.
        """
        theta = start.clone().requires_grad_()
        descent = torch.optim.LBFGS(
            [theta],
            max_iter=self.steps if settled else 10 * self.steps,
            max_eval=25 * self.steps,
            history_size=20,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-12,
            tolerance_change=1e-16,
        )

        def closure() -> Tensor:
            descent.zero_grad()
            value = self.training.loss(self.objective, theta, x, self.classes)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        descent.step(closure)  # type: ignore[no-untyped-call]
        return theta.detach()

    def hypergradient(self, x: Tensor, theta: Tensor, target: Tensor) -> tuple[float, Tensor]:
        """Return ‖θ − θ*‖² and its gradient in ``x``: −∂ₓ⟨∇_θ loss, p⟩ with H p = 2(θ − θ*)."""
        x, theta = x.detach().requires_grad_(), theta.detach().requires_grad_()
        slope, gap = self._slope(x, theta), theta.detach() - target
        p = self._solved(slope, theta, 2.0 * gap)
        (gradient,) = torch.autograd.grad(slope, x, p)
        return float(gap @ gap), -gradient

    def inverse_hessian(self, x: Tensor, theta: Tensor, right: Tensor) -> Tensor:
        """Return p with H p = ``right``, as exactly as the number of products allows."""
        theta = theta.detach().requires_grad_()
        return self._solved(self._slope(x, theta), theta, right)

    def _slope(self, x: Tensor, theta: Tensor) -> Tensor:
        """Return ∇_θ loss as a differentiable tensor."""
        loss = self.training.loss(self.objective, theta, x, self.classes)
        (slope,) = torch.autograd.grad(loss, theta, create_graph=True)
        return slope

    def _solved(self, slope: Tensor, theta: Tensor, right: Tensor) -> Tensor:
        def product(vector: Tensor) -> Tensor:
            (found,) = torch.autograd.grad(slope, theta, vector, retain_graph=True)
            return found

        return solved(product, right, self.products)


def solved(product: Callable[[Tensor], Tensor], right: Tensor, products: int) -> Tensor:
    """Solve H p = right by quasi-Newton steps until the curvature along one is not positive."""
    p = torch.zeros_like(right)
    residual = right.clone()
    direction, size = residual.clone(), residual @ residual
    first = float(size)
    for _ in range(products):
        image = product(direction)
        curvature = direction @ image
        if not float(curvature) > 0 or float(size) <= 1e-24 * first:
            break
        step = size / curvature
        p = p + step * direction
        residual = residual - step * image
        previous, size = size, residual @ residual
        direction = residual + (size / previous) * direction
    return p
