"""Networks of any kind: recognised where known by heart, differentiated where not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.attacks.weights_only.test_kkt import halved

from exhume.attacks.weights_only import KKT, ChangeSparsity, KnownInitialisation, RowSpace
from exhume.attacks.weights_only.authenticity import compare
from exhume.attacks.weights_only.read_weights import (
    GeneralNetwork,
    HiddenLayer,
    known_weights,
    read_any,
)
from exhume.attacks.weights_only.record_counts import candidate_classes
from exhume.attacks.weights_only.row_span import AllPixels, coordinates_of, span_of
from exhume.attacks.weights_only.starts import GivenStart
from exhume.attacks.weights_only.stationarity import Stationarity
from exhume.attacks.weights_only.stationarity_autograd import AnyStationarity, SmoothSlopes
from exhume.models import CNN, MLP, Activation, Convolution, Imported, Initialisation
from exhume.models.base import Network
from exhume.models.two_layer import TwoLayer
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import SGD, Training
from exhume.training.stationary import Stationary

COUNT = 16
CODE = """
from torch import nn
from torch.nn import functional as F

def one():
    return nn.Sequential(
        nn.Flatten(), nn.Sequential(nn.Linear(196, 60), nn.ReLU(), nn.Dropout()), nn.Linear(60, 2)
    )

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(196, 80), nn.Linear(80, 40), nn.Linear(40, 2)
    def forward(self, x):
        x = (x.flatten(1) - 0.3) / 0.35
        return self.c(F.relu(self.b(F.relu(self.a(x), inplace=True))))

class Around(Deep):
    def __init__(self):
        super().__init__()
        self.skip = nn.Linear(196, 2)
    def forward(self, x):
        return super().forward(x) + self.skip(x.flatten(1))

class Normalised(Deep):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(80)
    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.norm(self.a(x.flatten(1)))))))
"""


@pytest.fixture(scope="module", autouse=True)
def _code(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("code")
    (folder / "nets_of_any_kind.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def own(name: str) -> Imported:
    return Imported((14, 14), 2, f"nets_of_any_kind:{name}")


def random_release(network: Network, *, centre: bool = True) -> tuple[Weights, Knowledge]:
    """Random weights of a network in double precision, and what is known of it."""
    rng = np.random.default_rng(0)
    values = {n: rng.normal(size=s) for n, s in network.parameter_shapes().items()}
    if centre:
        values["centre"] = rng.normal(size=network.record_shape)
    training = Stationary(network, tuple(range(max(2, network.outputs))))
    return Weights(values), Knowledge(record_shape=network.record_shape, training=training)


@pytest.mark.parametrize(("outputs", "bias"), [(1, False), (1, True), (3, False), (3, True)])
def test_what_is_written_out_agrees_with_what_is_differentiated(outputs, bias):
    release, known = random_release(TwoLayer((6,), outputs, 9, hidden_bias=True, output_bias=bias))
    fast, slow = (
        known_weights(release, known).hidden_layer(),
        known_weights(release, known).module(),
    )
    assert isinstance(fast, HiddenLayer)
    assert isinstance(slow, GeneralNetwork)
    span = span_of(fast, 7, dtype=torch.float64)
    classes = torch.tensor(candidate_classes(fast, known, 5))
    torch.manual_seed(0)
    q = span.fitted(torch.randn(2, 5, span.rank, dtype=torch.float64))
    rho = torch.randn(2, 5, dtype=torch.float64)
    slope = torch.tensor([5.0, 500.0], dtype=torch.float64)
    wanted = Stationarity(fast, span).evaluate(q, rho, classes, slope)
    problem = AnyStationarity(slow, span)
    assert problem.together
    assert problem.layers is not None
    ways = ((True, problem.layers), (True, None), (False, None))
    for problem.together, problem.layers in ways:
        found = problem.evaluate(q, rho, classes, slope)
        assert torch.allclose(found.value, wanted.value, rtol=1e-12)
        assert torch.allclose(found.q, wanted.q, rtol=1e-9, atol=1e-9)
        assert torch.allclose(found.rho, wanted.rho, rtol=1e-9, atol=1e-9)
    x = np.random.default_rng(1).normal(size=(4, 6))
    assert slow.scores(x) == pytest.approx(fast.scores(x))


def test_among_all_pixels_it_is_the_plain_residual_of_every_parameter():
    release, known = random_release(MLP((2, 3), 2, (5, 4), Activation.RELU))
    network = read_any(release, known)
    assert isinstance(network, GeneralNetwork)
    everything = AllPixels(torch.zeros(6, dtype=torch.float64))
    problem = AnyStationarity(network, everything)
    assert problem.layers is not None
    assert len(problem.layers) == 3
    torch.manual_seed(0)
    q, rho = torch.randn(2, 4, 6, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    classes, slope = torch.tensor([0, 1, 1, 0]), torch.tensor([5.0, 500.0], dtype=torch.float64)
    fast = problem.evaluate(q, rho, classes, slope)
    problem.layers = None
    slow = problem.evaluate(q, rho, classes, slope)
    assert torch.allclose(fast.value, slow.value, rtol=1e-12)
    assert torch.allclose(fast.q, slow.q, rtol=1e-9, atol=1e-9)
    assert torch.allclose(fast.rho, slow.rho, rtol=1e-9, atol=1e-9)
    squares = sum(float(np.square(v).sum()) for n, v in network.parameters.items() if n != "centre")
    assert problem.size == pytest.approx(squares)


def test_a_search_of_all_pixels_keeps_what_lies_outside_the_span():
    data, others = halved(6), halved(6, skip=200).x
    training = Stationary(MLP((14, 14), 2, (20,), Activation.RELU), (0, 1), weight_decay=1e-2)
    release = training.publish(data, rng=np.random.default_rng(0))
    known = Knowledge(record_shape=(14, 14), training=training, labels=data.labels)
    ends = {}
    for within in (True, False):
        attack = KKT(
            *(6, 1, 1, 5),
            rate=1e-3,
            start=GivenStart(others),
            from_centre=False,
            draws=0,
            within_span=within,
        )
        found = attack.reconstruct(release, known, rng=0)
        assert found.stats["rank"] == (6 if within else 196)
        gaps = np.abs(found.samples[:, None] - others[None]).max(axis=(2, 3))
        ends[within] = gaps.min(axis=1).max()
    # Five steps of Adam move a value by the rate each, and no further.
    assert ends[False] <= 5e-3 + 1e-6
    assert ends[True] > 0.1


@pytest.mark.parametrize(
    "network",
    [
        MLP((6,), 2, (5, 4), Activation.TANH),
        MLP((6,), 2, (), Activation.TANH),
        TwoLayer((6,), 2, 5, Activation.TANH),
        CNN((5, 5), 2, (Convolution(3, 2), Convolution(2, 2)), Activation.TANH),
    ],
    ids=["deep", "affine", "no bias", "convolutions"],
)
def test_gradients_agree_with_finite_differences(network):
    release, known = random_release(network)
    found = read_any(release, known)
    assert isinstance(found, GeneralNetwork)
    span = (
        AllPixels(torch.zeros(25, dtype=torch.float64))
        if found.first is None
        else span_of(found, 4, dtype=torch.float64)
    )
    problem = AnyStationarity(found, span)
    torch.manual_seed(0)
    q = span.fitted(torch.randn(1, 3, span.rank, dtype=torch.float64))
    rho, classes = torch.randn(1, 3, dtype=torch.float64), torch.tensor([0, 1, 1])
    slope = torch.tensor([50.0], dtype=torch.float64)
    at = problem.evaluate(q, rho, classes, slope)
    for k in range(span.rank if span.rank < 5 else 5):
        step = torch.zeros_like(q)
        step[0, 1, k] = 1e-5
        ends = [problem.evaluate(q + s * step, rho, classes, slope).value for s in (1, -1)]
        difference = float(ends[0] - ends[1]) / 2e-5
        assert float(at.q[0, 1, k]) == pytest.approx(difference, rel=1e-5, abs=1e-6)
    step = torch.tensor([[0.0, 0.0, 1e-5]], dtype=torch.float64)
    ends = [problem.evaluate(q, rho + s * step, classes, slope).value for s in (1, -1)]
    assert float(at.rho[0, 2]) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-6)


def test_a_rectifier_keeps_its_value_and_gets_a_slope():
    z = torch.tensor([-300.0, -0.1, 0.0, 0.2, 300.0], requires_grad=True)
    for leak, called in ((0.0, torch.nn.ReLU(inplace=True)), (0.1, torch.nn.LeakyReLU(0.1))):
        with SmoothSlopes(torch.tensor(10.0)):
            found = called(z)
        assert torch.equal(found, torch.nn.functional.leaky_relu(z, leak))
        (slope,) = torch.autograd.grad(found.sum(), z, create_graph=True)
        assert torch.allclose(slope, leak + (1 - leak) * torch.sigmoid(10 * z))
        (bend,) = torch.autograd.grad(slope.sum(), z)
        smooth = torch.sigmoid(10 * z)
        assert torch.allclose(bend, (1 - leak) * 10 * smooth * (1 - smooth), atol=1e-6)


def test_networks_are_recognised_by_their_layers():
    known = read_any(*random_release(own("one"), centre=False))
    assert isinstance(known, HiddenLayer)
    assert known.first.shape == (60, 197)
    deep = read_any(*random_release(own("Deep")))
    assert isinstance(deep, GeneralNetwork)
    assert deep.first_name == "a"
    assert deep.rectified is False  # what follows is a function, and may be anything
    assert deep.scale == pytest.approx(np.full(196, 1 / 0.35))
    assert deep.centre == pytest.approx(deep.subtracted + 0.3)
    around = read_any(*random_release(own("Around")))
    assert isinstance(around, GeneralNetwork)
    assert around.first is None
    release, knowledge = random_release(own("Around"))
    assert "fully connected" in str(RowSpace().accepts(release, knowledge))
    assert "number of records" in str(KKT().accepts(release, knowledge))
    assert KKT(records=3).accepts(release, knowledge) is None
    assert "normalises" in str(KKT().accepts(*random_release(own("Normalised"))))


def test_without_a_first_layer_a_search_begins_at_what_is_known():
    release, known = random_release(own("Around"), centre=False)
    network = read_any(release, known)
    assert isinstance(network, HiddenLayer | GeneralNetwork)
    ranged = replace(known, value_range=(0.0, 4.0))
    assert float(coordinates_of(network, 2, ranged).centre[0]) == 2.0
    alike = replace(ranged, shadow_targets=Records(np.full((3, 14, 14), 0.25)))
    assert float(coordinates_of(network, 2, alike).centre[0]) == 0.25


@pytest.fixture(scope="module")
def attacked():
    """Sixteen pictures, and what a deep network that normalises them keeps of them."""
    data = halved(COUNT)
    training = Training(
        *(own("Deep"), (0, 1), SGD(0.1, 0.9, weight_decay=3e-3), 2000),
        initial=Initialisation(seed=None),
    )
    release = training.publish(data, rng=np.random.default_rng(3))
    return (
        data,
        release,
        Knowledge(record_shape=(14, 14), value_range=(0.0, 1.0), training=training),
    )


@pytest.mark.parametrize(
    ("attack", "wanted"),
    [
        (KKT(records=COUNT, steps=1000, restarts=2, draws=0), 2),
        (KKT(records=COUNT, steps=100, restarts=1, draws=400), 5),
        (RowSpace(records=COUNT, draws=400), 6),
    ],
    ids=["search alone", "kkt", "row-space"],
)
def test_pictures_come_out_of_deep_networks_too(attack, wanted, attacked):
    data, release, known = attacked
    found = attack.reconstruct(release, known, rng=0)
    strangers = halved(COUNT, skip=200)
    seen = compare(found.samples, data.x, strangers.x, centre=data.x.mean(axis=0))
    assert seen.recovered(0.7) >= wanted
    assert seen.false_positives(0.7) <= 1


def test_a_known_start_gives_away_records_of_deep_networks():
    data = halved(6)
    data = Records(data.x, 2.0 * data.labels - 1.0)
    training = Training(
        MLP((14, 14), 1, (300, 20), Activation.RELU),
        *(None, SGD(0.02, 0.0), 200),
        initial=Initialisation(seed=1),
        precision="float64",
    )
    release = training.publish(data, rng=np.random.default_rng(0))
    known = Knowledge(record_shape=(14, 14), value_range=(0.0, 1.0), training=training)
    found = KnownInitialisation(steps=200, restarts=2, draws=200).reconstruct(release, known, rng=0)
    strangers = halved(6, skip=200)
    assert compare(found.samples, data.x, strangers.x).recovered(0.9) >= 4
    exact = ChangeSparsity().reconstruct(release, known, rng=0)
    gaps = np.abs(exact.samples[:, None] - data.x[None]).max(axis=(2, 3))
    assert gaps.min(axis=0).max() < 1e-5
