"""The unrolled training: its values against the plain loop, its products against each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.contract.own_networks import OWN

from exhume.attacks.informed.trajectory.observation import (
    CentredScores,
    Entries,
    Observation,
    ObservedScores,
    WholeVector,
)
from exhume.attacks.informed.trajectory.one_target.unroll import (
    label_vectors,
    unroll,
    unroll_stepwise,
)
from exhume.derivatives.step_products import AutogradFamily, Known
from exhume.models import CNN, MLP, Activation, Convolution, Imported
from exhume.protocol.records import Records
from exhume.training import (
    SGD,
    Adam,
    Augmentation,
    Batches,
    CosineDecay,
    DPClipping,
    OneCycle,
    RMSprop,
    Training,
)
from exhume.training.simulator import PlainSimulator

CLASSES = (0, 1, 2)
MLP_TRAINING = Training(
    MLP((3, 2), 3, hidden=(4, 3)), CLASSES, SGD(0.3, 0.8, 0.01), epochs=6, precision="float64"
)
CNN_NETWORK = CNN((6, 6), 3, (Convolution(2, 3), Convolution(3, 2, 2)), Activation.TANH)
TRAININGS = {
    "perceptron": MLP_TRAINING,
    **{
        activation.value: replace(
            MLP_TRAINING, network=replace(MLP_TRAINING.network, activation=activation)
        )
        for activation in Activation
        if activation is not Activation.ELU
    },
    "regression": replace(
        MLP_TRAINING, network=MLP((3, 2), 1, hidden=(4,)), classes=None, optimiser=SGD(0.1, 0.5)
    ),
    "batches": replace(MLP_TRAINING, batches=Batches(4, seed=3)),
    "adam": replace(MLP_TRAINING, optimiser=Adam(0.05, epsilon=1e-3, weight_decay=0.01)),
    "clipping": replace(MLP_TRAINING, clipping=DPClipping(0.5, 2.0)),
    "clipped batches": replace(
        MLP_TRAINING, clipping=DPClipping(0.5, 2.0), batches=Batches(4, poisson=True)
    ),
    "convolutions": replace(MLP_TRAINING, network=CNN_NETWORK),
    "convolutions, adam, batches": replace(
        MLP_TRAINING, network=CNN_NETWORK, batches=Batches(4), optimiser=Adam(0.05, epsilon=1e-3)
    ),
}


def _own(name: str, **settings: object) -> Training:
    network = Imported((1, 6, 6), 3, f"{OWN}:{name}")
    return Training(network, CLASSES, **{"precision": "float64", "epochs": 4, **settings})


_DECAYING = Adam(0.02, epsilon=1e-3, weight_decay=0.05, decoupled=True)
REFINED = {
    "batch norm, adamw, cosine": _own("batch_norm", optimiser=_DECAYING, schedule=CosineDecay()),
    "batch norm in batches": _own("batch_norm", batches=Batches(3, seed=2)),
    "dropout": _own("dropout", draw_seed=1, batches=Batches(4), schedule=OneCycle()),
    "both, augmented": _own(
        "both", draw_seed=2, augmentation=Augmentation(0.5, 1, channels_first=True)
    ),
    "smoothed, weighted": _own(
        "channels_first", label_smoothing=0.1, class_weights=(0.5, 1.0, 2.0), gradient_norm=0.1
    ),
    "rmsprop": _own("tied", optimiser=RMSprop(0.01, epsilon=1e-2, momentum=0.5, centred=True)),
    "nesterov": replace(MLP_TRAINING, optimiser=SGD(0.2, 0.9, 1e-2, nesterov=True)),
    "attention": _own("transformer", optimiser=_DECAYING),
}
TRAININGS = {**TRAININGS, **REFINED}


def records(training: Training, count: int = 9) -> Records:
    rng = np.random.default_rng(7)
    shape = training.network.record_shape
    y = rng.integers(0, 3, count) if training.classes else rng.normal(size=count)
    return Records(rng.uniform(size=(count, *shape)), y, rng.uniform(0.5, 1.5, count))


def unrolled_with(
    training: Training, observation: Observation | None = None, *, how=unroll, **options: int
):
    data = records(training)
    fixed_set = data.take(slice(0, -1))
    objective = training.objective("float64")
    weight = float(data.weight[-1])
    seen = WholeVector() if observation is None else observation
    unrolled = how(training, fixed_set, seen, objective=objective, target_weight=weight, **options)
    label = label_vectors(training, data.labels[-1:])[0]
    return unrolled, torch.tensor(np.concatenate([data.x[-1].ravel(), label])), data


@pytest.mark.parametrize("name", TRAININGS)
def test_ends_where_the_plain_loop_ends(name: str) -> None:
    training = TRAININGS[name]
    unrolled, record, data = unrolled_with(training)
    quiet = (
        training if training.clipping is None else replace(training, clipping=DPClipping(0.5, 0))
    )
    *_, end = quiet.walk(training.objective("float64"), data, rng=np.random.default_rng(0))
    expected = torch.cat([end.theta, end.running])
    assert torch.allclose(unrolled.path(record).theta, expected, rtol=1e-10, atol=1e-12)
    assert torch.allclose(unrolled.trained(record), expected, rtol=1e-10, atol=1e-12)


def test_base_is_the_simulators() -> None:
    unrolled, _, data = unrolled_with(MLP_TRAINING)
    base = PlainSimulator(MLP_TRAINING, data.take(slice(0, -1))).base
    np.testing.assert_allclose(unrolled.base.numpy(), base, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", TRAININGS)
def test_products_are_transposes_and_derivatives(name: str) -> None:
    unrolled, record, _ = unrolled_with(TRAININGS[name])
    path = unrolled.path(record)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        v = torch.randn(len(record), generator=generator, dtype=torch.float64)
        u = torch.randn(len(path.theta), generator=generator, dtype=torch.float64)
        forwards = path.jvp(v)
        assert float(forwards @ u) == pytest.approx(float(v @ path.vjp(u)), rel=1e-9)
        step = 1e-5
        ahead, behind = unrolled.trained(record + step * v), unrolled.trained(record - step * v)
        difference = (ahead - behind) / (2 * step)
        assert float((forwards - difference).norm()) < 1e-5 * float(difference.norm())


@pytest.mark.parametrize("name", ["perceptron", "adam", "batches", "convolutions", *REFINED])
def test_products_reach_the_initial_parameters(name: str) -> None:
    unrolled, record, _ = unrolled_with(TRAININGS[name], how=unroll_stepwise)
    path = unrolled.path(record)
    generator = torch.Generator().manual_seed(2)
    v = torch.randn(len(unrolled.initial), generator=generator, dtype=torch.float64)
    u = torch.randn(len(path.theta), generator=generator, dtype=torch.float64)
    moved = path.push(v, torch.zeros_like(record))
    assert float(moved @ u) == pytest.approx(float(v @ path.pull(u)[0]), rel=1e-9)
    start, ends = unrolled.initial, []
    for step in (1e-6, -1e-6):
        unrolled.initial = start + step * v
        ends.append(unrolled.trained(record))
    assert float((moved - (ends[0] - ends[1]) / 2e-6).norm()) < 1e-6 * float(moved.norm())


@pytest.mark.parametrize("name", [n for n, t in TRAININGS.items() if isinstance(t.network, MLP)])
def test_the_kernel_form_is_the_stepwise_one(name: str) -> None:
    fast, record, _ = unrolled_with(TRAININGS[name])
    slow, _, _ = unrolled_with(TRAININGS[name], how=unroll_stepwise)
    generator = torch.Generator().manual_seed(3)
    here, there = fast.path(record), slow.path(record)
    v = torch.randn(len(record), generator=generator, dtype=torch.float64)
    u = torch.randn(len(here.theta), generator=generator, dtype=torch.float64)
    close = {"rtol": 1e-8, "atol": 1e-11}
    assert torch.allclose(fast.base, slow.base, **close)
    assert torch.allclose(here.theta, there.theta, **close)
    assert torch.allclose(here.push(u, v), there.push(u, v), **close)
    for one, other in zip(here.pull(u), there.pull(u), strict=True):
        assert torch.allclose(one, other, **close)


def test_amplification_is_the_largest_stretch() -> None:
    unrolled, record, _ = unrolled_with(MLP_TRAINING)
    path = unrolled.path(record)
    still = torch.zeros_like(record)
    columns = [path.push(e, still) for e in torch.eye(len(path.theta), dtype=torch.float64)]
    largest = float(torch.linalg.matrix_norm(torch.stack(columns), 2))
    found = path.amplification(np.random.default_rng(0), rounds=40)
    assert 0.97 * largest < found <= largest * (1 + 1e-9)


def test_by_hand_agrees_with_automatic_differentiation() -> None:
    unrolled, record, _ = unrolled_with(TRAININGS["batches"], how=unroll_stepwise)
    by_hand = unrolled.path(record)
    flat = unrolled.losses.known
    shaped = Known(flat.x.reshape(-1, 3, 2), flat.labels, flat.weight)
    unrolled.losses = AutogradFamily(MLP_TRAINING.objective("float64"), shaped)
    by_graph = unrolled.path(record)
    v, u = torch.ones_like(record), torch.ones_like(by_hand.theta)
    assert torch.allclose(by_hand.jvp(v), by_graph.jvp(v), rtol=1e-9, atol=1e-12)
    assert torch.allclose(by_hand.vjp(u), by_graph.vjp(u), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["perceptron", "convolutions", "clipping", *REFINED])
def test_forgotten_steps_are_computed_again(name: str) -> None:
    whole, record, _ = unrolled_with(TRAININGS[name])
    none_kept, _, _ = unrolled_with(TRAININGS[name], memory_limit=0)
    v = torch.ones_like(record)
    assert torch.allclose(whole.path(record).jvp(v), none_kept.path(record).jvp(v), rtol=1e-12)
    assert all(kept is None for kept in none_kept.path(record)._kept)


def test_observations_are_differentiable() -> None:
    training = MLP_TRAINING
    objective = training.objective("float64")
    queries = torch.rand(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seen = [Entries(torch.tensor([0, 5, 7])), ObservedScores(objective, queries)]
    for observation in (*seen, CentredScores(objective, queries)):
        unrolled, record, _ = unrolled_with(training, observation)
        path = unrolled.path(record)
        v = torch.ones_like(record)
        u = torch.arange(1.0, len(path.observed) + 1, dtype=torch.float64)
        forwards = path.jvp(v)
        assert float(forwards @ u) == pytest.approx(float(v @ path.vjp(u)), rel=1e-9)
        ahead, behind = unrolled.observed(record + 1e-5 * v), unrolled.observed(record - 1e-5 * v)
        assert torch.allclose(forwards, (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-8)
