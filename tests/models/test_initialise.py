"""Initial parameters: the stated variances, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from exhume.models import CNN, MLP, Convolution, Initialisation, Scheme

NETWORK = MLP((40,), 30, hidden=(90,))
IMAGES = CNN((12, 12, 3), 10, (Convolution(40, 4), Convolution(30, 3)))
VARIANCE = {
    Scheme.LECUN: lambda fan_in, fan_out: 1 / fan_in,
    Scheme.GLOROT: lambda fan_in, fan_out: 2 / (fan_in + fan_out),
    Scheme.HE: lambda fan_in, fan_out: 2 / fan_in,
}


def _p_value(values, variance, scheme):
    """Of the variance: the mean square's own deviation depends on the law's fourth moment."""
    fourth = 9 / 5 if scheme is Scheme.GLOROT else 3.0
    z = (np.mean(values**2) / variance - 1) / np.sqrt((fourth - 1) / values.size)
    return 2 * stats.norm.sf(abs(z))


@pytest.mark.parametrize("scheme", Scheme)
@pytest.mark.parametrize("network", [NETWORK, IMAGES], ids=["mlp", "cnn"])
def test_variances(scheme, network):
    """Accepts the stated variance of every weight, and rejects one 15 % off."""
    drawn = Initialisation(scheme, seed=5).draw(network, np.random.default_rng(0))
    for name, values in drawn.items():
        if values.ndim < 2:
            assert not values.any(), name
            continue
        field = int(np.prod(values.shape[2:]))
        expected = VARIANCE[scheme](values.shape[1] * field, values.shape[0] * field)
        assert _p_value(values, expected, scheme) > 1e-3, name
        assert _p_value(values, 1.15 * expected, scheme) < 0.02, name
        assert _p_value(values, expected / 1.15, scheme) < 0.02, name


@pytest.mark.parametrize(
    ("scheme", "law"), [(Scheme.LECUN, "norm"), (Scheme.HE, "norm"), (Scheme.GLOROT, "uniform")]
)
def test_the_law_is_the_stated_one(scheme, law):
    drawn = Initialisation(scheme, seed=1).draw(NETWORK, np.random.default_rng(0))
    values = drawn["1.weight"].ravel()
    values = values / values.std()
    uniform = stats.kstest(values, stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)).cdf).pvalue
    normal = stats.kstest(values, stats.norm.cdf).pvalue
    right, wrong = (normal, uniform) if law == "norm" else (uniform, normal)
    assert right > 1e-2
    assert wrong < 1e-6


def test_a_seed_is_known_to_everybody():
    fixed = Initialisation(seed=3)
    assert fixed.known
    one, other = (fixed.draw(NETWORK, np.random.default_rng(i)) for i in range(2))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_without_seed_it_is_drawn_from_the_trainings_own_stream():
    own = Initialisation(seed=None)
    assert not own.known
    one, same, other = (own.draw(NETWORK, np.random.default_rng(i)) for i in (1, 1, 2))
    assert np.array_equal(one["1.weight"], same["1.weight"])
    assert not np.array_equal(one["1.weight"], other["1.weight"])
