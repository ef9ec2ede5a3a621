"""Fully connected networks as descriptions."""

from __future__ import annotations

import pickle

import pytest
import torch

from exhume.models import MLP, Activation
from exhume.protocol.errors import InputError


def test_balles_network():
    """784-10-10 with biases: 784·10 + 10 + 10·10 + 10 (Balle et al. 2022, section VI)."""
    network = MLP((28, 28), 10)
    assert network.parameter_count() == 7960
    assert list(network.parameter_shapes().values()) == [(10, 784), (10,), (10, 10), (10,)]
    assert network.describe() == "a 784-10-10 network (elu)"


@pytest.mark.parametrize("activation", Activation)
def test_scores_are_the_layers_by_hand(activation):
    network = MLP((2, 3), 4, hidden=(5, 3), activation=activation)
    module, x = network.build(), torch.randn(7, 2, 3)
    h = x.reshape(7, 6)
    weights = list(module.parameters())
    for i in range(3):
        h = h @ weights[2 * i].T + weights[2 * i + 1]
        h = activation.build()(h) if i < 2 else h
    torch.testing.assert_close(module(x), h)


def test_no_hidden_layer_is_a_linear_model():
    network = MLP((4,), 3, hidden=())
    assert network.parameter_count() == 15
    assert network.build()(torch.zeros(2, 4)).shape == (2, 3)


def test_equal_settings_equal_network():
    assert MLP((4,), 3) == MLP((4,), 3)
    assert hash(MLP((4,), 3)) == hash(MLP((4,), 3))
    assert MLP((4,), 3) != MLP((4,), 3, activation=Activation.TANH)
    assert pickle.loads(pickle.dumps(MLP((4,), 3))) == MLP((4,), 3)


@pytest.mark.parametrize(
    ("shape", "outputs", "hidden"), [((0,), 1, (2,)), ((3,), 0, (2,)), ((3,), 1, (2, -1))]
)
def test_empty_layers_are_refused(shape, outputs, hidden):
    with pytest.raises(InputError, match="at least 1"):
        MLP(shape, outputs, hidden=hidden)


def test_building_disturbs_no_random_stream() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    network = MLP((4, 4), 3)
    network.module()
    network.parameter_count()
    assert torch.rand(1) == expected
