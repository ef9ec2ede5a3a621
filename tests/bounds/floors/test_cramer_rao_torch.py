"""The Cramér–Rao floor of PyTorch releases: Jacobians against finite differences, both routes."""

import math

import numpy as np
import pytest
import torch

from exhume.bounds.floors import (
    Probing,
    cramer_rao,
    cramer_rao_from_jacobian,
    release_jacobian,
)
from exhume.bounds.floors.jacobian import Jacobian
from exhume.protocol.errors import InputError


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 20), torch.nn.ELU(), torch.nn.Linear(20, 4)
    ).double()


def gradient_by_autograd(network, label):
    def release(record):
        loss = torch.nn.functional.cross_entropy(network(record[None]), torch.tensor([label]))
        return torch.autograd.grad(loss, list(network.parameters()), create_graph=True)

    return release


def gradient_by_func(network, label):
    parameters = {name: value.detach() for name, value in network.named_parameters()}

    def release(record):
        def loss(values):
            logits = torch.func.functional_call(network, values, (record[None],))
            return torch.nn.functional.cross_entropy(logits, torch.tensor([label]))

        return torch.func.grad(loss)(parameters)

    return release


RELEASES = {"autograd": gradient_by_autograd, "torch.func": gradient_by_func}


def by_finite_differences(release, record, step=1e-5):
    def flat(x):
        parts = release(torch.tensor(x, requires_grad=True))
        parts = parts.values() if isinstance(parts, dict) else parts
        return torch.cat([p.reshape(-1) for p in parts]).detach().numpy()

    columns = [
        (flat(record + step * unit) - flat(record - step * unit)) / (2 * step)
        for unit in np.eye(len(record))
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("kind", RELEASES)
def test_the_jacobian_of_a_gradient_agrees_with_finite_differences(network, kind):
    record = np.random.default_rng(0).uniform(size=12)
    release = RELEASES[kind](network, 2)
    jacobian = release_jacobian(release, record)
    assert jacobian.shape == (12 * 20 + 20 + 20 * 4 + 4, 12)
    np.testing.assert_allclose(jacobian, by_finite_differences(release, record), atol=1e-8)


def test_forward_and_reverse_products_are_transposes(network):
    jacobian = Jacobian(gradient_by_autograd(network, 1), torch.rand(12, dtype=torch.float64))
    rng = np.random.default_rng(1)
    v, u = rng.normal(size=(3, 12)), rng.normal(size=(3, jacobian.outputs))
    dense = jacobian.dense()
    np.testing.assert_allclose(jacobian.times(v), v @ dense.T, atol=1e-12)
    np.testing.assert_allclose(jacobian.transposed_times(u), u @ dense, atol=1e-12)


def test_fewer_outputs_than_inputs_go_by_rows():
    weights = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    record = torch.rand(4, dtype=torch.float64)
    np.testing.assert_allclose(release_jacobian(lambda x: weights @ x, record), weights)
    floor = cramer_rao(lambda x: weights @ x, record, 1.0)
    assert (floor.value, floor.unidentifiable) == (math.inf, 2)  # 0..11 by rows has rank 2


def test_records_of_any_shape_and_releases_in_parts():
    record = torch.rand(2, 3, dtype=torch.float64)

    def release(x):
        return {"first": 2.0 * x, "second": 3.0 * x[0]}

    jacobian = release_jacobian(release, record)
    expected = np.vstack([2 * np.eye(6), 3 * np.eye(3, 6)])
    np.testing.assert_allclose(jacobian, expected)
    # 1/(4 + 9) for three coordinates, 1/4 for the others.
    assert cramer_rao(release, record, 1.0).value == pytest.approx((3 / 13 + 3 / 4) / 6)
    noise = np.r_[np.ones(6), np.full(3, 10.0)]
    assert cramer_rao(release, record, noise).value == pytest.approx((3 / 4.09 + 3 / 4) / 6)


@pytest.mark.parametrize("kind", RELEASES)
def test_exact_and_matrix_free_agree_on_an_mlps_gradient(network, kind):
    record = torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    release = RELEASES[kind](network, 0)
    exact = cramer_rao(release, record, 0.1)
    # 344 × 12 × 8 bytes × 3 do not fit in 60 kB; the products do.
    free = cramer_rao(release, record, 0.1, memory_limit=60_000, probing=Probing(probes=100))
    assert exact.standard_error is None
    assert free.standard_error is not None
    assert abs(free.value - exact.value) < 4 * free.standard_error + 1e-3 * exact.value
    assert free.shortfall < 1e-3
    assert exact.value == pytest.approx(
        cramer_rao_from_jacobian(release_jacobian(release, record), 0.1).value
    )


def test_the_same_seed_gives_the_same_estimate(network):
    record = torch.full((12,), 0.5, dtype=torch.float64)
    release = gradient_by_autograd(network, 0)
    first, second, other = (
        cramer_rao(release, record, 0.1, memory_limit=60_000, rng=seed).value for seed in (1, 1, 2)
    )
    assert first == second != other


def test_single_precision_is_close_to_double(network):
    single = torch.nn.Sequential(torch.nn.Linear(12, 20), torch.nn.ELU(), torch.nn.Linear(20, 4))
    single.load_state_dict(network.state_dict())
    record = torch.rand(12, generator=torch.Generator().manual_seed(4))
    low = cramer_rao(gradient_by_autograd(single, 3), record, 0.1)
    high = cramer_rao(gradient_by_autograd(network, 3), record.double(), 0.1)
    assert low.value == pytest.approx(high.value, rel=1e-3)


def test_a_release_through_training_steps():
    """Weights after three steps of gradient descent on the record: differentiated through."""
    torch.manual_seed(1)
    initial = 0.5 * torch.randn(6, 3, dtype=torch.float64)

    def release(record):
        weights = initial.clone().requires_grad_()
        for _ in range(3):
            loss = ((record @ weights).tanh() - 1.0).square().sum()
            (gradient,) = torch.autograd.grad(loss, weights, create_graph=True)
            weights = weights - 0.3 * gradient
        return [weights]

    record = np.random.default_rng(5).normal(size=6)
    jacobian = release_jacobian(release, record)
    np.testing.assert_allclose(jacobian, by_finite_differences(release, record), atol=1e-7)
    floor = cramer_rao(release, record, 0.01)
    assert math.isfinite(floor.value)
    assert floor.unidentifiable == 0


def test_an_operation_without_batched_derivative_still_works():
    shapes = []

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(context, gradient):
            (x,) = context.saved_tensors
            shapes.append(gradient.shape)
            # A number taken out of a tensor cannot be batched.
            return gradient * 3 * x**2 * (1.0 + 0.0 * float(gradient.detach().sum()))

    record = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    # Fewer outputs than inputs: rows by reverse products, which go through backward again.
    jacobian = release_jacobian(lambda x: Cube.apply(x)[:2], record)
    np.testing.assert_allclose(jacobian, [[3.0, 0.0, 0.0], [0.0, 12.0, 0.0]])
    assert len(shapes) == 4  # for the graph, in vain for the batch, for each row


def test_dead_outputs_and_directions():
    record = torch.rand(4, dtype=torch.float64)
    floor = cramer_rao(lambda x: (x * 0.0, x.sum(), x[0]), record, 1.0)
    assert (floor.value, floor.unidentifiable) == (math.inf, 2)


def test_a_release_that_cannot_be_differentiated_is_refused():
    with pytest.raises(InputError, match="detach"):
        cramer_rao(lambda x: x.detach() * 2, torch.ones(3), 1.0)
    with pytest.raises(InputError, match="tensor"):
        cramer_rao(lambda x: [], torch.ones(3), 1.0)


def test_the_memory_limit_is_kept():
    with pytest.raises(InputError, match="memory limit"):
        release_jacobian(lambda x: x.repeat(100), torch.ones(50), memory_limit=1000)


def test_a_gradient_with_respect_to_the_record_does_not_leak_into_it():
    record = torch.ones(3, dtype=torch.float64, requires_grad=True)
    cramer_rao(lambda x: 2 * x, record, 1.0)
    assert record.grad is None
