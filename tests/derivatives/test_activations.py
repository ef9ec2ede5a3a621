"""Activations as differences: held against fifty digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.derivatives.activations import (
    DIFFERENCED,
    NUMPY,
    softmax_difference,
    torch_library,
    with_differences,
)
from exhume.models import Activation

mpmath.mp.dps = 50


def in_torch(activation):
    return with_differences(activation, torch_library())


def _elu(z):
    return z if z > 0 else mpmath.expm1(z)


def _elu_slope(z):
    return mpmath.mpf(1) if z > 0 else mpmath.exp(z)


def _leaky(leak):
    return (lambda z: z if z > 0 else leak * z), (lambda z: mpmath.mpf(1) if z > 0 else leak)


def _sigmoid(z):
    return 1 / (1 + mpmath.exp(-z))


EXACT = {
    Activation.ELU: (_elu, _elu_slope),
    Activation.RELU: _leaky(mpmath.mpf(0)),
    Activation.LEAKY_RELU: _leaky(mpmath.mpf(0.01)),
    Activation.TANH: (mpmath.tanh, lambda z: 1 - mpmath.tanh(z) ** 2),
    Activation.SIGMOID: (_sigmoid, lambda z: _sigmoid(z) * (1 - _sigmoid(z))),
}
POINTS = st.floats(-6, 6, width=32)
MOVES = st.floats(-6, 0).map(lambda e: 10.0**e)


def test_every_activation_with_differences_is_checked():
    assert set(EXACT) == DIFFERENCED


@pytest.mark.parametrize("activation", EXACT, ids=lambda a: a.value)
class TestSlopes:
    @settings(deadline=None, max_examples=60)
    @given(z=POINTS)
    def test_value_and_slope(self, activation, z):
        value, slope = in_torch(activation).first(torch.tensor([z], dtype=torch.float64))
        exact, exact_slope = EXACT[activation]
        assert float(value[0]) == pytest.approx(float(exact(mpmath.mpf(z))), rel=1e-13, abs=1e-300)
        expected = float(exact_slope(mpmath.mpf(z)))
        assert float(slope[0]) == pytest.approx(expected, rel=1e-9, abs=1e-15)

    @pytest.mark.parametrize("z", [-3.0, -0.4, 0.3, 2.0])
    def test_bend_is_the_slopes_derivative(self, activation, z):
        bend = float(in_torch(activation).second(torch.tensor([z], dtype=torch.float64))[2][0])
        expected = float(mpmath.diff(EXACT[activation][1], mpmath.mpf(z)))
        assert bend == pytest.approx(expected, rel=1e-10, abs=1e-14)

    @settings(deadline=None, max_examples=100)
    @given(z=POINTS, size=MOVES, sign=st.sampled_from([-1.0, 1.0]))
    def test_differences_are_precise_relative_to_the_move(self, activation, z, size, sign):
        """In float32: a few units in the last place of d, where subtracting would lose them all."""
        z32, d32 = np.float32(z), np.float32(sign * size)
        got = in_torch(activation).differences(torch.tensor([z32]), torch.tensor([d32]))
        exact, exact_slope = EXACT[activation]
        at, move = mpmath.mpf(float(z32)), mpmath.mpf(float(d32))
        if activation in (Activation.RELU, Activation.LEAKY_RELU) and abs(at + move) < 1e-5:
            return  # the kink itself: which side z + d rounds to is anybody's guess
        assert abs(float(got[0][0]) - (exact(at + move) - exact(at))) <= 1e-6 * abs(move)
        expected = exact_slope(at + move) - exact_slope(at)
        # A jump of the slope at a kink is no small difference; elsewhere it is of the order of d.
        assert abs(float(got[1][0]) - expected) <= 1e-6 * max(abs(move), abs(expected))

    def test_subtracting_would_not_do(self, activation):
        """The test above can tell: plain subtraction in float32 fails it."""
        z, d = torch.tensor([-0.7]), torch.tensor([1e-5])
        exact, _ = EXACT[activation]
        at, move = mpmath.mpf(float(z[0])), mpmath.mpf(float(d[0]))
        naive = in_torch(activation).first(z + d)[0] - in_torch(activation).first(z)[0]
        off = abs(float(naive[0]) - (exact(at + move) - exact(at)))
        assert off > 1e-6 * abs(move) or activation is Activation.RELU

    def test_arguments_are_left_alone(self, activation):
        z, d = torch.linspace(-2, 2, 9), torch.linspace(-1, 1, 9)
        in_torch(activation).differences(z, d)
        assert torch.equal(z, torch.linspace(-2, 2, 9))
        assert torch.equal(d, torch.linspace(-1, 1, 9))


@pytest.mark.parametrize("activation", EXACT, ids=lambda a: a.value)
def test_numpy_has_the_same_formulas(activation):
    z, d = np.linspace(-3.0, 3.1, 50), np.geomspace(1e-6, 1.0, 50)
    ours, theirs = with_differences(activation, NUMPY), in_torch(activation)
    at, by = torch.tensor(z), torch.tensor(d)
    pairs = [*zip(ours.second(z), theirs.second(at), strict=True)]
    pairs += [*zip(ours.differences(z, d), theirs.differences(at, by), strict=True)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-12, atol=1e-16)


class TestSoftmaxDifference:
    @settings(deadline=None, max_examples=60)
    @given(seed=st.integers(0, 10**6), size=MOVES)
    def test_small_moves(self, seed, size):
        rng = np.random.default_rng(seed)
        z, d = rng.normal(0, 2, 5), (size * rng.normal(size=5)).astype(np.float32)
        exact = _softmax([mpmath.mpf(a) + mpmath.mpf(float(b)) for a, b in zip(z, d, strict=True)])
        before = _softmax([mpmath.mpf(a) for a in z])
        p = torch.tensor([float(v) for v in before], dtype=torch.float32)
        got = softmax_difference(p, torch.tensor(d), dim=0).numpy()
        expected = np.array([float(a - b) for a, b in zip(exact, before, strict=True)])
        assert np.abs(got - expected).max() <= 1e-6 * np.abs(d).max()

    def test_huge_moves_do_not_overflow(self):
        p = torch.softmax(torch.tensor([0.0, 1.0, 2.0]), dim=0)
        d = torch.tensor([500.0, -300.0, 0.0])
        moved = softmax_difference(p, d, dim=0)
        np.testing.assert_allclose((p + moved).numpy(), [1.0, 0.0, 0.0], atol=1e-6)
        assert torch.equal(d, torch.tensor([500.0, -300.0, 0.0]))


def _softmax(z):
    grown = [mpmath.exp(v) for v in z]
    return [v / sum(grown) for v in grown]


@pytest.mark.parametrize("size", [1.0, 10.0, 30.0, 1000.0])
def test_scores_that_move_far_stay_finite(size):
    """One column in two moves far; the others keep their digits."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(10, 200, generator=generator)
    d = torch.randn(4, 10, 200, generator=generator) * torch.tensor([1e-4, size]).repeat(100)
    got = softmax_difference(torch.softmax(z, dim=0), d, dim=1)
    exact = torch.softmax(z.double() + d.double(), dim=1) - torch.softmax(z.double(), dim=0)
    assert torch.isfinite(got).all()
    # Scores of thousands have no more than four decimals in float32.
    assert (got - exact).abs().max() < max(1e-6, 1e-6 * size)
    near = slice(0, None, 2)
    assert (got - exact)[:, :, near].abs().max() < 1e-6 * exact[:, :, near].abs().max()
