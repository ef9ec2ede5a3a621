"""The loss at a flat vector of parameters."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exhume.derivatives.objective import Loss, Objective
from exhume.models import CNN, MLP, Activation, Convolution, Initialisation
from exhume.protocol.errors import InputError


class Twice(MLP):
    """A linear layer and an activation, each used twice; one layer has no bias."""

    def build(self):
        shared, act = torch.nn.Linear(9, 9), torch.nn.Tanh()
        last = torch.nn.Linear(9, 4, bias=False)
        return torch.nn.Sequential(torch.nn.Flatten(), shared, act, shared, act, last)


NETWORKS = [
    MLP((3, 3), 4, (5,), Activation.TANH),
    CNN((5, 5), 4, (Convolution(2, 3),), Activation.TANH),
]


def setup(network, loss=Loss.CROSS_ENTROPY):
    objective = Objective(network, loss, dtype=torch.float64)
    rng = np.random.default_rng(0)
    theta = objective.flat(Initialisation(seed=2).draw(network, rng))
    x = objective.tensor(rng.normal(size=(6, *network.record_shape)))
    if loss is Loss.CROSS_ENTROPY:
        return objective, theta, x, objective.responses(rng.integers(0, 4, 6))
    return objective, theta, x, objective.responses(rng.normal(size=(6, 4)))


@pytest.mark.parametrize("network", NETWORKS, ids=["mlp", "cnn"])
class TestObjective:
    def test_flat_and_back(self, network):
        objective, theta, _, _ = setup(network)
        assert torch.equal(objective.flat(objective.named(theta)), theta)
        assert theta.shape == (network.parameter_count(),)

    def test_order_is_the_modules(self, network):
        objective, theta, _, _ = setup(network)
        torch.nn.utils.vector_to_parameters(theta, objective.module.parameters())
        for name, parameter in objective.module.named_parameters():
            assert np.array_equal(objective.named(theta)[name], parameter.detach().numpy())

    @pytest.mark.parametrize("loss", Loss)
    def test_losses_by_hand(self, network, loss):
        objective, theta, x, y = setup(network, loss)
        scores = objective.scores(theta, x)
        if loss is Loss.CROSS_ENTROPY:
            expected = -torch.log_softmax(scores, dim=1)[torch.arange(6), y]
        else:
            expected = 0.5 * ((scores - y) ** 2).sum(dim=1)
        torch.testing.assert_close(objective.losses(theta, x, y), expected)

    @pytest.mark.parametrize("loss", Loss)
    def test_gradient_is_the_finite_difference(self, network, loss):
        objective, theta, x, y = setup(network, loss)
        weight = torch.linspace(0.5, 2.0, 6, dtype=torch.float64)
        gradient = objective.gradient(theta, x, y, weight=weight, count=9)
        direction = torch.randn(len(theta), dtype=torch.float64)
        ends = [
            (objective.losses(theta + sign * 1e-5 * direction, x, y) * weight).sum() / 9
            for sign in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / 2e-5
        assert float(gradient @ direction) == pytest.approx(float(slope), rel=1e-6)

    def test_gradients_each_add_up(self, network):
        objective, theta, x, y = setup(network)
        each = objective.gradients_each(theta, x, y)
        torch.testing.assert_close(each.mean(dim=0), objective.gradient(theta, x, y, count=6))
        alone = objective.gradient(theta, x[2:3], y[2:3], count=1)
        torch.testing.assert_close(each[2], alone)

    def test_strange_parameters_are_named(self, network):
        objective, theta, _, _ = setup(network)
        named = objective.named(theta)
        first = next(iter(named))
        with pytest.raises(InputError, match=f"no parameter {first!r}"):
            objective.flat({n: v for n, v in named.items() if n != first})
        with pytest.raises(InputError, match="has shape"):
            objective.flat({**named, first: np.zeros(3)})
        with pytest.raises(InputError, match="no parameter 'more'"):
            objective.flat({**named, "more": np.zeros(3)})


def test_strange_buffers_are_named():
    with pytest.raises(InputError, match="no buffer 'mean'"):
        Objective(NETWORKS[0], buffers={"mean": np.zeros(3)})


@pytest.mark.parametrize(
    "network", [*NETWORKS, MLP((3, 3), 4, (5, 6)), Twice((3, 3), 4)], ids=lambda n: type(n).__name__
)
def test_scores_are_the_modules_own(network):
    objective, theta, x, _ = setup(network)
    expected = torch.func.functional_call(objective.module, objective.unpack(theta), (x,))
    assert torch.equal(objective.scores(theta, x), expected)


def test_hooks_see_a_chain_of_layers():
    objective, theta, x, _ = setup(MLP((3, 3), 4, (5,)))
    seen = []
    for layer in objective.module:
        layer.register_forward_hook(lambda _layer, _inputs, output: seen.append(output))
    scores = objective.scores(theta, x)
    assert len(seen) == 4
    assert torch.equal(seen[-1], scores)
