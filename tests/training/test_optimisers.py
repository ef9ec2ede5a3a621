"""Optimisers step for step beside ``torch.optim``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.protocol.errors import InputError
from exhume.training import SGD, Adam, RMSprop

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


@pytest.mark.parametrize("optimiser", [SGD(0.1, 0.9, 0.01), Adam(0.01), RMSprop(0.01)])
def test_steps_are_pure(optimiser):
    theta, gradient = torch.ones(3), torch.full((3,), 0.5)
    state = optimiser.start(theta)
    before = [part.clone() for part in state]
    first = optimiser.step(theta, gradient, state)
    second = optimiser.step(theta, gradient, state)
    assert torch.equal(first[0], second[0])
    assert torch.equal(theta, torch.ones(3))
    assert all(torch.equal(a, b) for a, b in zip(before, state, strict=True))


@pytest.mark.parametrize("optimiser", [SGD(0.1, 0.9, 0.01), Adam(0.01), RMSprop(0.01)])
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
        (lambda: Adam(epsilon=0.0), "epsilon"),
        (lambda: SGD(0.1, nesterov=True), "nesterov"),
        (lambda: RMSprop(smoothing=1.0), "smoothing"),
    ],
)
def test_settings_out_of_range_are_named(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_descriptions():
    assert SGD(0.2, 0.9).describe() == "gradient descent, learning rate 0.2, momentum 0.9"
    assert SGD(0.2).describe() == "gradient descent, learning rate 0.2"
    assert Adam(0.005).describe() == "Adam, learning rate 0.005"
    assert (
        Adam(0.005, weight_decay=0.1, decoupled=True).describe()
        == "AdamW, learning rate 0.005, decoupled weight decay 0.1"
    )
    assert (
        SGD(0.2, 0.9, nesterov=True).describe()
        == "gradient descent, learning rate 0.2, Nesterov momentum 0.9"
    )


@settings(deadline=None, max_examples=15)
@given(rate=RATES, momentum=st.sampled_from([0.5, 0.9]), decay=DECAYS, seed=st.integers(0, 99))
def test_nesterov_is_torchs(rate, momentum, decay, seed):
    ours = SGD(rate, momentum, decay, nesterov=True)
    left, right = _both(
        ours,
        lambda p: torch.optim.SGD(p, lr=rate, momentum=momentum, weight_decay=decay, nesterov=True),
        seed,
    )
    np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-13)


@settings(deadline=None, max_examples=15)
@given(rate=RATES, beta1=SHARES, decay=DECAYS, seed=st.integers(0, 99))
def test_decoupled_adam_is_torchs_adamw(rate, beta1, decay, seed):
    ours = Adam(rate, beta1, 0.99, 1e-6, decay, decoupled=True)
    left, right = _both(
        ours,
        lambda p: torch.optim.AdamW(p, lr=rate, betas=(beta1, 0.99), eps=1e-6, weight_decay=decay),
        seed,
    )
    np.testing.assert_allclose(left, right, rtol=1e-11, atol=1e-12)


@settings(deadline=None, max_examples=15)
@given(rate=RATES, momentum=SHARES, decay=DECAYS, centred=st.booleans(), seed=st.integers(0, 99))
def test_rmsprop_is_torchs(rate, momentum, decay, centred, seed):
    ours = RMSprop(rate, 0.9, 1e-6, decay, momentum, centred)
    left, right = _both(
        ours,
        lambda p: torch.optim.RMSprop(
            p, rate, alpha=0.9, eps=1e-6, weight_decay=decay, momentum=momentum, centered=centred
        ),
        seed,
    )
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-10)


def test_adam_in_single_precision_corrects_its_bias_as_torch_does():
    """1 − 0.999 in single precision is wrong by 6e-5 of itself; torch takes it in double."""
    theta = torch.linspace(-1.0, 1.0, 9)
    parameter = torch.nn.Parameter(theta.clone())
    theirs, ours = torch.optim.Adam([parameter], 0.1), Adam(0.1)
    state = ours.start(theta)
    for _ in range(3):
        theta, state = ours.step(theta, 1e-3 * theta, state)
        parameter.grad = 1e-3 * parameter.detach()
        theirs.step()
    assert float((theta - parameter.detach()).abs().max()) < 3e-7


@pytest.mark.parametrize(
    "optimiser", [SGD(0.1, 0.9, 0.01, nesterov=True), Adam(0.01, decoupled=True), RMSprop(0.01)]
)
def test_a_step_can_be_differentiated_where_a_gradient_was_always_zero(optimiser):
    theta, gradient = torch.ones(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)

    def moved(at):
        return optimiser.step(theta, at, optimiser.start(theta))[0]

    slope = torch.func.jvp(moved, (gradient,), (torch.ones_like(gradient),))[1]
    assert bool(slope.isfinite().all())
    assert bool((slope < 0).all())


@pytest.mark.parametrize(
    "ours", [SGD(0.2, 0.9, 1e-3), Adam(0.02, weight_decay=1e-3), RMSprop(0.02, momentum=0.5)]
)
def test_arrays_take_the_steps_of_tensors(ours):
    rng = np.random.default_rng(0)
    array = rng.normal(size=(4, 3))
    tensor = torch.tensor(array)
    state, states = ours.start(array), ours.start(tensor)
    for _ in range(5):
        slope = rng.normal(size=(4, 3))
        array, state = ours.step(array, slope, state)
        tensor, states = ours.step(tensor, torch.tensor(slope), states)
    assert isinstance(array, np.ndarray)
    np.testing.assert_allclose(array, tensor.numpy(), rtol=1e-13)
