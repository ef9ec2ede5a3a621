"""Optimisers step for step beside ``torch.optim``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import InputError
from exhume.training import SGD, Adam

RATES = st.floats(1e-3, 0.5)
SHARES = st.sampled_from([0.0, 0.5, 0.9])
DECAYS = st.sampled_from([0.0, 1e-3, 0.1])


def _both(ours, theirs, seed):
    """Run 12 steps of a rough quadratic under both; return the two trajectories (12, 7)."""
    rng = np.random.default_rng(seed)
    scale = torch.tensor(rng.uniform(0.1, 2.0, 7))
    start = torch.tensor(rng.normal(size=7))
    theta, parameter = start.clone(), torch.nn.Parameter(start.clone())
    optimiser, state = theirs([parameter]), ours.start(theta)
    left, right = [], []
    for _ in range(12):
        theta, state = ours.step(theta, scale * theta + theta.sin(), state)
        optimiser.zero_grad()
        parameter.grad = (scale * parameter + parameter.sin()).detach()
        optimiser.step()
        left.append(theta.numpy().copy())
        right.append(parameter.detach().numpy().copy())
    return np.array(left), np.array(right)


@settings(deadline=None, max_examples=30)
@given(rate=RATES, momentum=SHARES, decay=DECAYS, seed=st.integers(0, 99))
def test_sgd_is_torchs(rate, momentum, decay, seed):
    ours = SGD(rate, momentum, decay)
    left, right = _both(
        ours,
        lambda p: torch.optim.SGD(p, lr=rate, momentum=momentum, weight_decay=decay),
        seed,
    )
    np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-13)


@settings(deadline=None, max_examples=30)
@given(rate=RATES, beta1=SHARES, decay=DECAYS, seed=st.integers(0, 99))
def test_adam_is_torchs(rate, beta1, decay, seed):
    ours = Adam(rate, beta1, 0.99, 1e-6, decay)
    left, right = _both(
        ours,
        lambda p: torch.optim.Adam(p, lr=rate, betas=(beta1, 0.99), eps=1e-6, weight_decay=decay),
        seed,
    )
    np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("optimiser", [SGD(0.1, 0.9, 0.01), Adam(0.01)])
def test_steps_are_pure(optimiser):
    theta, gradient = torch.ones(3), torch.full((3,), 0.5)
    state = optimiser.start(theta)
    before = [part.clone() for part in state]
    first = optimiser.step(theta, gradient, state)
    second = optimiser.step(theta, gradient, state)
    assert torch.equal(first[0], second[0])
    assert torch.equal(theta, torch.ones(3))
    assert all(torch.equal(a, b) for a, b in zip(before, state, strict=True))


@pytest.mark.parametrize("optimiser", [SGD(0.1, 0.9, 0.01), Adam(0.01)])
def test_rows_are_models_of_their_own(optimiser):
    """(k, P) at once is k times (P,): what the batched engine relies on."""
    theta, gradients = torch.randn(4, 5), torch.randn(2, 4, 5)
    together, state = theta, optimiser.start(theta)
    for gradient in gradients:
        together, state = optimiser.step(together, gradient, state)
    for i in range(4):
        alone, state = theta[i], optimiser.start(theta[i])
        for gradient in gradients:
            alone, state = optimiser.step(alone, gradient[i], state)
        torch.testing.assert_close(together[i], alone, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: SGD(0.0), "learning_rate"),
        (lambda: SGD(float("nan")), "learning_rate"),
        (lambda: SGD(0.1, 1.0), "momentum"),
        (lambda: SGD(0.1, -0.1), "momentum"),
        (lambda: Adam(-1.0), "learning_rate"),
        (lambda: Adam(beta1=1.5), "beta1"),
        (lambda: Adam(beta2=1.0), "beta2"),
        (lambda: SGD(0.1, weight_decay=-1e-3), "weight_decay"),
        (lambda: Adam(weight_decay=float("nan")), "weight_decay"),
    ],
)
def test_settings_out_of_range_are_named(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_descriptions():
    assert SGD(0.2, 0.9).describe() == "gradient descent, learning rate 0.2, momentum 0.9"
    assert SGD(0.2).describe() == "gradient descent, learning rate 0.2"
    assert Adam(0.005).describe() == "Adam, learning rate 0.005"
