"""The loop and its parts: gradients against finite differences, simulations against mechanisms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from exhume.attacks.gradients.matching.loop import MatchingProblem, StepBudget, match, without
from exhume.attacks.gradients.matching.objectives import (
    Cosine,
    Distance,
    LayerCosine,
    SquaredL2,
    batch_norm_distance,
    feature_distance,
    span_distance,
    total_variation,
)
from exhume.attacks.gradients.matching.optimisers import LBFGS, CosineAdam, SignedAdam
from exhume.attacks.gradients.matching.priors import DeepImagePrior, Pixels
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of, read
from exhume.attacks.gradients.matching.sent_entries import withheld
from exhume.data import load
from exhume.derivatives.smoothed_relu import Continuation
from exhume.models import MLP, Activation
from exhume.models.convnet import ConvNet
from exhume.models.resnet import ResNet
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.batches import Batches
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.optimisers import SGD

SHAPE = (8, 8)
CLASSES = tuple(range(10))
SMOOTH = GradientStep(MLP(SHAPE, 10, (6,), Activation.SIGMOID), CLASSES, precision="float64")
NORMED = GradientStep(ResNet(SHAPE, 10, width=2, blocks=(1, 1)), CLASSES, precision="float64")
RELU = GradientStep(ConvNet(SHAPE, 10, width=4), CLASSES, precision="float64")


def batch(count: int, first: int = 0) -> Records:
    records = load("fashion-mnist-small").train
    seen: dict[int, int] = {}
    for index in range(first, len(records)):
        seen.setdefault(int(records.labels[index]), index)
    chosen = [seen[label] for label in sorted(seen)][:count]
    return Records(records.x[chosen][:, 2:26:3, 2:26:3].astype(np.float64), records.y[chosen])


def posed(
    mechanism: Mechanism, data: Records, distance: Distance, **changes: object
) -> tuple[MatchableRelease, MatchingProblem]:
    release = mechanism.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=SHAPE, value_range=(0.0, 1.0), training=mechanism, labels=data.y
    )
    reading = read(release, knowledge)
    assert isinstance(reading, MatchableRelease), reading
    problem = problem_of(reading, distance, labels=data.y, precision="float64")
    return reading, replace(problem, **changes)  # type: ignore[arg-type]


MECHANISMS = (
    SMOOTH,
    NORMED,
    RELU,
    replace(NORMED, batch_norm="eval"),
    LocalSteps(SMOOTH, SGD(0.1, 0.9, 1e-3), 2),
    LocalSteps(SMOOTH, SGD(0.1), 2, Batches(2, seed=3)),
    Aggregate(SMOOTH, 2),
    Aggregate(NORMED, 2),
    Aggregate(LocalSteps(SMOOTH, SGD(0.1), 2), 2),
)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.describe()[:50])
def test_the_truth_explains_the_release(mechanism: Mechanism) -> None:
    """The simulation is the mechanism: nothing is left at the truth, in any of its forms."""
    data = batch(4)
    _, problem = posed(mechanism, data, SquaredL2())
    assert problem.labels is not None
    truth = problem.frame.tensor(data.x)
    assert problem.residual(truth, problem.labels) < 1e-12
    assert problem.residual(truth.flip(1), problem.labels) > 1e-2


@pytest.mark.parametrize("mechanism", [SMOOTH, NORMED, MECHANISMS[4]], ids=["mlp", "bn", "local"])
@pytest.mark.parametrize("distance", [SquaredL2(), Cosine(), LayerCosine()], ids=repr)
def test_slopes_are_finite_differences(mechanism: Mechanism, distance: Distance) -> None:
    """The double backward against central differences of the loss itself."""
    _, problem = posed(mechanism, batch(2), distance, total_variation=0.1)
    assert problem.labels is not None
    rng = np.random.default_rng(1)
    x = problem.frame.tensor(rng.random((2, *SHAPE))).requires_grad_(True)
    slope = torch.autograd.grad(problem.losses(x, problem.labels)[0], x)[0]
    direction = problem.frame.tensor(rng.standard_normal((2, *SHAPE)))
    step = 1e-5
    ends = [problem.losses(x.detach() + s * direction, problem.labels)[0] for s in (step, -step)]
    numeric = float((ends[0] - ends[1]).detach()) / (2 * step)
    assert float((slope * direction).sum()) == pytest.approx(numeric, rel=1e-4, abs=1e-8)


def test_distances_by_hand() -> None:
    reading, problem = posed(SMOOTH, batch(1), SquaredL2())
    released = problem.released
    double = [2.0 * v for v in released.values]
    assert float(SquaredL2()(double, released)) == pytest.approx(1.0)
    assert float(Cosine()(double, released)) == pytest.approx(0.0, abs=1e-12)
    assert float(LayerCosine()(double, released)) == pytest.approx(0.0, abs=1e-12)
    turned = [*released.values[:-1], -released.values[-1]]
    sizes = [v.numel() for v in released.values]
    assert float(LayerCosine()(turned, released)) == pytest.approx(2 * sizes[-1] / sum(sizes))
    equal = LayerCosine(by_size=False)
    assert float(equal(turned, released)) == pytest.approx(2 / len(sizes))
    assert reading.length == pytest.approx(released.scale)


def test_terms_by_hand() -> None:
    ramp = torch.arange(4.0).repeat(3, 1)[None]
    assert float(total_variation(ramp, 0.5)) == pytest.approx(2.0)
    with pytest.raises(InputError, match="total variation needs images"):
        total_variation(torch.ones(2, 3), 1.0)
    seen = [(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 2.0]))]
    known = [(torch.tensor([1.0, 1.0]), torch.tensor([4.0, 1.0]))]
    assert float(batch_norm_distance(seen, known)) == pytest.approx((1.0 + 1.0) / 2)
    axes = torch.eye(3)
    assert float(feature_distance(axes[:2], -axes[:2])) == pytest.approx(0.0, abs=1e-7)
    assert float(feature_distance(axes[:1], axes[1:2])) == pytest.approx(1.0)
    assert float(span_distance(axes[:1] + axes[2:], axes[:2])) == pytest.approx(0.5)


def test_sharpening_ends_at_the_exact_network() -> None:
    _, problem = posed(RELU, batch(2), Cosine())
    assert problem.labels is not None
    kinks, x = problem.simulation.kinks, problem.frame.tensor(batch(2).x)
    assert kinks.count == 4
    off = []
    for sharpness in (1.0, 10.0, 1e6):
        kinks.sharpness = sharpness
        off.append(problem.residual(x, problem.labels))
    assert off[0] > 2 * off[1] > 20 * off[2]
    assert off[2] < 0.02
    plan = Continuation(1.0, 16.0, 0.8, 0.1)
    assert plan.sharpness(0.4) == pytest.approx(4.0)
    assert plan.sharpness(0.8) is None
    assert plan.variation_factor(0.9) == pytest.approx(0.1)
    with pytest.raises(InputError, match="continuation"):
        Continuation(first=2.0, last=1.0)


@pytest.mark.parametrize(
    ("prior", "optimiser", "steps"),
    [
        (Pixels(clamped=False), LBFGS(), 3),
        (Pixels(), SignedAdam(), 40),
        (DeepImagePrior(width=4), CosineAdam(), 25),
    ],
    ids=["lbfgs", "signed", "unet"],
)
def test_loop_goes_down_and_repeats(prior, optimiser, steps: int) -> None:
    _, problem = posed(SMOOTH, batch(1), SquaredL2())
    told: list[float] = []

    def progress(done: int, total: int, loss: float) -> None:
        assert 1 <= done <= total == steps
        told.append(loss)

    budget = StepBudget(steps=steps, restarts=2)
    one, again = (
        match(problem, prior, optimiser, budget, np.random.default_rng(2), progress=progress)
        for _ in range(2)
    )
    assert torch.equal(one.best.images, again.best.images)
    assert one.best.loss == min(run.loss for run in one.runs) < 0.3 * one.best.history[0]
    assert problem.labels is not None
    kept = problem.losses(one.best.images, problem.labels)[0]
    assert float(kept.detach()) == pytest.approx(one.best.loss, rel=1e-9)
    assert one.disagreement is not None
    assert one.disagreement > 0
    assert len(told) == sum(run.steps for run in (*one.runs, *again.runs))


def test_budget_errors() -> None:
    with pytest.raises(InputError, match="at least 1"):
        StepBudget(steps=0)


def test_known_pixels_stay() -> None:
    data = batch(1)
    mask = np.zeros(SHAPE, dtype=bool)
    mask[:4] = True
    release = SMOOTH.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=SHAPE,
        value_range=(0.0, 1.0),
        training=SMOOTH,
        labels=data.y,
        known_attributes=KnownAttributes(mask, data.x[0]),
    )
    reading = read(release, knowledge)
    assert isinstance(reading, MatchableRelease)
    problem = problem_of(reading, SquaredL2(), labels=data.y, precision="float64")
    found = match(problem, Pixels(), SignedAdam(), StepBudget(steps=5), np.random.default_rng(0))
    np.testing.assert_allclose(found.best.images[0, :4], data.x[0, :4])


def test_layers_held_out_are_not_compared() -> None:
    _, problem = posed(SMOOTH, batch(2), SquaredL2())
    assert problem.labels is not None
    x = problem.frame.tensor(batch(2).x).flip(2)
    parts = []
    for keep in range(4):
        rest = without(problem, [i for i in range(4) if i != keep])
        parts.append(float(rest.losses(x, problem.labels)[1].detach()))
    whole = float(problem.losses(x, problem.labels)[1].detach())
    assert sum(parts) == pytest.approx(whole, rel=1e-9)


def test_withheld_entries_are_told_from_idle_units() -> None:
    rng = np.random.default_rng(0)
    gradient = rng.standard_normal((8, 4, 3, 3))
    idle = gradient.copy()
    idle[2], idle[:, 1] = 0.0, 0.0
    assert withheld(gradient) is None
    assert withheld(idle) is None
    pruned = np.where(np.abs(gradient) > 0.7, gradient, 0.0)
    found = withheld(pruned)
    assert found is not None
    np.testing.assert_array_equal(found, pruned == 0.0)


def test_pruned_entries_are_left_out() -> None:
    data = batch(2)
    release = SMOOTH.publish(data, rng=np.random.default_rng(0))
    cut = {
        n: np.where(np.abs(a) > np.quantile(np.abs(a), 0.4), a, 0.0)
        for n, a in release.gradients.items()
    }
    knowledge = Knowledge(record_shape=SHAPE, training=SMOOTH, labels=data.y)
    reading = read(Gradient(cut, 2), knowledge)
    assert isinstance(reading, MatchableRelease)
    problem = problem_of(reading, SquaredL2(), labels=data.y, precision="float64")
    assert problem.labels is not None
    assert problem.residual(problem.frame.tensor(data.x), problem.labels) < 1e-12
    ignoring = reading.ignoring()
    blind = problem_of(ignoring, SquaredL2(), labels=data.y, precision="float64")
    assert blind.residual(blind.frame.tensor(data.x), problem.labels) > 1e-2


def test_variation_is_between_pixels_wherever_the_channels_are() -> None:
    last = torch.rand(2, 8, 9, 3, generator=torch.Generator().manual_seed(0))
    first = last.permute(0, 3, 1, 2)
    assert float(total_variation(first, 0.5)) == pytest.approx(float(total_variation(last, 0.5)))
