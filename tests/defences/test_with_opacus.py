"""DP-SGD by our own loop and by Opacus: the same gradient, the same noise, the same guarantee."""

from __future__ import annotations

import importlib.util

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.stats import chi2

from exhume.audit.stages.train import epsilon_at
from exhume.data import load
from exhume.defences import DPSGD
from exhume.models import MLP
from exhume.models.convnet import ConvNet
from exhume.models.initialise import Initialisation
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.records import Records
from exhume.training import SGD
from exhume.training.federated import Federated
from exhume.training.gradient import GradientStep
from exhume.training.scores import scored

if importlib.util.find_spec("opacus") is None:
    pytest.skip("Opacus is not installed: pip install 'exhume[opacus]'", allow_module_level=True)

from exhume.defences.with_opacus import Session, opacus_session, quiet, train_with_opacus

CLASSES = tuple(range(10))
NORM, NOISE = 0.4, 1.3


@pytest.fixture(scope="module")
def images() -> Records:
    return load("fashion-mnist-small").train.take(slice(0, 200))


def private(noise: float = NOISE, *, norm: float = NORM) -> DPSGD:
    network = ConvNet((28, 28), 10, 2)
    return DPSGD(GradientStep(network, CLASSES, Initialisation(seed=4)), norm, noise)


def rounds(count: int, size: int = 16, rate: float = 0.1) -> Federated:
    return Federated(count, size, SGD(rate), poisson=True)


def session(settings: Federated, step: DPSGD, records: int, seed: int = 0) -> Session:
    with quiet():
        order, rng = (np.random.default_rng(seed + i) for i in (0, 1))
        return opacus_session(settings, step, records, order, rng)


def opacus_gradient(step: DPSGD, batch: Records, *, noise: bool, seed: int = 0) -> np.ndarray:
    """What Opacus's optimiser puts in place of the batch's gradient, in our order."""
    mine = session(rounds(1, len(batch)), step, len(batch), seed)
    with quiet():
        objective = mine.objective
        x, y = objective.tensor(batch.x), objective.responses(batch.labels)
        mine.gradient(x, y)
        mine.optimiser.clip_and_accumulate()
        if noise:
            mine.optimiser.add_noise()
            mine.optimiser.scale_grad()
            parts = [p.grad for p in mine.module.parameters()]
        else:
            parts = [p.summed_grad / len(batch) for p in mine.module.parameters()]
    return np.concatenate([part.detach().numpy().ravel() for part in parts])


def our_gradient(step: DPSGD, batch: Records, *, noise: bool, seed: int = 0) -> np.ndarray:
    mechanism = step if noise else step.clipped
    release = mechanism.publish(batch, rng=np.random.default_rng(seed))
    return np.concatenate([values.ravel() for _, values in release.arrays()])


def test_the_clipped_mean_gradient_is_the_same(images: Records) -> None:
    batch = images.take(slice(0, 24))
    ours = our_gradient(private(), batch, noise=False)
    theirs = opacus_gradient(private(), batch, noise=False)
    # Opacus adds 1e-6 to every norm before it divides.
    np.testing.assert_allclose(theirs, ours, rtol=2e-4, atol=1e-6 * np.abs(ours).max())
    unclipped = our_gradient(private(norm=1e6), batch, noise=False)
    assert np.linalg.norm(ours - unclipped) > 0.2 * np.linalg.norm(unclipped)


def deviation_accepted(noise: np.ndarray, deviation: float) -> bool:
    """Whether Gaussian noise of this deviation would look like this, except 1 time in 10,000."""
    statistic = float(np.square(noise / deviation).sum())
    low, high = chi2.ppf([5e-5, 1 - 5e-5], noise.size)
    return bool(low < statistic < high)


@pytest.mark.parametrize("gradient", [our_gradient, opacus_gradient])
def test_the_noise_has_the_stated_size(gradient, images: Records) -> None:  # type: ignore[no-untyped-def]
    batch = images.take(slice(0, 10))
    clean = gradient(private(), batch, noise=False)
    drawn = [gradient(private(), batch, noise=True, seed=seed) - clean for seed in range(16)]
    noise, stated = np.concatenate(drawn), private().deviation(10)
    assert stated == NORM * NOISE / 10
    assert deviation_accepted(noise, stated)
    assert not deviation_accepted(noise, 1.03 * stated)
    assert not deviation_accepted(noise, stated / 1.03)


@pytest.mark.parametrize(
    ("records", "size", "count", "noise"), [(200, 16, 40, 1.3), (1000, 64, 150, 0.8)]
)
def test_the_guarantee_is_the_same(records: int, size: int, count: int, noise: float) -> None:
    """ε at δ = 1e-5 from Opacus's accountant, from dp-accounting by RDP and PLD, and from ours."""
    settings, step, delta = rounds(count, size), private(noise), 1e-5
    theirs = session(settings, step, records).accountant
    for _ in range(count):
        theirs.step(noise_multiplier=noise, sample_rate=size / records)
    # At fractional orders dp-accounting's Rényi divergence is an upper bound, Opacus's a series.
    orders = list(range(2, 64))
    with quiet():
        told = theirs.get_epsilon(delta, alphas=orders)
    event = settings.event(step, records)
    renyi = RdpAccountant(orders).compose(event).get_epsilon(delta)
    exact = PLDAccountant().compose(event).get_epsilon(delta)
    assert renyi == pytest.approx(told, rel=1e-6)
    assert epsilon_at(event, delta) == pytest.approx(exact, rel=2e-3)
    assert 0.7 * told < exact < told
    other = Federated(count + 5, size, SGD(0.1), poisson=True).event(step, records)
    off = RdpAccountant(orders).compose(other).get_epsilon(delta)
    assert off != pytest.approx(told, rel=1e-3)


def test_the_event_is_that_of_the_rounds_opacus_took(
    images: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opacus.accountants import RDPAccountant

    steps: list[tuple[float, float]] = []
    monkeypatch.setattr(
        RDPAccountant,
        "step",
        lambda self, *, noise_multiplier, sample_rate: steps.append(
            (noise_multiplier, sample_rate)
        ),
    )
    settings = rounds(7)
    train_with_opacus(settings, private(), images, *_streams(0))
    ((noise, rate),) = set(steps)
    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    assert settings.event(private(), len(images)) == dp_accounting.SelfComposedDpEvent(
        one, len(steps)
    )


def _streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    return np.random.default_rng(seed), np.random.default_rng(seed + 100)


def test_both_paths_learn_alike() -> None:
    """With little noise the two trainings differ in their batches alone."""
    digits = load("digits").train.take(slice(0, 400))
    step = GradientStep(MLP((8, 8), 10, (16,)), CLASSES, Initialisation(seed=None))
    mechanism, settings = DPSGD(step, 1.0, 0.3), rounds(200, 40, 0.5)
    found: dict[str, list[float]] = {name: [] for name in ("ours", "theirs")}
    for seed in range(3):
        ours = settings.train(mechanism, digits, *_streams(seed))
        theirs = train_with_opacus(settings, mechanism, digits, *_streams(seed))
        for name, parameters in (("ours", ours), ("theirs", theirs)):
            accuracy = scored(step, parameters, digits, seen=digits).accuracy
            assert accuracy is not None
            found[name].append(accuracy)
    assert min(found["ours"] + found["theirs"]) > 0.8
    assert np.mean(found["ours"]) == pytest.approx(np.mean(found["theirs"]), abs=0.04)


def test_one_seed_one_training_and_empty_rounds_are_no_trouble(images: Records) -> None:
    settings = rounds(6, 1)
    first, again, other = (
        train_with_opacus(settings, private(), images, *_streams(seed)) for seed in (3, 3, 4)
    )
    for name, values in first.items():
        np.testing.assert_array_equal(values, again[name])
        assert np.isfinite(values).all()
    assert any(not np.array_equal(values, other[name]) for name, values in first.items())


def test_what_opacus_is_not_asked_for(images: Records) -> None:
    shuffled = Federated(2, 8, SGD(0.1))
    with pytest.raises(InputError, match="poisson = true"):
        train_with_opacus(shuffled, private(), images, *_streams(0))
    with pytest.raises(InputError, match="a round needs 500 records, but there are 200"):
        train_with_opacus(rounds(2, 500), private(), images, *_streams(0))
    step = GradientStep(MLP((28, 28), 1), None, Initialisation(seed=0))
    with pytest.raises(InputError, match="needs classes"):
        train_with_opacus(rounds(2), DPSGD(step, 1.0, 1.0), images, *_streams(0))
    with pytest.raises(DivergedError, match="infinity"):
        train_with_opacus(rounds(3, 16, 1e38), private(1e3), images, *_streams(0))
