"""Hermite coefficients, against closed forms and a slow quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from exhume.attacks.gradients.features import tensor_method
from exhume.derivatives.activations import value_and_slope
from exhume.models import Activation
from exhume.protocol.errors import InputError

EASY = {
    Activation.ELU,
    Activation.SHIFTED_RELU,
    Activation.SHIFTED_TANH,
    Activation.RELU_PLUS_TANH,
}
FOURTH = {
    Activation.RELU,
    Activation.LEAKY_RELU,
    Activation.SOFTPLUS,
    Activation.GELU,
    Activation.SILU,
}
ODD_ONLY = {Activation.TANH, Activation.SIGMOID}


def test_every_activation_has_its_route():
    # Liu et al. 2024, Assumption B.1: k₂ and k₃ of each.
    assert set(Activation) == EASY | FOURTH | ODD_ONLY
    for activation in Activation:
        chosen = tensor_method.route(activation)
        assert chosen.span_order == (3 if activation in ODD_ONLY else 2), activation
        assert chosen.tensor_order == (4 if activation in FOURTH else 3), activation


def test_relu_in_closed_form():
    # E[relu(z)], E[1(z>0)], and the density's derivatives at 0.
    top = 1 / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(
        tensor_method.coefficients(Activation.RELU), [top, 0.5, top, 0, -top], atol=1e-14
    )


def test_shifted_relu_in_closed_form():
    # The corner lies at −1: E[σ″] = φ(1), E[σ‴] = −φ(1), E[σ⁗] = φ″(1) = 0.
    density = math.exp(-0.5) / math.sqrt(2 * math.pi)
    share = 0.5 * (1 + math.erf(1 / math.sqrt(2)))
    expected = [share + density, share, density, -density, 0.0]
    np.testing.assert_allclose(
        tensor_method.coefficients(Activation.SHIFTED_RELU), expected, atol=1e-14
    )


@pytest.mark.parametrize("activation", Activation)
def test_against_adaptive_quadrature(activation):
    for order, found in enumerate(tensor_method.coefficients(activation)):
        polynomial = np.polynomial.hermite_e.HermiteE.basis(order)

        def weighted(z: float, polynomial=polynomial) -> float:
            density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
            return float(value_and_slope(activation, np.array([z]))[0][0] * polynomial(z) * density)

        slow = sum(quad(weighted, *ends, epsabs=1e-12)[0] for ends in ((-12, -1), (-1, 0), (0, 12)))
        assert found == pytest.approx(slow, abs=1e-9)


def test_an_activation_without_moments_is_refused(monkeypatch):
    monkeypatch.setattr(tensor_method, "coefficients", lambda _: (0.3, 1.0, 0.0, 0.0, 0.0))
    with pytest.raises(InputError, match="k₂ ≤ 3"):
        tensor_method.route(Activation.RELU)
