"""The stationarity condition: its gradient, its batch, and what comes out of real weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from exhume.attacks.weights_only import KKT, RowSpace
from exhume.attacks.weights_only.adam_search import Schedule, search
from exhume.attacks.weights_only.read_weights import HiddenLayer, read_any
from exhume.attacks.weights_only.record_counts import candidate_classes
from exhume.attacks.weights_only.row_span import RowSpan, span_of
from exhume.attacks.weights_only.starts import GivenStart
from exhume.attacks.weights_only.stationarity import Stationarity
from exhume.data import load
from exhume.metrics import NCC
from exhume.models.two_layer import TwoLayer
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Weights
from exhume.training.stationary import Stationary

COUNT = 16


def halved(count: int, *, skip: int = 0) -> Records:
    """Embedded pictures at half resolution, as many odd as even classes."""
    train = load("fashion-mnist-small").train
    x = train.x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).astype(np.float64)
    odd = train.labels % 2
    chosen = [np.flatnonzero(odd == k)[skip : skip + count // 2] for k in (0, 1)]
    index = np.concatenate(chosen)
    return Records(x[index], odd[index])


@pytest.fixture(scope="module")
def data() -> Records:
    return halved(COUNT)


@pytest.fixture(scope="module")
def training() -> Stationary:
    return Stationary(TwoLayer((14, 14), 1, 80, hidden_bias=True), (0, 1), rounds=2)


@pytest.fixture(scope="module")
def release(training, data) -> Weights:
    return training.publish(data, rng=np.random.default_rng(3))


@pytest.fixture(scope="module")
def knowledge(training) -> Knowledge:
    return Knowledge(record_shape=(14, 14), value_range=(0.0, 1.0), training=training)


def random_problem(outputs: int, *, bias: bool) -> tuple[Stationarity, RowSpan, torch.Tensor]:
    """A small network with random weights, in double precision."""
    rng = np.random.default_rng(0)
    network = TwoLayer((6,), outputs, 9, hidden_bias=True, output_bias=bias)
    values = {n: rng.normal(size=s) for n, s in network.parameter_shapes().items()}
    trained = Stationary(network, tuple(range(max(2, outputs))))
    known = Knowledge(record_shape=(6,), training=trained)
    found = read_any(Weights(values), known)
    assert isinstance(found, HiddenLayer)
    span = span_of(found, 7, dtype=torch.float64)
    classes = torch.tensor(candidate_classes(found, known, 5))
    return Stationarity(found, span), span, classes


@pytest.mark.parametrize(("outputs", "bias"), [(1, False), (1, True), (3, False), (3, True)])
def test_the_gradient_agrees_with_autograd_of_the_smoothed_residual(outputs, bias):
    problem, span, classes = random_problem(outputs, bias=bias)
    torch.manual_seed(0)
    q = span.fitted(torch.randn(2, 5, span.rank, dtype=torch.float64)).requires_grad_()
    rho = torch.randn(2, 5, dtype=torch.float64).requires_grad_()
    c = rho.exp()[..., None] * problem.directions(q, classes).detach()

    class Smoothed(torch.autograd.Function):
        """A ReLU whose derivative is the smooth slope."""

        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z.relu()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * torch.sigmoid(5.0 * ctx.saved_tensors[0])

    z = q @ problem.first.T
    back = (c @ problem.output) * torch.sigmoid(5.0 * z)
    e = (problem.first - back.transpose(1, 2) @ q) * problem.weight
    e_output = problem.output - c.transpose(1, 2) @ Smoothed.apply(z)
    value = e.square().sum((1, 2)) + e_output.square().sum((1, 2))
    if problem.output_bias is not None:
        value = value + (problem.output_bias - c.sum(1)).square().sum(1)
    dq, drho = torch.autograd.grad(value.sum(), (q, rho))
    slope = torch.full((2,), 5.0, dtype=torch.float64)
    found = problem.evaluate(q.detach(), rho.detach(), classes, slope)
    assert torch.allclose(found.value, value, rtol=1e-12)
    assert torch.allclose(found.q, dq, rtol=1e-9, atol=1e-10)
    assert torch.allclose(found.rho, drho, rtol=1e-9, atol=1e-10)


def test_a_batch_of_restarts_gives_what_one_after_another_gives():
    problem, span, classes = random_problem(1, bias=False)
    torch.manual_seed(1)
    q = 0.1 * torch.randn(3, 5, span.rank, dtype=torch.float64)
    rho = torch.full((3, 5), -3.0, dtype=torch.float64)
    pairs = ((50.0, 50.0), (10.0, 50.0), (5.0, 20.0))
    together = search(problem, span, q, rho, classes, Schedule(steps=60, slopes=pairs), None)
    for i in range(3):
        schedule = Schedule(steps=60, slopes=pairs[i : i + 1])
        alone = search(problem, span, q[i : i + 1], rho[i : i + 1], classes, schedule, None)
        assert torch.allclose(together.q[i], alone.q[0], rtol=1e-8, atol=1e-10)
        assert torch.allclose(together.values[i], alone.values[0], rtol=1e-8)


def test_the_rows_of_a_trained_first_layer_span_the_training_records(release, knowledge, data):
    network = read_any(release, knowledge)
    assert isinstance(network, HiddenLayer)
    span = span_of(network, COUNT, dtype=torch.float64)
    strangers = halved(COUNT, skip=200)
    shares = []
    for records in (data, strangers):
        x = torch.tensor(records.x.reshape(COUNT, -1))
        inside = span.coordinates(x) @ span.pixels
        shares.append(float(((inside - x).norm(dim=1) / (x - span.centre).norm(dim=1)).median()))
    assert shares[0] < 0.1 < 0.4 < shares[1]


@pytest.mark.parametrize(
    ("attack", "wanted"),
    [
        (KKT(records=COUNT, steps=1500, restarts=4, draws=0), 4),
        (RowSpace(records=COUNT, draws=400), 6),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_pictures_come_back_and_strangers_do_not(attack, wanted, release, knowledge, data):
    found = attack.reconstruct(release, knowledge, rng=0)
    strangers = halved(COUNT, skip=200)
    centre = release.parameters["centre"]
    both = np.concatenate([data.x, strangers.x]) - centre
    table = NCC().pairwise(both, found.samples - centre)
    nearest, best = table.argmax(axis=0), table.max(axis=0)
    hits = set(nearest[best > 0.7].tolist())
    assert len([i for i in hits if i < COUNT]) >= wanted
    assert len([i for i in hits if i >= COUNT]) <= 1
    again = attack.reconstruct(release, knowledge, rng=0)
    assert np.array_equal(found.samples, again.samples)


def test_a_start_at_the_training_records_lowers_the_objective_all_the_same(
    release, knowledge, data
):
    attack = KKT(
        records=COUNT,
        excess=1,
        restarts=1,
        steps=300,
        draws=0,
        start=GivenStart(data.x),
        from_centre=False,
    )
    known = replace(knowledge, labels=data.labels)
    found = attack.reconstruct(release, known, rng=0)
    assert found.stats["residual"] < found.stats["initial"]
    assert len(found) <= COUNT


def test_what_it_refuses_it_names(release, knowledge, training):
    assert "Gradient" in str(KKT().accepts(Gradient({"a": np.ones(2)}, 1), knowledge))
    lacking = Weights({k: v for k, v in release.parameters.items() if k != "hidden.bias"})
    assert "hidden.bias" in str(KKT().accepts(lacking, knowledge))
    assert "architecture" in str(KKT().accepts(release, replace(knowledge, training=None)))
    other = replace(knowledge, record_shape=(196,))
    assert "(196,)" in str(KKT().accepts(release, other))
    assert "range" in str(RowSpace().accepts(release, replace(knowledge, value_range=None)))
    for settings in (
        {"excess": 0},
        {"multipliers": (0.0, 1.0)},
        {"slopes": ()},
        {"records": 0},
        {"draws": -1},
    ):
        with pytest.raises(InputError):
            KKT(**settings)
    with pytest.raises(InputError, match="draws"):
        RowSpace(draws=0)
