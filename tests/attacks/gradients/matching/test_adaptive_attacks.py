"""An adversary that adapts to a defence beats the same attack that ignores it, on real images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.gradients.matching.matching_cases import (
    CLASSES,
    attacked,
    errors,
    mean_grey,
    pictures,
)

from exhume.attacks.gradients.features import Features
from exhume.attacks.gradients.matching import DLG, BatchNormMatching, Geiping, LiuMatching
from exhume.attacks.gradients.matching.attack import noise_variation
from exhume.attacks.gradients.matching.geiping import MatchingAttack
from exhume.attacks.gradients.matching.loop import MatchingProblem, settle
from exhume.attacks.gradients.matching.objectives import LayerCosine, Released
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of, read
from exhume.attacks.gradients.portfolio import Portfolio
from exhume.defences import (
    ActivationDropout,
    Clipping,
    GradientDropout,
    MixUp,
    Noise,
    RecordClipping,
    Rounds,
    Sign,
)
from exhume.models.convnet import ConvNet
from exhume.models.lenet import LeNet
from exhume.models.two_layer import TwoLayer
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps
from exhume.training.optimisers import SGD

pytestmark = pytest.mark.slow

SIDE = 14
NETWORK = LeNet((SIDE, SIDE), 10)
LENET = GradientStep(NETWORK, CLASSES, state=NETWORK.uniform_parameters(np.random.default_rng(3)))
CONVNET = GradientStep(ConvNet((SIDE, SIDE), 10, width=16), CLASSES)
ONE, TWO = pictures(SIDE, 1), pictures(SIDE, 2)
"""Not the images that any setting was chosen on."""


def decibels(data: Records, found: Reconstruction) -> float:
    """PSNR, the mean over images."""
    return float(np.mean(-10.0 * np.log10(errors(data.x, found.samples))))


def both(
    attack: MatchingAttack, mechanism: Mechanism, data: Records
) -> tuple[float, float, Reconstruction]:
    """PSNR of ignoring the defence and of adapting to it, and the adapted answer."""
    ignored = attacked(replace(attack, adaptive=False), mechanism, data)  # type: ignore[type-var]
    adapted = attacked(attack, mechanism, data)
    return decibels(data, ignored), decibels(data, adapted), adapted


def posed(mechanism: Mechanism, data: Records) -> MatchingProblem:
    release = mechanism.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=data.record_shape, value_range=(0.0, 1.0), training=mechanism, labels=data.y
    )
    reading = read(release, knowledge)
    assert isinstance(reading, MatchableRelease)
    return problem_of(reading, LayerCosine(), labels=data.y, precision="float64")


EXACT = {
    "clipping": (Clipping(LENET, 0.05), ONE),
    "record clipping": (RecordClipping(LENET, 0.5), TWO),
    "activation dropout": (ActivationDropout(LENET, 0.3), TWO),
    "local steps of clipped records": (LocalSteps(RecordClipping(LENET, 0.2), SGD(0.1), 2), ONE),
}


@pytest.mark.parametrize(("mechanism", "data"), EXACT.values(), ids=EXACT)
def test_what_hides_nothing_is_solved(mechanism: Mechanism, data: Records) -> None:
    """These defences leave the release determined: the images come back as without them."""
    ignored, adapted, found = both(DLG(starts=1), mechanism, data)
    assert adapted > 50.0
    assert ignored < 20.0
    assert found.status in (Status.CONVERGED, Status.APPROXIMATE)
    if not isinstance(mechanism, ActivationDropout):
        assert found.status is Status.CONVERGED, dict(found.stats)


def test_mixtures_are_taken_apart() -> None:
    ignored, adapted, _ = both(DLG(starts=2), MixUp(LENET, 1.0), TWO)
    assert adapted > ignored + 10.0
    assert adapted > 30.0


SEARCHED = {
    "signs": (Sign(CONVNET), 1.5),
    "gradient dropout": (GradientDropout(CONVNET, 0.7), 3.0),
}


@pytest.mark.parametrize(("mechanism", "margin"), SEARCHED.values(), ids=SEARCHED)
def test_what_hides_part_is_searched_with_the_rest(mechanism: Mechanism, margin: float) -> None:
    ignored, adapted, _ = both(Geiping(steps=150), mechanism, TWO)
    assert adapted > ignored + margin
    assert adapted > decibels_of_the_mean(TWO) + 2.0


def decibels_of_the_mean(data: Records) -> float:
    return float(np.mean(-10.0 * np.log10(mean_grey(data.x))))


def test_noise_that_is_known_is_not_fitted() -> None:
    """Total variation weighs more, the more of the release is noise; the end is as it should be."""
    found = attacked(Geiping(steps=100), Noise(CONVNET, 0.03), TWO)
    assert found.status is Status.CONVERGED
    assert found.stats["floor"] == pytest.approx(found.stats["residual"], rel=0.3)
    weights = []
    for size in (0.001, 0.01, 0.1, 1.0):
        problem = posed(Noise(CONVNET, size), TWO)
        weights.append(noise_variation(problem))
    assert weights == sorted(weights)
    assert weights[-1] > 100.0 * weights[0] > 0.0
    assert noise_variation(posed(CONVNET, TWO)) == 0.0


def test_rounds_take_the_noise_away() -> None:
    once = attacked(Geiping(steps=150), Noise(CONVNET, 0.05), TWO)
    often = attacked(Geiping(steps=150), Rounds(Noise(CONVNET, 0.05), 64), TWO)
    assert decibels(TWO, often) > decibels(TWO, once) + 2.0
    assert often.stats["floor"] < 0.2 * once.stats["floor"]  # type: ignore[operator]


def test_descent_stops_at_the_noise() -> None:
    found = attacked(DLG(starts=1), Noise(LENET, 0.003), ONE)
    assert found.status is Status.CONVERGED
    assert found.stats["residual"] > 0.5 * found.stats["floor"]  # type: ignore[operator]
    longer = attacked(DLG(starts=1, adaptive=False), Noise(LENET, 0.003), ONE)
    assert found.stats["evaluations"] < longer.stats["evaluations"]  # type: ignore[operator]


@pytest.mark.parametrize("attack", [BatchNormMatching(), LiuMatching()], ids=lambda a: a.name)
def test_every_attack_can_ignore_a_defence(attack: MatchingAttack) -> None:
    assert attack.adaptive
    assert not replace(attack, adaptive=False).adaptive  # type: ignore[type-var]


def test_layers_that_are_noise_do_not_count() -> None:
    import torch

    values = (torch.ones(4), 0.1 * torch.ones(100))
    noisy = Released(values, (None, None), 1.0, deviations=(0.1, 0.1))
    signal = noisy.signal()
    assert float(signal[0]) == pytest.approx(0.99)
    assert float(signal[1]) == pytest.approx(0.01)
    turned = [values[0], -values[1]]
    exact = replace(noisy, deviations=(0.0, 0.0))
    assert float(LayerCosine()(turned, exact)) == pytest.approx(200 / 104)
    weights = 4 * 0.99, 100 * 0.01
    assert float(LayerCosine()(turned, noisy)) == pytest.approx(2 * weights[1] / sum(weights))


def test_shares_are_settled_for_images_as_they_are() -> None:
    """A candidate from elsewhere is judged with the shares that suit it best."""
    problem = posed(ActivationDropout(LENET, 0.3), TWO)
    assert problem.labels is not None
    truth, wrong = problem.frame.tensor(TWO.x), problem.frame.tensor(TWO.x[:, ::-1].copy())
    before = problem.residual(truth, problem.labels)
    settle(problem, truth, problem.labels)
    after = problem.residual(truth, problem.labels)
    settle(problem, wrong, problem.labels)
    assert after < 0.1 * before
    assert problem.residual(wrong, problem.labels) > 3.0 * after


def test_a_portfolio_adapts_too() -> None:
    found = attacked(Portfolio(steps=120), Clipping(LENET, 0.05), ONE)
    assert decibels(ONE, found) > 30.0
    assert found.status is Status.CONVERGED


def test_features_of_what_dropout_left_have_their_length() -> None:
    """The entries that were sent were scaled up, by a factor that is known."""
    data = pictures(7, 2)
    step = GradientStep(TwoLayer((7, 7), 10, 700), CLASSES)
    found = attacked(Features(), GradientDropout(step, 0.5), data)
    assert errors(data.x, found.samples).max() < 1e-6
    unaware = attacked(Features(), GradientDropout(step, 0.5), data, training=step)
    assert errors(data.x, unaware.samples).min() > 1e-4
