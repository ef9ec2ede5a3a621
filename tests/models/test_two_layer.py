"""The two-layer network, and the activations that PyTorch has no module for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from exhume.derivatives.activations import HOMOGENEOUS, ODD, value_and_slope
from exhume.models import Activation
from exhume.models.two_layer import TwoLayer
from exhume.protocol.errors import InputError


@pytest.mark.parametrize("activation", Activation)
def test_scores_are_a_sigma_w_z(activation):
    network = TwoLayer((2, 3), 4, 7, activation, hidden_bias=True, output_bias=True)
    module = network.build().double()
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal(s) for n, s in network.parameter_shapes().items()}
    module.load_state_dict({n: torch.tensor(v) for n, v in values.items()})
    x = rng.standard_normal((5, 2, 3))
    inner = x.reshape(5, 6) @ values["hidden.weight"].T + values["hidden.bias"]
    hidden, _ = value_and_slope(activation, inner)
    expected = hidden @ values["output.weight"].T + values["output.bias"]
    found = module(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("activation", Activation)
def test_slopes_are_derivatives(activation):
    z = torch.linspace(-4.03, 4.1, 101, dtype=torch.float64, requires_grad=True)
    value = activation.build()(z)
    (slope,) = torch.autograd.grad(value.sum(), z)
    found = value_and_slope(activation, z.detach().numpy())
    np.testing.assert_allclose(found[0], value.detach().numpy(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found[1], slope.numpy(), rtol=1e-9, atol=1e-12)


def test_the_papers_activations():
    # Liu et al. 2024, section 3, after Wang et al. 2023.
    z = np.array([-2.0, -0.5, 0.0, 1.5])
    tanh, relu = np.tanh, lambda t: np.maximum(t, 0.0)
    for activation, expected in (
        (Activation.SHIFTED_RELU, relu(z + 1)),
        (Activation.SHIFTED_TANH, tanh(z + 1)),
        (Activation.RELU_PLUS_TANH, relu(z) + tanh(z)),
    ):
        np.testing.assert_allclose(value_and_slope(activation, z)[0], expected, rtol=1e-14)


def test_symmetries_are_what_they_are_called():
    z = np.random.default_rng(1).standard_normal(50)
    for activation in Activation:
        value = value_and_slope(activation, z)[0]
        scaled = value_and_slope(activation, 3.0 * z)[0]
        turned = value_and_slope(activation, -z)[0]
        assert np.allclose(scaled, 3.0 * value) == (activation in HOMOGENEOUS)
        assert np.allclose(turned, -value) == (activation in ODD)


def test_parameters_have_stable_names():
    plain = TwoLayer((3,), 2, 5)
    assert plain.parameter_shapes() == {"hidden.weight": (5, 3), "output.weight": (2, 5)}
    biased = TwoLayer((3,), 2, 5, hidden_bias=True, output_bias=True)
    names = ["hidden.weight", "hidden.bias", "output.weight", "output.bias"]
    assert list(biased.parameter_shapes()) == names
    assert biased.parameter_count() == plain.parameter_count() + 7
    assert pickle.loads(pickle.dumps(plain)) == plain != biased
    assert plain.describe() == "a two-layer 3-5-2 network (relu)"


@pytest.mark.parametrize("sizes", [((0,), 2, 5), ((3,), 0, 5), ((3,), 2, 0)])
def test_layers_need_a_width(sizes):
    with pytest.raises(InputError, match="at least 1, got 0"):
        TwoLayer(*sizes)
