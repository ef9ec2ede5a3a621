"""Records' own gradients in factors, against automatic differentiation record by record."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from exhume.derivatives.objective import Loss, Objective
from exhume.derivatives.record_gradients import _Factored, _OneByOne, record_gradients
from exhume.models import CNN, MLP, Activation, Convolution
from exhume.models.base import Network
from exhume.models.lenet import LeNet


class _Twice(nn.Module):
    """One layer used twice: its gradient is no product of one input and one signal."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.layer(torch.tanh(self.layer(x)))))
        return found


class _Own(Network):
    record_shape, outputs = (5,), 3

    def build(self) -> nn.Module:
        return _Twice()

    def describe(self) -> str:
        return "a network that uses a layer twice"


CASES: dict[str, tuple[Network, type]] = {
    "mlp": (MLP((4, 4), 3, (6, 5)), _Factored),
    "cnn": (CNN((6, 6, 2), 3, (Convolution(4, 3, 2, 1), Convolution(5, 2))), _Factored),
    "lenet": (LeNet((28, 28), 3), _Factored),
    "twice": (_Own(), _OneByOne),
}


@pytest.mark.parametrize("name", CASES)
def test_every_form_agrees_with_gradients_one_by_one(name: str) -> None:
    network, form = CASES[name]
    objective = Objective(network, Loss.CROSS_ENTROPY, dtype=torch.float64)
    generator = torch.Generator().manual_seed(3)
    theta = 0.3 * torch.randn(objective.size, generator=generator, dtype=torch.float64)
    x = torch.randn((7, *network.record_shape), generator=generator, dtype=torch.float64)
    y = torch.randint(3, (7,), generator=generator)
    each = objective.gradients_each(theta, x, y)
    direction = torch.randn_like(theta)
    weight = torch.rand(7, len(objective.sizes), dtype=torch.float64)
    parts = list(zip(each.split(objective.sizes, 1), direction.split(objective.sizes), strict=True))
    found = record_gradients(objective, theta, x, y)
    assert isinstance(found, form)
    torch.testing.assert_close(found.norms, each.norm(dim=1))
    for column, (part, ahead) in enumerate(parts):
        torch.testing.assert_close(found.squares[:, column], part.square().sum(1))
        torch.testing.assert_close(found.along(direction)[:, column], part @ ahead)
    torch.testing.assert_close(found.weighted_sum(weight[:, :1]), weight[:, 0] @ each)
    own = [weight[:, column] @ part for column, (part, _) in enumerate(parts)]
    torch.testing.assert_close(found.weighted_sum(weight), torch.cat(own))


def test_shares_clip_what_is_longer_and_leave_the_rest() -> None:
    objective = Objective(MLP((3,), 1, (2,), Activation.TANH), Loss.SQUARED_ERROR)
    theta = torch.linspace(-1.0, 1.0, objective.size)
    x, y = torch.randn(6, 3), torch.randn(6)
    found = record_gradients(objective, theta, x, y)
    norm = float(found.norms.median())
    assert (found.norms > norm).any()
    clipped = found.shares(norm)[:, 0] * found.norms
    torch.testing.assert_close(clipped, found.norms.clamp_max(norm))
    weighted = found.shares(norm, torch.full((6,), 2.0))[:, 0] * found.norms
    torch.testing.assert_close(weighted, (2.0 * found.norms).clamp_max(norm))
    limits = found.squares.sqrt().median(dim=0).values
    own = found.shares(limits) * found.squares.sqrt()
    torch.testing.assert_close(own, found.squares.sqrt().minimum(limits))


def test_no_records_have_no_gradients() -> None:
    objective = Objective(MLP((3,), 2, (2,)), Loss.CROSS_ENTROPY)
    theta = torch.ones(objective.size)
    found = record_gradients(objective, theta, torch.empty(0, 3), torch.empty(0, dtype=torch.long))
    assert found.norms.shape == (0,)
    assert not found.weighted_sum(torch.empty(0, 1)).any()
