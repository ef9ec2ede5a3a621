"""Training a network: beside plain PyTorch, under the contract, and with its accounting."""

from __future__ import annotations

from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.cases import Case
from tests.contract.mechanism import MechanismContract

from exhume.data import load
from exhume.models import CNN, MLP, Activation, Convolution, Initialisation, Scheme
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import SGD, Adam, Batches, DPClipping, Training

SHAPE = (5, 5)
IMAGES = CNN(SHAPE, 3, (Convolution(3, 3),))
DENSE = MLP(SHAPE, 3, (4,))


def records(count=21, *, seed=0, regression=False) -> Records:
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(count, *SHAPE))
    y = x.mean(axis=(1, 2)) if regression else rng.integers(0, 3, count)
    return Records(x, y)


def training(network=DENSE, **changes) -> Training:
    return Training(network, (0, 1, 2), **{"optimiser": SGD(0.1, 0.9), "epochs": 4, **changes})


VARIANTS = {
    "full batch": training(),
    "weight decay": training(optimiser=SGD(0.1, 0.9, 0.1)),
    "known order": training(batches=Batches(6)),
    "unknown order": training(batches=Batches(6, seed=None)),
    "unknown initialisation": training(initial=Initialisation(seed=None)),
    "adam": training(optimiser=Adam(0.01)),
    "tanh": training(MLP(SHAPE, 3, (4,), Activation.TANH)),
    "relu": training(MLP(SHAPE, 3, (4, 4), Activation.RELU), initial=Initialisation(Scheme.HE)),
    "cnn": training(IMAGES, precision="float64"),
    "regression": Training(MLP(SHAPE, 1, (4,)), None, SGD(0.1), 4),
    "dp": training(clipping=DPClipping(1.0, 0.5)),
    "dp-sgd": training(clipping=DPClipping(1.0, 0.5), batches=Batches(6, seed=None, poisson=True)),
}


class TestContract(MechanismContract):
    @pytest.fixture(params=list(VARIANTS))
    def case(self, request: pytest.FixtureRequest) -> Case:
        data = records(regression=request.param == "regression")
        fixed_set, targets = data.take(np.arange(18)), data.take([18, 19, 20])
        return Case(request.param, VARIANTS[request.param], fixed_set, targets)


def by_hand(made: Training, data: Records, optimiser_of, order) -> list[np.ndarray]:
    """Train with ``nn.Module``, ``torch.optim`` and a loss of PyTorch's, in float64."""
    module = made.network.build().double()
    initial = made.initial.draw(made.network, np.random.default_rng(0))
    module.load_state_dict({name: torch.tensor(values) for name, values in initial.items()})
    optimiser = optimiser_of(module.parameters())
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    for index in order:
        optimiser.zero_grad()
        scores = module(x[index])
        if made.classes is None:
            loss = 0.5 * torch.nn.functional.mse_loss(scores[:, 0], y[index])
        else:
            loss = torch.nn.functional.cross_entropy(scores, y[index])
        loss.backward()
        optimiser.step()
    return [p.detach().numpy() for p in module.parameters()]


class TestAgainstPlainTorch:
    @settings(deadline=None, max_examples=20)
    @given(
        network=st.sampled_from(
            [DENSE, IMAGES, MLP(SHAPE, 3, (6, 4), Activation.SOFTPLUS), MLP(SHAPE, 3, ())]
        ),
        adam=st.booleans(),
        decay=st.sampled_from([0.0, 0.02]),
        batches=st.sampled_from([None, Batches(6), Batches(21)]),
        seed=st.integers(0, 99),
    )
    def test_classification(self, network, adam, decay, batches, seed):
        data = records(seed=seed)
        optimiser = Adam(0.02, weight_decay=decay) if adam else SGD(0.2, 0.9, decay)
        made = training(network, optimiser=optimiser, batches=batches, precision="float64")
        rng = np.random.default_rng(0)
        order = [slice(None)] * 4 if batches is None else list(batches.steps(21, 4, rng))
        theirs = by_hand(made, data, _torchs(optimiser), order)
        ours = list(made.publish(data, rng=rng).parameters.values())
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)

    def test_regression(self):
        """Half the squared error, averaged: PyTorch's mean squared error has no half."""
        data = records(regression=True)
        made = replace(VARIANTS["regression"], precision="float64")
        theirs = by_hand(made, data, _torchs(made.optimiser), [slice(None)] * 4)
        ours = made.publish(data, rng=np.random.default_rng(0)).parameters.values()
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)

    def test_weights_count_records(self):
        """A record of weight 2 beside one of weight 0: the second's place taken by the first."""
        data = records()
        weight = np.ones(21)
        weight[3], weight[4] = 2.0, 0.0
        doubled = data.take([0, 1, 2, 3, 3, *range(5, 21)])
        made = training(precision="float64")
        one = made.publish(Records(data.x, data.y, weight), rng=np.random.default_rng(0))
        other = made.publish(doubled, rng=np.random.default_rng(0))
        for name, values in one.parameters.items():
            np.testing.assert_allclose(values, other.parameters[name], rtol=1e-10, atol=1e-12)


def _torchs(optimiser):
    if isinstance(optimiser, Adam):
        decay = optimiser.weight_decay
        return lambda p: torch.optim.Adam(p, lr=optimiser.learning_rate, weight_decay=decay)
    return lambda p: torch.optim.SGD(
        p,
        lr=optimiser.learning_rate,
        momentum=optimiser.momentum,
        weight_decay=optimiser.weight_decay,
    )


class TestLearning:
    def test_real_images_are_learnt(self):
        """Balle et al.'s network on Fashion-MNIST: far above the 10 % of a guess."""
        data = load("fashion-mnist-small").train
        images = Records(data.x, data.y)
        made = Training(MLP((28, 28), 10), tuple(range(10)), SGD(0.1, 0.9), 60)
        release = made.publish(images.take(np.arange(500)), rng=np.random.default_rng(0))
        assert made.score(release, images.take(np.arange(500, 1500))) > 0.7

    def test_means_are_probabilities(self):
        data, made = records(), training()
        release = made.publish(data, rng=np.random.default_rng(0))
        means = made.means(made.scores(release, data.x))
        np.testing.assert_allclose(means.sum(axis=1), 1.0)
        np.testing.assert_array_equal(
            means.argmax(axis=1), made.scores(release, data.x).argmax(axis=1)
        )

    def test_labels_may_be_words(self):
        data = records()
        words = np.array(["cat", "dog", "owl"])
        named = Training(DENSE, ("cat", "dog", "owl"), SGD(0.1, 0.9), 4)
        one = named.publish(Records(data.x, words[data.y]), rng=np.random.default_rng(0))
        other = training().publish(data, rng=np.random.default_rng(0))
        for name, values in one.parameters.items():
            assert np.array_equal(values, other.parameters[name])


class TestPrivacy:
    def test_full_batch_composes_gaussians(self):
        made = training(clipping=DPClipping(1.0, 2.0), epochs=7)
        expected = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(2.0), 7)
        assert made.event(100) == expected

    def test_sampled_batches_compose_sampled_gaussians(self):
        """100 records in batches of 30: four steps per epoch, each at a rate of .3."""
        secret = Batches(30, seed=None, poisson=True)
        made = training(clipping=DPClipping(1.0, 2.0), batches=secret, epochs=5)
        sampled = dp_accounting.PoissonSampledDpEvent(0.3, dp_accounting.GaussianDpEvent(2.0))
        assert made.event(100) == dp_accounting.SelfComposedDpEvent(sampled, 20)

    def test_a_known_draw_of_batches_amplifies_nothing(self):
        known = Batches(30, seed=4, poisson=True)
        made = training(clipping=DPClipping(1.0, 2.0), batches=known, epochs=5)
        plain = dp_accounting.GaussianDpEvent(2.0)
        assert made.event(100) == dp_accounting.SelfComposedDpEvent(plain, 20)

    def test_epsilon(self):
        """T Gaussians of multiplier σ are one of σ/√T: μ = 1, so ε(δ = 1e-5) = 4.3772.

        Dong et al. 2022, Corollary 1: δ = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
        """
        from scipy.stats import norm

        event = training(clipping=DPClipping(1.0, 2.0), epochs=4).event(50)
        accountant = dp_accounting.pld.PLDAccountant().compose(event)
        epsilon = accountant.get_epsilon(1e-5)
        assert epsilon == pytest.approx(4.3772, abs=2e-3)
        assert norm.cdf(-epsilon + 0.5) - np.exp(epsilon) * norm.cdf(-epsilon - 0.5) == (
            pytest.approx(1e-5, rel=1e-2)
        )

    def test_without_noise_nothing_is_promised(self):
        for made in (training(), training(clipping=DPClipping(1.0, 0.0))):
            assert made.event(10) == dp_accounting.NonPrivateDpEvent()

    @settings(deadline=None, max_examples=20)
    @given(scale=st.sampled_from([1.0, 1e3, 1e6]), seed=st.integers(0, 99))
    def test_clipping_bounds_a_records_influence(self, scale, seed):
        """One step: at most learning rate · norm / n, however large the record is."""
        fixed_set = records(20, seed=seed)
        made = training(
            clipping=DPClipping(0.1, 0.0), optimiser=SGD(0.5), epochs=1, precision="float64"
        )
        x = scale * np.ones((1, *SHAPE))
        start = made.initial.draw(made.network, np.random.default_rng(0))
        # The label that surprises most: a large record with the expected one has no gradient.
        label = made.scores(Weights(start), x).argmin()
        target = Records(x, np.array([label]))
        with_it = _theta(made, fixed_set.with_record(target))
        nothing = Records(
            np.concatenate([fixed_set.x, target.x]),
            np.append(fixed_set.y, label),
            np.append(np.ones(20), 0.0),
        )
        moved = np.linalg.norm(with_it - _theta(made, nothing))
        assert moved <= 0.5 * 0.1 / 21 * (1 + 1e-9)
        free = replace(made, clipping=None)
        unbound = np.linalg.norm(
            _theta(free, fixed_set.with_record(target)) - _theta(free, nothing)
        )
        assert unbound > 0.5 * 0.1 / 21

    def test_weights_do_not_get_round_the_bound(self):
        fixed_set = records(20)
        made = training(
            clipping=DPClipping(0.1, 0.0), optimiser=SGD(0.5), epochs=1, precision="float64"
        )
        heavy = np.ones(20)
        heavy[0] = 1e6
        x, y = fixed_set.x, fixed_set.y
        light = np.ones(20)
        light[0] = 0.0
        gap = _theta(made, Records(x, y, heavy)) - _theta(made, Records(x, y, light))
        assert np.linalg.norm(gap) <= 0.5 * 0.1 / 20 * (1 + 1e-9)

    def test_noise_has_the_stated_size(self):
        """Of 100 runs, one step each: norm · multiplier · rate / n; accepts it, rejects 3 % off."""
        fixed_set = records(10)
        made = training(clipping=DPClipping(0.3, 2.0), optimiser=SGD(0.5), epochs=1)
        quiet = replace(made, clipping=DPClipping(0.3, 0.0))
        centre = _theta(quiet, fixed_set)
        drawn = np.array([_theta(made, fixed_set, seed) - centre for seed in range(100)])
        size = 0.5 * 0.3 * 2.0 / 10
        z = (np.mean(drawn**2) / size**2 - 1) / np.sqrt(2 / drawn.size)
        assert abs(z) < 4
        assert abs((np.mean(drawn**2) / (1.03 * size) ** 2 - 1) / np.sqrt(2 / drawn.size)) > 4

    def test_shuffled_batches_have_no_accounting(self):
        with pytest.raises(InputError, match="Poisson"):
            training(clipping=DPClipping(1.0, 1.0), batches=Batches(5))

    def test_empty_batches_change_nothing(self):
        """Poisson batches of 1 in 21: a third of the steps see nobody."""
        made = training(batches=Batches(1, poisson=True), epochs=2)
        release = made.publish(records(), rng=np.random.default_rng(0))
        assert all(np.isfinite(a).all() for _, a in release.arrays())


def _theta(made: Training, data: Records, seed=0) -> np.ndarray:
    release = made.publish(data, rng=np.random.default_rng(seed))
    return np.concatenate([a.ravel() for a in release.parameters.values()])


class TestDeterminism:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("full batch", True),
            ("known order", True),
            ("unknown order", False),
            ("unknown initialisation", False),
            ("dp", False),
        ],
    )
    def test_says_whether_it_can_be_repeated(self, name, expected):
        made = VARIANTS[name]
        assert made.deterministic is expected
        same = np.array_equal(_theta(made, records(), 1), _theta(made, records(), 2))
        assert same is expected


class TestRefusals:
    def test_divergence_names_the_learning_rate(self):
        made = Training(MLP(SHAPE, 1, (4,)), None, SGD(1e3), 300)
        with pytest.raises(InputError, match=r"diverged.*learning rate 1000"):
            made.publish(records(regression=True), rng=np.random.default_rng(0))

    def test_strange_labels(self):
        data = Records(records().x, np.full(21, 7))
        with pytest.raises(InputError, match=r"label 7 is not one of .*\(0, 1, 2\)"):
            training().publish(data, rng=np.random.default_rng(0))

    def test_records_of_another_shape(self):
        """25 numbers in a row would pass through Flatten unnoticed."""
        data = Records(records().x.reshape(21, 25), records().y)
        with pytest.raises(InputError, match=r"shape \(25,\), the network takes \(5, 5\)"):
            training().publish(data, rng=np.random.default_rng(0))

    def test_no_records(self):
        with pytest.raises(InputError, match="no records"):
            training().publish(records().take([]), rng=np.random.default_rng(0))

    def test_no_labels(self):
        with pytest.raises(InputError, match="labels"):
            training().publish(Records(records().x), rng=np.random.default_rng(0))

    @pytest.mark.parametrize(
        ("make", "named"),
        [
            (lambda: training(epochs=0), "epochs must be at least 1, got 0"),
            (lambda: Training(DENSE, (0, 1)), "3 outputs, but there are 2 classes"),
            (lambda: Training(DENSE, None), "one output"),
            (lambda: DPClipping(0.0, 1.0), "clipping norm"),
            (lambda: DPClipping(1.0, -1.0), "noise_multiplier"),
        ],
    )
    def test_settings(self, make, named):
        with pytest.raises(InputError, match=named):
            make()

    def test_parameters_of_another_network(self):
        with pytest.raises(InputError, match="no parameter"):
            training().scores(Weights({"w": np.zeros(3)}), records().x)


def test_description():
    made = training(batches=Batches(6), clipping=None, initial=Initialisation(seed=None))
    assert made.describe() == (
        "a 25-4-3 network (elu), gradient descent, learning rate 0.1, momentum 0.9, 4 epochs, "
        "batches of 6 in a known order, from a secret initialisation"
    )
    assert "clipped to 1 with noise 0.5" in VARIANTS["dp"].describe()


@pytest.mark.parametrize("weighted", [False, True])
def test_convolutions_sum_large_batches_in_tiles(weighted: bool) -> None:
    data, mechanism = records(1203), training(IMAGES, precision="float64")
    weight = np.random.default_rng(1).random(len(data)) if weighted else None
    objective = mechanism.objective()
    (first, *_) = mechanism.walk(
        objective, replace(data, weight=weight), rng=np.random.default_rng(0)
    )
    whole = objective.gradient(
        first.theta,
        objective.tensor(data.x),
        objective.responses(data.labels),
        weight=None if weight is None else objective.tensor(weight),
        count=len(data),
    )
    torch.testing.assert_close(first.gradient, whole)
