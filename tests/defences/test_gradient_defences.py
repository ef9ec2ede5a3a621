"""What each defence of gradients does, against slow references written down here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from exhume import defences
from exhume.defences.activation_dropout import dropped_layers
from exhume.models import MLP, Activation
from exhume.models.convnet import ConvNet
from exhume.models.initialise import Initialisation
from exhume.models.lenet import LeNet
from exhume.models.resnet import ResNet
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate

STEP = GradientStep(
    MLP((4,), 3, (6, 5), Activation.ELU), (0, 1, 2), Initialisation(seed=1), precision="float64"
)


def _data(count: int = 7, seed: int = 0) -> Records:
    rng = np.random.default_rng(seed)
    return Records(rng.normal(size=(count, 4)), rng.integers(0, 3, count))


def _sent(mechanism: Mechanism, data: Records | None = None, seed: int = 0) -> dict[str, Array]:
    release = mechanism.publish(data or _data(), rng=np.random.default_rng(seed))
    return dict(release.arrays())


def _flat(arrays: dict[str, Array]) -> Array:
    return np.concatenate([a.ravel() for a in arrays.values()])


def _module() -> torch.nn.Module:
    module = STEP.network.module().double()
    with torch.no_grad():
        for name, values in module.named_parameters():
            values.copy_(torch.tensor(STEP.parameters()[name]))
    return module


def _each(data: Records) -> Array:
    """Every record's own gradient, one backward pass each."""
    module, rows = _module(), []
    for i in range(len(data)):
        one = data.take([i])
        loss = torch.nn.functional.cross_entropy(
            module(torch.tensor(one.x)), torch.tensor(one.labels)
        )
        slopes = torch.autograd.grad(loss, list(module.parameters()))
        rows.append(np.concatenate([s.numpy().ravel() for s in slopes]))
    return np.stack(rows)


def _has_deviation(noise: Array, deviation: float) -> bool:
    """Whether so much noise, or so little, is likely from Gaussians of this deviation."""
    square = float(np.square(noise / deviation).sum())
    return bool(1e-4 < stats.chi2.cdf(square, noise.size) < 1 - 1e-4)


class TestClipping:
    @settings(max_examples=25, deadline=None)
    @given(norm=st.floats(1e-3, 1e3), seed=st.integers(0, 100))
    def test_is_never_longer_and_points_the_same_way(self, norm: float, seed: int) -> None:
        plain = _flat(_sent(STEP, _data(seed=seed)))
        sent = _flat(_sent(defences.Clipping(STEP, norm), _data(seed=seed)))
        length = float(np.linalg.norm(plain))
        np.testing.assert_allclose(sent, plain * min(1.0, norm / length), rtol=1e-12)

    def test_records_are_clipped_one_by_one(self) -> None:
        data, each = _data(), _each(_data())
        norms = np.linalg.norm(each, axis=1)
        norm = float(np.median(norms))
        wanted = (each * np.minimum(1.0, norm / norms)[:, None]).mean(axis=0)
        sent = _flat(_sent(defences.RecordClipping(STEP, norm), data))
        np.testing.assert_allclose(sent, wanted, rtol=1e-10, atol=1e-14)
        whole = _flat(_sent(defences.Clipping(STEP, norm), data))
        assert np.linalg.norm(sent - whole) > 0.01 * np.linalg.norm(whole)

    def test_in_parts_it_is_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory is bounded by taking a few records' gradients at a time."""
        protected = defences.RecordClipping(STEP, 0.5)
        whole = _flat(_sent(protected))
        monkeypatch.setattr("exhume.defences.record_clipping._NUMBERS_AT_ONCE", 2 * whole.size)
        np.testing.assert_allclose(_flat(_sent(protected)), whole, rtol=1e-12)

    @settings(max_examples=20, deadline=None)
    @given(norm=st.floats(0.01, 10.0), seed=st.integers(0, 50), gone=st.integers(0, 6))
    def test_one_record_moves_no_more_than_is_said(self, norm: float, seed: int, gone: int) -> None:
        data = _data(seed=seed)
        rest = data.take([i for i in range(7) if i != gone])
        by_record = defences.RecordClipping(STEP, norm)
        # The number of records is public: both are means over seven.
        moved = _flat(_sent(by_record, data)) - _flat(_sent(by_record, rest)) * 6 / 7
        assert np.linalg.norm(moved) <= by_record.sensitivity(7) * (1 + 1e-9)
        whole = defences.Clipping(STEP, norm)
        moved = _flat(_sent(whole, data)) - _flat(_sent(whole, rest))
        assert np.linalg.norm(moved) <= whole.sensitivity(7) * (1 + 1e-9)

    def test_what_is_said_is_reached(self) -> None:
        """A bound twice as large would be sound and useless: a long gradient reaches it."""
        data = _data()
        norm = 0.5 * float(np.linalg.norm(_each(data), axis=1).min())
        protected = defences.RecordClipping(STEP, norm)
        moved = _flat(_sent(protected, data)) - _flat(_sent(protected, data.take(range(6)))) * 6 / 7
        assert np.linalg.norm(moved) == pytest.approx(protected.sensitivity(7), rel=1e-9)

    def test_clients_share_it(self) -> None:
        protected = defences.RecordClipping(STEP, 0.3)
        assert Aggregate(protected, 4).sensitivity(8) == pytest.approx(0.3 / 8)
        assert Aggregate(defences.Clipping(STEP, 0.3), 4).sensitivity(8) == pytest.approx(0.15)
        assert Aggregate(STEP, 4).sensitivity(8) is None

    def test_noise_of_dp_sgd_has_its_size(self) -> None:
        protected = defences.DPSGD(STEP, 0.3, 2.0)
        clipped = _flat(_sent(defences.RecordClipping(STEP, 0.3)))
        noise = np.concatenate([_flat(_sent(protected, seed=i)) - clipped for i in range(60)])
        deviation = 2.0 * 0.3 / 7
        assert protected.deviation(7) == pytest.approx(deviation)
        for factor, holds in ((1.0, True), (1.06, False), (0.94, False)):
            assert _has_deviation(noise, factor * deviation) is holds, factor

    def test_a_network_that_mixes_records_is_refused(self) -> None:
        step = GradientStep(ResNet((8, 8, 3), 3, 4), (0, 1, 2), Initialisation(seed=1))
        with pytest.raises(InputError, match="batch normalisation in training mixes records"):
            defences.RecordClipping(step, 1.0)
        with pytest.raises(InputError, match="put it first in the list"):
            defences.DPSGD(defences.MixUp(STEP), 1.0, 1.0)


class TestSparse:
    @settings(max_examples=25, deadline=None)
    @given(share=st.floats(0.05, 0.95), seed=st.integers(0, 50))
    def test_the_smallest_are_pruned(self, share: float, seed: int) -> None:
        plain = _sent(STEP, _data(seed=seed))
        sent = _sent(defences.Pruning(STEP, share), _data(seed=seed))
        for name, values in plain.items():
            kept = sent[name] != 0
            np.testing.assert_array_equal(sent[name][kept], values[kept])
            assert kept.sum() == max(1, values.size - round(share * values.size))
            gone = np.abs(values[~kept])
            assert gone.size == 0 or gone.max() <= np.abs(values[kept]).min()

    @pytest.mark.parametrize("share", [0.3, 0.9])
    def test_over_all_parameters(self, share: float) -> None:
        plain, sent = _flat(_sent(STEP)), _flat(_sent(defences.Pruning(STEP, share, "global")))
        count = plain.size - round(share * plain.size)
        kept = np.sort(np.abs(plain))[::-1][:count]
        assert (sent != 0).sum() == count
        np.testing.assert_array_equal(np.sort(np.abs(sent[sent != 0]))[::-1], kept)
        top = _flat(_sent(defences.TopK(STEP, count)))
        np.testing.assert_array_equal(top, sent)

    def test_more_than_there_are_is_all(self) -> None:
        np.testing.assert_array_equal(_flat(_sent(defences.TopK(STEP, 10**6))), _flat(_sent(STEP)))

    def test_dropout_is_right_on_average(self) -> None:
        plain = _flat(_sent(STEP))
        drawn = np.stack(
            [_flat(_sent(defences.GradientDropout(STEP, 0.7), seed=i)) for i in range(900)]
        )
        sent = drawn != 0
        np.testing.assert_allclose(drawn[sent], (sent * plain)[sent] / 0.3, rtol=1e-12)
        for rate, holds in ((0.3, True), (0.31, False), (0.29, False)):
            count = int(sent[:, plain != 0].sum())
            p = stats.binomtest(count, int(sent[:, plain != 0].size), rate).pvalue
            assert bool(p > 1e-4) is holds, rate

    @pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
    def test_a_share_is_between_nothing_and_all(self, share: float) -> None:
        for make in (defences.Pruning, defences.GradientDropout, defences.ActivationDropout):
            with pytest.raises(InputError, match="must be between 0 and 1, got"):
                make(STEP, share)


class TestInside:
    def test_mixup_is_the_gradient_of_soft_labels(self) -> None:
        data, rng = _data(), np.random.default_rng(3)
        share = float(rng.beta(0.4, 0.4))
        x = torch.tensor(share * data.x + (1 - share) * np.roll(data.x, -1, axis=0))
        hot = np.eye(3)[data.labels]
        y = torch.tensor(share * hot + (1 - share) * np.roll(hot, -1, axis=0))
        module = _module()
        loss = torch.nn.functional.cross_entropy(module(x), y)
        slopes = torch.autograd.grad(loss, list(module.parameters()))
        sent = _sent(defences.MixUp(STEP, 0.4), data, seed=3)
        for values, slope in zip(sent.values(), slopes, strict=True):
            np.testing.assert_allclose(values, slope, rtol=1e-9, atol=1e-13)

    def test_one_record_mixes_with_itself(self) -> None:
        one = _data(1)
        np.testing.assert_allclose(
            _flat(_sent(defences.MixUp(STEP), one)), _flat(_sent(STEP, one)), rtol=1e-9
        )

    def test_dropout_by_hand(self) -> None:
        """The layers behind the first one lose inputs; masks are drawn in their order."""
        data, rng, rate = _data(), np.random.default_rng(5), 0.4
        own = {n: torch.tensor(a, requires_grad=True) for n, a in STEP.parameters().items()}
        weights, biases = list(own.values())[::2], list(own.values())[1::2]
        h = torch.tensor(data.x)
        for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
            if layer:
                kept = torch.tensor(rng.random(tuple(h.shape)) >= rate)
                h = h * kept / (1 - rate)
            h = h @ w.T + b
            if layer < 2:
                h = torch.nn.functional.elu(h)
        loss = torch.nn.functional.cross_entropy(h, torch.tensor(data.labels))
        slopes = torch.autograd.grad(loss, list(own.values()))
        sent = _sent(defences.ActivationDropout(STEP, rate), data, seed=5)
        for values, slope in zip(sent.values(), slopes, strict=True):
            np.testing.assert_allclose(values, slope, rtol=1e-9, atol=1e-13)

    def test_which_layers_lose_inputs(self) -> None:
        assert len(dropped_layers(MLP((2, 2), 3, (6, 5)).module(), (2, 2))) == 2
        assert len(dropped_layers(MLP((2, 2), 3, (6,)).module(), (2, 2))) == 1
        for network in (LeNet((16, 16, 3), 3), ConvNet((16, 16, 3), 3, 8)):
            assert len(dropped_layers(network.module(), (16, 16, 3))) == 1

    def test_nothing_to_drop_is_refused(self) -> None:
        step = GradientStep(MLP((4,), 3, ()), (0, 1, 2), Initialisation(seed=1))
        with pytest.raises(InputError, match="needs a fully connected layer after another layer"):
            defences.ActivationDropout(step, 0.5)

    def test_no_trace_is_left_in_the_network(self) -> None:
        """The hooks go, also where something goes wrong in between."""
        objective, rng = STEP.objective(), np.random.default_rng(0)
        theta = STEP.theta(objective, rng)
        before = STEP.gradient(objective, theta, _data(), rng)
        protected = defences.ActivationDropout(STEP, 0.5)
        protected.gradient(objective, theta, _data(), rng)
        with pytest.raises(InputError, match="at least one record"):
            protected.gradient(objective, theta, _data(0), rng)
        assert torch.equal(before, STEP.gradient(objective, theta, _data(), rng))


class TestCoarse:
    def test_signs_and_one_size(self) -> None:
        plain, sent = _sent(STEP), _sent(defences.Sign(STEP))
        for name, values in plain.items():
            np.testing.assert_array_equal(np.sign(sent[name]), np.sign(values))
            np.testing.assert_allclose(
                np.abs(sent[name])[values != 0], np.abs(values).mean(), rtol=1e-12
            )

    @settings(max_examples=25, deadline=None)
    @given(bits=st.integers(1, 12), stochastic=st.booleans(), seed=st.integers(0, 20))
    def test_levels_and_distance(self, bits: int, stochastic: bool, seed: int) -> None:
        plain = _sent(STEP, _data(seed=seed))
        sent = _sent(defences.Quantised(STEP, bits, stochastic), _data(seed=seed), seed=seed)
        for name, values in plain.items():
            step = 2 * np.abs(values).max() / (2**bits - 1)
            place = (sent[name] + np.abs(values).max()) / step
            np.testing.assert_allclose(place, np.rint(place), atol=1e-6)
            assert len(np.unique(np.rint(place))) <= 2**bits
            limit = step * (1.0 if stochastic else 0.5)
            assert np.abs(sent[name] - values).max() <= limit * (1 + 1e-9)

    def test_at_random_it_is_right_on_average(self) -> None:
        plain = _flat(_sent(STEP))
        drawn = [_flat(_sent(defences.Quantised(STEP, 2, True), seed=i)) for i in range(2000)]
        error, spread = np.mean(drawn, axis=0) - plain, np.std(drawn, axis=0) / np.sqrt(2000)
        assert np.abs(error).max() <= 4.5 * spread.max()
        nearest = _flat(_sent(defences.Quantised(STEP, 2))) - plain
        assert np.abs(nearest).max() > 9 * spread.max()

    def test_zeros_stay(self) -> None:
        zeros = {"w": np.zeros((2, 3))}
        rng = np.random.default_rng(0)
        for defence in (defences.Quantised(STEP, 3), defences.Sign(STEP)):
            assert not defence.changed(zeros, rng)["w"].any()


class TestRounds:
    def test_noise_shrinks_with_the_root_of_the_rounds(self) -> None:
        plain = _flat(_sent(STEP))
        many = defences.Rounds(defences.Noise(STEP, 0.1), 16)
        noise = np.concatenate([_flat(_sent(many, seed=i)) - plain for i in range(60)])
        for deviation, holds in ((0.025, True), (0.0265, False), (0.0235, False)):
            assert _has_deviation(noise, deviation) is holds, deviation

    def test_holes_are_filled_by_other_rounds(self) -> None:
        """What dropout withholds once, it sends another time, exactly."""
        dropped = defences.GradientDropout(STEP, 0.5)
        plain, sent = _flat(_sent(STEP)), _flat(_sent(defences.Rounds(dropped, 12)))
        seen = sent != 0
        assert seen.mean() > 0.98
        np.testing.assert_allclose(sent[seen], 2 * plain[seen], rtol=1e-9)


def test_only_gradients_are_pruned() -> None:
    from exhume.training import GLM, Family, Penalty

    model = GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1))
    data = Records(np.random.default_rng(0).normal(size=(9, 4)), np.arange(9) % 2)
    with pytest.raises(InputError, match="pruning is for gradients and updates, not for weights"):
        defences.Pruning(model, 0.5).publish(data, rng=np.random.default_rng(0))
