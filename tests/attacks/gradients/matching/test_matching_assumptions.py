"""Wrong assumptions, named: the mode of batch normalisation, and inputs that were normalised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from exhume.attacks.gradients.matching import DLG, BatchNormMatching, Geiping
from exhume.attacks.gradients.matching.batch_norm import normalisation_mode, normalised_layers
from exhume.attacks.gradients.matching.problem import MatchableRelease, read
from exhume.data import load
from exhume.defences import Noise
from exhume.models.convnet import ConvNet
from exhume.models.live import LiveNetwork
from exhume.models.resnet import ResNet
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate
from exhume.training.warm_up import train_a_little

IMAGES = load("fashion-mnist-small").train
CLASSES = tuple(range(10))
NETWORK = ResNet((14, 14), 10, width=6, blocks=(1, 1))


def halves(chosen: list[int] | slice) -> Records:
    assert IMAGES.y is not None
    return Records(IMAGES.x[chosen][:, ::2, ::2].astype(np.float64), IMAGES.y[chosen])


def reading(truth: Mechanism, assumed: Mechanism, data: Records) -> MatchableRelease:
    release = truth.publish(data, rng=np.random.default_rng(0))
    found = read(release, Knowledge(record_shape=(14, 14), training=assumed, labels=data.y))
    assert isinstance(found, MatchableRelease)
    return found


@pytest.fixture(scope="module", params=[0, 40], ids=["untrained", "trained"])
def trained(request: pytest.FixtureRequest) -> GradientStep:
    state = train_a_little(NETWORK, halves(slice(1000, 2000)), request.param)
    return GradientStep(NETWORK, CLASSES, state=state.parameters, buffers=state.buffers)


class TestMode:
    @pytest.mark.parametrize("count", [1, 4])
    @pytest.mark.parametrize("mode", ["train", "eval"])
    def test_a_gradient_tells_the_mode(self, trained: GradientStep, mode, count: int) -> None:
        truth = replace(trained, batch_norm=mode)
        found = normalisation_mode(reading(truth, trained, halves(list(range(count)))))
        assert found is not None
        assert found.batch_norm == mode
        assert found.radial < 1e-3 if mode == "train" else found.radial > 0.5

    def test_noise_hides_it(self, trained: GradientStep) -> None:
        noisy = Noise(trained, 1.0)
        assert normalisation_mode(reading(noisy, noisy, halves([0]))) is None

    def test_clients_normalise_each_by_itself(self, trained: GradientStep) -> None:
        clients = Aggregate(trained, 2)
        found = normalisation_mode(reading(clients, clients, halves([0, 1, 2, 3])))
        assert found is not None
        assert found.batch_norm == "train"

    def test_layers_before_a_normalisation_are_found(self) -> None:
        names = normalised_layers(NETWORK)
        assert set(names) == {n for n, s in NETWORK.parameter_shapes().items() if len(s) == 4}
        assert normalised_layers(ConvNet((14, 14), 10, width=4)) == ()

    def test_attacks_name_a_wrong_mode(self, trained: GradientStep) -> None:
        data = halves([3, 4])
        release = trained.publish(data, rng=np.random.default_rng(0))
        knowledge = Knowledge(
            record_shape=(14, 14),
            value_range=(0.0, 1.0),
            training=replace(trained, batch_norm="eval"),
            labels=data.y,
        )
        for attack in (Geiping(steps=20), BatchNormMatching(steps=20)):
            found = attack.reconstruct(release, knowledge, rng=0)
            assert found.status is Status.WRONG_ASSUMPTION
            assert "assumed in eval mode, but the gradient indicates train mode" in found.message


class TestNormalisedInputs:
    step = GradientStep(ConvNet((14, 14), 10, width=16), CLASSES)
    data = halves([10, 27])

    def attacked(self, attack: Geiping, data: Records) -> Reconstruction:
        release = self.step.publish(data, rng=np.random.default_rng(0))
        knowledge = Knowledge(
            record_shape=(14, 14), value_range=(0.0, 1.0), training=self.step, labels=data.y
        )
        return attack.reconstruct(release, knowledge, rng=0)

    def test_they_are_named(self) -> None:
        inside = Records((self.data.x - 0.29) / 0.35, self.data.y)
        found = self.attacked(Geiping(steps=320), inside)
        assert found.status is Status.WRONG_ASSUMPTION
        assert "probably normalised" in found.message

    def test_a_failure_for_other_reasons_is_not_blamed_on_them(self) -> None:
        """Inputs as assumed, but a release that is too large and noisy: not the range's doing."""
        release = self.step.publish(self.data, rng=np.random.default_rng(0))
        rng = np.random.default_rng(1)
        blurred = {
            n: 2.0 * (a + 2.0 * a.std() * rng.standard_normal(a.shape))
            for n, a in release.gradients.items()
        }
        knowledge = Knowledge(
            record_shape=(14, 14), value_range=(0.0, 1.0), training=self.step, labels=self.data.y
        )
        found = Geiping(steps=320).reconstruct(Gradient(blurred, 2), knowledge, rng=0)
        assert found.stats["residual"] > 0.5  # type: ignore[operator]
        assert "probably normalised" not in found.message


class TestRunningStatistics:
    """A model's running statistics are those of other batches: far off is no contradiction."""

    data = Records(np.random.default_rng(5).uniform(size=(2, 1, 6, 6)), np.array([0, 2]))
    names = ("1.running_mean", "1.running_var")

    def attacked(self, **known: object) -> Reconstruction:
        torch.manual_seed(0)
        module = nn.Sequential(
            *(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.GELU(), nn.Flatten(), nn.Linear(96, 3))
        )
        fresh = dict(zip(self.names, (np.zeros(6), np.ones(6)), strict=True))
        network = LiveNetwork((1, 6, 6), 3, module)
        step = GradientStep(network, (0, 1, 2), buffers=fresh, batch_norm="train")
        release = step.publish(self.data, rng=np.random.default_rng(0))
        knowledge = Knowledge(
            record_shape=(1, 6, 6), value_range=(0, 1), training=step, labels=self.data.y, **known
        )
        return DLG(starts=1).reconstruct(release, knowledge, rng=0)

    def test_they_do_not_throw_a_fit_away(self) -> None:
        found = self.attacked()
        assert found.status.ran, found.message
        assert "statistics" not in found.message

    def test_the_batchs_own_are_still_compared(self) -> None:
        wrong = dict(zip(self.names, (np.full(6, 5.0), np.ones(6)), strict=True))
        found = self.attacked(batch_norm=wrong)
        assert found.status is Status.WRONG_ASSUMPTION
        assert "the batch-norm statistics are not those of a batch" in found.message
