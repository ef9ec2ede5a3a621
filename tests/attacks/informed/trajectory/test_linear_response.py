"""Linear response: its parts against slow references, and whole inversions of plain victims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from exhume.attacks import TrajectoryInversion
from exhume.attacks.informed.trajectory.linear_response.adjoint import Response, adjoint_weights
from exhume.attacks.informed.trajectory.linear_response.chain import Chain, unchained
from exhume.attacks.informed.trajectory.linear_response.ekfac import (
    KroneckerCurvature,
    measured_curvature,
)
from exhume.attacks.informed.trajectory.linear_response.engine import unresponsive
from exhume.attacks.informed.trajectory.linear_response.retrain import kept_steps
from exhume.data import load, split_records
from exhume.models import CNN, MLP, Convolution
from exhume.models.lenet import LeNet
from exhume.models.resnet import ResNet
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.reconstruction import Status
from exhume.protocol.release import Weights
from exhume.torch import network as live_network
from exhume.training import SGD, Adam, Batches, Training

DIGITS = split_records(load("digits").train, fixed_set=300, shadow_targets=0, targets=2, seed=1)
NETWORK = CNN((8, 8), 10, (Convolution(6, 3), Convolution(8, 2, 2)))
TRAINING = Training(NETWORK, tuple(range(10)), SGD(0.02, 0.9), epochs=60)
TINY = replace(
    TRAINING,
    network=CNN((5, 5), 3, (Convolution(2, 3), Convolution(3, 2))),
    classes=(0, 1, 2),
    optimiser=SGD(0.1, 0.8, weight_decay=0.01),
    epochs=7,
    precision="float64",
)


@pytest.fixture(scope="module")
def tiny() -> tuple[Chain, torch.Tensor, torch.Tensor]:
    """A small network in double precision, parameters at every step of a path, and records."""
    chain = Chain(TINY.objective())
    rng = np.random.default_rng(0)
    path = torch.tensor(rng.normal(scale=0.4, size=(7, chain.objective.size)))
    return chain, path, torch.tensor(rng.random((12, 5, 5)))


def gauss_newton(chain: Chain, theta: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The Gauss–Newton matrix (P, P) of the mean cross-entropy, from a dense Jacobian."""
    jacobian = torch.func.jacrev(lambda at: chain.objective.scores(at, x))(theta)
    p = chain.objective.scores(theta, x).softmax(dim=1)
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return torch.einsum("nop,noq,nqr->pr", jacobian, inner, jacobian) / len(x)


def rotation(curvature: KroneckerCurvature) -> torch.Tensor:
    """The rotation into the curvature's coordinates as a matrix, one unit vector at a time."""
    return torch.stack(
        [curvature.rotated(unit) for unit in torch.eye(curvature.chain.objective.size).double()],
        dim=1,
    )


def test_a_chain_is_the_network(tiny: tuple[Chain, torch.Tensor, torch.Tensor]) -> None:
    chain, path, x = tiny
    scores, passes = chain.forward(chain.matrices(path), x)
    for theta, own in zip(path, scores, strict=True):
        torch.testing.assert_close(own, chain.objective.scores(theta, x))
    assert [one.rows.shape[2] for one in passes] == [9, 4, 1]


def test_the_diagonal_is_that_of_the_gauss_newton_matrix_in_the_basis(
    tiny: tuple[Chain, torch.Tensor, torch.Tensor],
) -> None:
    chain, path, x = tiny
    curvature = measured_curvature(chain, path[:2], (0, 6), x, mass=0.9)
    turn = rotation(curvature)
    torch.testing.assert_close(turn @ turn.T, torch.eye(len(turn)).double())
    for theta, diagonal in zip(path[:2], curvature.diagonals, strict=True):
        exact = turn @ gauss_newton(chain, theta, x) @ turn.T
        torch.testing.assert_close(diagonal, 0.9 * exact.diagonal())
    torch.testing.assert_close(curvature.at(3), curvature.diagonals.mean(dim=0))


def test_a_dense_layers_basis_diagonalises_independent_factors() -> None:
    # One record and one layer: the matrix is exactly a Kronecker product, the basis its own.
    network = MLP((4,), 3, hidden=())
    chain = Chain(replace(TINY, network=network).objective())
    theta = torch.linspace(-1, 1, chain.objective.size).double()
    x = torch.tensor([[0.3, -0.2, 0.9, 0.4]]).double()
    curvature = measured_curvature(chain, theta[None], (0,), x, mass=1.0)
    turn = rotation(curvature)
    turned = turn @ gauss_newton(chain, theta, x) @ turn.T
    torch.testing.assert_close(turned, torch.diag(curvature.diagonals[0]), atol=1e-12, rtol=0)


def test_the_response_is_the_recursion_run_forwards(
    tiny: tuple[Chain, torch.Tensor, torch.Tensor],
) -> None:
    chain, path, x = tiny
    curvature = measured_curvature(chain, path[[0, 6]], (0, 6), x, mass=1.0)
    optimiser = TINY.optimiser
    assert isinstance(optimiser, SGD)
    weights = adjoint_weights(curvature, optimiser, 7, tuple(range(7)))
    record, label, share = x[0], 2, 1 / 13
    found = Response(curvature, weights, path, share)(record, label)
    effect = velocity = torch.zeros_like(path[0])
    for step, theta in enumerate(path):
        own = chain.objective.gradient(theta, record[None], torch.tensor([label]), count=1)
        pull = (curvature.at(step) + optimiser.weight_decay) * effect
        velocity = optimiser.momentum * velocity + pull + share * curvature.rotated(own)
        effect = effect - optimiser.learning_rate * velocity
    torch.testing.assert_close(found, effect)


def test_few_nodes_stand_for_gradients_that_change_evenly(
    tiny: tuple[Chain, torch.Tensor, torch.Tensor],
) -> None:
    chain, path, x = tiny
    curvature = measured_curvature(chain, path[:1], (0,), x, mass=1.0)
    assert isinstance(TINY.optimiser, SGD)
    every = adjoint_weights(curvature, TINY.optimiser, 7, tuple(range(7)))
    few = adjoint_weights(curvature, TINY.optimiser, 7, (0, 2, 6))
    even = torch.linspace(1.0, 4.0, 7).double()
    torch.testing.assert_close(even @ every, even[[0, 2, 6]] @ few)


def test_the_response_has_the_slope_of_its_values(
    tiny: tuple[Chain, torch.Tensor, torch.Tensor],
) -> None:
    chain, path, x = tiny
    curvature = measured_curvature(chain, path[[0, 6]], (0, 6), x, mass=1.0)
    weights = adjoint_weights(curvature, SGD(0.1, 0.8), 7, tuple(range(7)))
    response = Response(curvature, weights, path, 1.0)
    ahead = torch.linspace(-1, 1, len(weights[0])).double()
    assert torch.autograd.gradcheck(
        lambda record: response(record, 1) @ ahead, x[0].clone().requires_grad_(True)
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"network": LeNet((16, 16), 10)}, None),
        ({"network": ResNet((16, 16), 10)}, "plain"),
        ({"batches": Batches(16)}, "on all records"),
        ({"optimiser": Adam(0.01)}, "on all records"),
        ({"optimiser": SGD(0.1, 0.9, nesterov=True)}, "plain steps"),
        ({"network": MLP((4,), 1), "classes": None}, "regression"),
    ],
)
def test_what_is_not_predicted_is_named(changes: dict[str, object], reason: str | None) -> None:
    found = unresponsive(replace(TRAINING, **changes), 300)
    assert found is None if reason is None else reason in str(found)


def test_a_layer_that_is_used_twice_is_refused() -> None:
    tied = nn.Linear(4, 4)
    network = live_network(nn.Sequential(tied, nn.Tanh(), tied), (4,))
    training = Training(network, (0, 1, 2, 3), SGD(0.1))
    assert "used twice" in str(unresponsive(training, 300))


def test_too_few_records_are_refused() -> None:
    assert "at least 20" in str(unresponsive(TRAINING, 19))
    assert unchained(TRAINING.objective()) is None


def test_kept_steps_are_few_and_have_both_ends() -> None:
    assert (kept_steps(5)[0], kept_steps(5)[-1]) == (0, 4)
    assert len(kept_steps(1000)) <= 14
    assert (kept_steps(1000)[0], kept_steps(1000)[-1]) == (0, 999)


def victim(target: int, training: Training = TRAINING) -> Weights:
    """Train by modules of PyTorch in single precision; the target is the last record."""
    network, own = training.network, training.optimiser
    assert isinstance(own, SGD)
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 6, 3),
        nn.ELU(),
        nn.Conv2d(6, 8, 2, 2),
        nn.ELU(),
        nn.Flatten(),
        nn.Linear(72, 10),
    )
    drawn = training.initial.draw(network, np.random.default_rng(0))
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), drawn.values(), strict=True):
            parameter.copy_(torch.tensor(values))
    data = DIGITS.fixed_set.with_record(DIGITS.targets.take([target]))
    x, y = torch.tensor(data.x).float(), torch.tensor(data.labels)
    optimiser = torch.optim.SGD(model.parameters(), own.learning_rate, own.momentum)
    for _ in range(training.epochs):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    values = (parameter.detach().numpy() for parameter in model.parameters())
    return Weights(dict(zip(training.network.parameter_shapes(), values, strict=True)))


def known(training: Training = TRAINING, **more: object) -> Knowledge:
    return Knowledge(
        record_shape=(8, 8),
        value_range=(0.0, 1.0),
        training=training,
        fixed_set=DIGITS.fixed_set,
        **more,
    )


def squared_error(samples: np.ndarray, target: int) -> float:
    return float(np.mean((samples[0] - DIGITS.targets.x[target]) ** 2))


@pytest.mark.slow
def test_records_and_labels_come_back_certified() -> None:
    attack = TrajectoryInversion(jacobians=0)
    found = attack.reconstruct_each(
        [victim(i) for i in range(2)],
        [known()] * 2,
        rngs=[np.random.default_rng(i) for i in range(2)],
    )
    for i, one in enumerate(found):
        assert one.status is Status.CONVERGED, one.message
        assert one.labels is not None
        assert one.labels[0] == DIGITS.targets.labels[i]
        assert one.error_estimate is not None
        assert squared_error(one.samples, i) < 1e-5
        assert one.error_estimate[0] > 0.3 * squared_error(one.samples, i) ** 0.5
        assert one.stats["simulations"] <= attack.retrainings
        assert one.stats["response_error"] > 0.05


def test_an_audit_without_real_trainings_has_none() -> None:
    refused = TrajectoryInversion(jacobians=0, retrainings=0).accepts(victim(0), known())
    assert "fully connected" in str(refused)


def test_known_entries_stay_and_a_known_label_is_kept() -> None:
    mask = np.zeros((8, 8), dtype=bool)
    mask[:4] = True
    attributes = KnownAttributes(mask, DIGITS.targets.x[1])
    found = TrajectoryInversion(jacobians=0).reconstruct(
        victim(1), known(known_attributes=attributes, labels=DIGITS.targets.labels[1:2]), rng=0
    )
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(found.samples[0][mask], DIGITS.targets.x[1][mask], atol=1e-6)
    assert squared_error(found.samples, 1) < 1e-5


def test_beyond_the_edge_of_stability_nothing_is_certified_falsely() -> None:
    unstable = replace(TRAINING, optimiser=SGD(0.2, 0.9))
    found = TrajectoryInversion(jacobians=0, retrainings=2).reconstruct_each(
        [victim(i, unstable) for i in range(2)],
        [known(unstable)] * 2,
        rngs=[np.random.default_rng(i) for i in range(2)],
    )
    for i, one in enumerate(found):
        assert one.stats["response_error"] > 1.0
        assert one.status is not Status.CONVERGED or squared_error(one.samples, i) < 1e-4
        assert ("edge of stability" in one.message) == (one.status is not Status.CONVERGED)


def test_another_training_is_not_certified() -> None:
    # The adversary assumes another learning rate: no record explains what is left.
    wrong = replace(TRAINING, optimiser=SGD(0.019, 0.9))
    found = TrajectoryInversion(jacobians=0, retrainings=2).reconstruct(
        victim(0), known(wrong), rng=0
    )
    assert found.status in (Status.NOT_CONVERGED, Status.WRONG_ASSUMPTION)
