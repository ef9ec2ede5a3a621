"""What the adversary simulates is what a protected client sends, whatever the defences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.attacks.gradients.matching.matching_cases import CLASSES, pictures

from exhume.attacks.gradients.matching.loop import MatchingProblem
from exhume.attacks.gradients.matching.objectives import SquaredL2
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of, read
from exhume.defences import (
    DPSGD,
    ActivationDropout,
    Clipping,
    GradientDropout,
    MixUp,
    Noise,
    Pruning,
    Quantised,
    RecordClipping,
    Rounding,
    Rounds,
    Sign,
    TopK,
    Transform,
)
from exhume.models import MLP, Activation
from exhume.models.convnet import ConvNet
from exhume.models.lenet import LeNet
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Update
from exhume.training.batches import Batches
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.optimisers import SGD

SIDE = 8
MLP_STEP = GradientStep(
    MLP((SIDE, SIDE), 10, (12, 8), Activation.SIGMOID), CLASSES, precision="float64"
)
RELU = GradientStep(ConvNet((SIDE, SIDE), 10, width=4), CLASSES, precision="float64")
LENET = GradientStep(LeNet((SIDE, SIDE), 10), CLASSES, precision="float64")
COUNT = 4


def posed(
    mechanism: Mechanism, data: Records, seed: int = 0
) -> tuple[MatchableRelease, MatchingProblem]:
    release = mechanism.publish(data, rng=np.random.default_rng(seed))
    knowledge = Knowledge(
        record_shape=data.record_shape,
        value_range=(0.0, 1.0),
        training=mechanism,
        labels=data.y,
    )
    reading = read(release, knowledge)
    assert isinstance(reading, MatchableRelease), reading
    return reading, problem_of(reading, SquaredL2(), labels=data.y, precision="float64")


def left(problem: MatchingProblem, data: Records) -> float:
    assert problem.labels is not None
    return problem.residual(problem.frame.tensor(data.x), problem.labels)


DETERMINISTIC = {
    "clipping": Clipping(MLP_STEP, 0.1),
    "clipping of nothing": Clipping(MLP_STEP, 1e6),
    "record clipping": RecordClipping(MLP_STEP, 0.3),
    "record clipping of a convolution": RecordClipping(RELU, 0.5),
    "pruning": Pruning(MLP_STEP, 0.7),
    "global pruning": Pruning(RELU, 0.7, "global"),
    "top-k": TopK(RELU, 40),
    "gradient dropout": GradientDropout(MLP_STEP, 0.5),
    "clipped after dropping": Clipping(GradientDropout(MLP_STEP, 0.5), 0.1),
    "clipped after pruning": Clipping(Pruning(MLP_STEP, 0.6), 0.1),
    "pruned after clipping": Pruning(Clipping(MLP_STEP, 0.1), 0.6),
    "pruned clients": Aggregate(Pruning(MLP_STEP, 0.8), 2),
    "clipped clients": Aggregate(Clipping(MLP_STEP, 0.2), 4),
    "record-clipped clients": Aggregate(RecordClipping(MLP_STEP, 0.3), 2),
    "pruned mean of clients": Pruning(Aggregate(Clipping(MLP_STEP, 0.2), 2), 0.5),
    "local steps of clipped records": LocalSteps(RecordClipping(MLP_STEP, 0.3), SGD(0.5, 0.9), 3),
    "mini-batches of clipped records": LocalSteps(
        RecordClipping(RELU, 0.3), SGD(0.5), 2, Batches(2, seed=1)
    ),
    "clipped local steps": Clipping(LocalSteps(MLP_STEP, SGD(0.5), 2), 0.01),
}


@pytest.mark.parametrize("mechanism", DETERMINISTIC.values(), ids=DETERMINISTIC)
def test_nothing_is_left_at_the_truth(mechanism: Mechanism) -> None:
    data = pictures(SIDE, COUNT)
    reading, problem = posed(mechanism, data)
    assert left(problem, data) < 1e-10
    assert left(problem, Records(data.x[:, ::-1], data.y)) > 1e-2
    # The same release, taken for an unprotected one, contradicts the truth.
    ignored = problem_of(reading.ignoring(), SquaredL2(), labels=data.y, precision="float64")
    harmless = reading.length > 0 and isinstance(mechanism, Clipping) and mechanism.norm > 1e3
    assert harmless or left(ignored, data) > 1e-2


def odds(shares: np.ndarray) -> torch.Tensor:
    """Log odds of shares, those of 0 and 1 as far out as a sigmoid goes."""
    edge = np.clip(shares, 1e-16, 1.0 - 1e-16)
    return torch.tensor(np.log(edge / (1.0 - edge)), dtype=torch.float64)


MIXED = {
    "mixup": (MixUp(MLP_STEP, 0.8), 1),
    "mixup of clipped records": (MixUp(RecordClipping(MLP_STEP, 0.3), 0.8), 1),
    "mixup in local steps": (LocalSteps(MixUp(MLP_STEP, 0.8), SGD(0.5), 3), 3),
    "clipped mixup of clients": (Aggregate(Clipping(MixUp(MLP_STEP, 0.8), 0.2), 2), 2),
}


@pytest.mark.parametrize(("mechanism", "draws"), MIXED.values(), ids=MIXED)
def test_with_the_share_that_was_drawn_mixtures_are_explained(
    mechanism: Mechanism, draws: int
) -> None:
    data, rng = pictures(SIDE, COUNT), np.random.default_rng(5)
    _, problem = posed(mechanism, data, seed=5)
    nuisances = problem.simulation.nuisances
    assert nuisances.expected
    shares = rng.beta(0.8, 0.8, size=draws)
    nuisances.put([odds(share) for share in shares])
    assert left(problem, data) < 1e-10
    assert len(nuisances.values) == draws
    nuisances.put([odds((share + 0.4) % 1.0) for share in shares])
    assert left(problem, data) > 1e-2


DROPPED = {
    "dropout": (ActivationDropout(MLP_STEP, 0.3), 1),
    "dropout behind convolutions": (ActivationDropout(LENET, 0.3), 1),
    "pruned dropout": (Pruning(ActivationDropout(MLP_STEP, 0.3), 0.5), 1),
    "dropout in local steps": (LocalSteps(ActivationDropout(MLP_STEP, 0.3), SGD(0.5), 2), 2),
}


@pytest.mark.parametrize(("mechanism", "steps"), DROPPED.values(), ids=DROPPED)
def test_with_the_masks_that_were_drawn_dropout_is_explained(
    mechanism: Mechanism, steps: int
) -> None:
    data, rng = pictures(SIDE, COUNT), np.random.default_rng(6)
    _, problem = posed(mechanism, data, seed=6)
    left(problem, data)
    nuisances = problem.simulation.nuisances
    shapes = [tuple(value.shape) for value in nuisances.values]
    assert len(shapes) >= steps
    unknown = left(problem, data)
    nuisances.put([odds((rng.random(shape) >= 0.3).astype(float)) for shape in shapes])
    assert left(problem, data) < 1e-10
    assert unknown > 0.1


TRANSFORMS = (
    Clipping(MLP_STEP, 0.1),
    Clipping(MLP_STEP, 1e9),
    Pruning(MLP_STEP, 0.3),
    Pruning(MLP_STEP, 0.9, "global"),
    TopK(MLP_STEP, 17),
    TopK(MLP_STEP, 10**6),
)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: t.describe())
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_what_is_simulated_is_what_is_done(transform: Transform, precision: type) -> None:
    for values in gradients(precision):
        done = transform.changed(dict(enumerate_names(values)), np.random.default_rng(0))
        simulated = transform.simulated([torch.tensor(v) for v in values])
        for one, other in zip(done.values(), simulated, strict=True):
            tolerance = 4 * np.finfo(precision).eps
            np.testing.assert_allclose(other.numpy(), one, rtol=tolerance)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        arrays(np.float64, st.integers(1, 12), elements=st.floats(-1e6, 1e6, width=32)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(TRANSFORMS),
)
def test_whatever_the_numbers(values: list[np.ndarray], transform: Transform) -> None:
    """Ties, zeros and vectors of one entry included: of equal ones the first is kept by both."""
    done = transform.changed(dict(enumerate_names(values)), np.random.default_rng(0))
    simulated = transform.simulated([torch.tensor(v) for v in values])
    for one, other in zip(done.values(), simulated, strict=True):
        np.testing.assert_allclose(other.numpy(), one, rtol=1e-12, atol=1e-15)


def test_soft_signs_are_signs_where_entries_are_large() -> None:
    for values in gradients(np.float64):
        sign = Sign(MLP_STEP)
        done = sign.changed(dict(enumerate_names(values)), np.random.default_rng(0))
        simulated = sign.simulated([torch.tensor(v) for v in values])
        for value, one, other in zip(values, done.values(), simulated, strict=True):
            soft = other.numpy()
            assert (np.sign(soft) == np.sign(one)).all()
            off = np.abs(soft - one) / np.abs(one).max()
            assert off[np.abs(value) > 4.0 * np.abs(value).mean()].max(initial=0.0) < 1e-6
            assert off[np.abs(value) > np.abs(value).mean()].max(initial=0.0) < 0.04


def enumerate_names(values: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(str(index), value) for index, value in enumerate(values)]


def gradients(precision: type) -> list[list[np.ndarray]]:
    """Real gradients of two networks."""
    found = []
    for step in (MLP_STEP, RELU):
        release = step.publish(pictures(SIDE, 3), rng=np.random.default_rng(0))
        found.append([a.astype(precision) for a in release.gradients.values()])
    return found


class TestWhatShows:
    data = pictures(SIDE, COUNT)

    def test_zeros_of_rounding_are_values(self) -> None:
        reading, problem = posed(Rounding(MLP_STEP, 2), self.data)
        assert any((a == 0).any() for a in reading.arrays.values())
        assert all(mask is None for mask in problem.released.masks)
        assert left(problem, self.data) < 2 * np.sqrt(problem.released.noise)

    def test_holes_under_noise_do_not_show(self) -> None:
        _, problem = posed(Noise(Pruning(MLP_STEP, 0.9), 1e-9), self.data)
        assert all(mask is None for mask in problem.released.masks)
        assert left(problem, self.data) < 1e-6

    def test_pruned_entries_are_bounded(self) -> None:
        """The limit changes nothing at the truth, and speaks against louder gradients."""
        _, problem = posed(Pruning(MLP_STEP, 0.9), self.data)
        simulation, released = problem.simulation, problem.released
        assert problem.labels is not None
        assert all(limit is not None and limit > 0 for limit in released.limits)
        whole = simulation.release(problem.frame.tensor(self.data.x), problem.labels)
        hidden = [m == 0 for m in released.masks if m is not None]
        assert len(hidden) == len(whole)
        for factor, silent in ((1.0, True), (3.0, False)):
            seen = released.seen([factor * g.detach() for g in whole])
            excess = sum(float(g[h].abs().sum()) for g, h in zip(seen, hidden, strict=True))
            assert (excess < 1e-12) == silent

    def test_a_unit_that_never_fired_is_no_hole(self) -> None:
        """Chance does not empty a whole filter: these zeros were sent."""
        gradient = {n: a.copy() for n, a in RELU.publish(self.data, rng=rng()).arrays()}
        name = next(n for n, a in gradient.items() if a.ndim == 4 and a[0].size > 30)
        gradient[name][0] = 0.0
        dropped = GradientDropout(RELU, 0.3)
        sent = dropped.changed(gradient, rng())
        knowledge = Knowledge(record_shape=(SIDE, SIDE), training=dropped, labels=self.data.y)
        reading = read(Gradient(sent, COUNT), knowledge)
        assert isinstance(reading, MatchableRelease)
        problem = problem_of(reading, SquaredL2(), labels=self.data.y, precision="float64")
        mask = problem.released.masks[problem.simulation.names.index(name)]
        assert mask is not None
        assert bool(mask[0].all())
        assert not bool(mask[1:].all())


class TestNoise:
    """The deviation that is known is the one that is there; half of it would not be."""

    data = pictures(SIDE, COUNT)
    stacks: ClassVar[dict[str, Mechanism]] = {
        "noise": Noise(RELU, 0.01),
        "rounds": Rounds(Noise(RELU, 0.01), 16),
        "dp-sgd": DPSGD(RELU, 0.5, 0.2),
        "clients": Aggregate(Noise(RELU, 0.02), 4),
        "dropped": GradientDropout(Noise(RELU, 0.01), 0.5),
        "grid": Quantised(MLP_STEP, 6),
        "random grid": Quantised(MLP_STEP, 6, stochastic=True),
        "rounding": Rounding(RELU, 2),
        "local steps": LocalSteps(DPSGD(RELU, 0.01, 5.0), SGD(0.1), 4),
        "two kinds": Noise(Noise(RELU, 0.003), 0.004),
    }

    @pytest.mark.parametrize("mechanism", stacks.values(), ids=stacks)
    def test_the_truth_leaves_the_noise_and_nothing_else(self, mechanism: Mechanism) -> None:
        reading, problem = posed(mechanism, self.data)
        known = np.sqrt(problem.released.noise)
        assert left(problem, self.data) == pytest.approx(known, rel=0.15)
        assert min(reading.stack.deviations(reading.arrays, COUNT).values()) > 0


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_only_some_parameters_of_what_was_clipped_whole() -> None:
    """What a defence does with all parameters counts, though some of them are not seen."""
    data = pictures(SIDE, COUNT)
    for mechanism in (Clipping(MLP_STEP, 0.1), RecordClipping(MLP_STEP, 0.2), TopK(MLP_STEP, 60)):
        whole = mechanism.publish(data, rng=rng())
        assert not isinstance(whole, Update)
        some = {n: a for n, a in whole.arrays() if n.endswith("weight")}
        knowledge = Knowledge(
            record_shape=(SIDE, SIDE), value_range=(0.0, 1.0), training=mechanism, labels=data.y
        )
        reading = read(Gradient(some, COUNT), knowledge)
        assert isinstance(reading, MatchableRelease)
        problem = problem_of(reading, SquaredL2(), labels=data.y, precision="float64")
        assert problem.simulation.names == tuple(some)
        assert left(problem, data) < 1e-10
