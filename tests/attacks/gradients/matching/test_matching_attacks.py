"""The attacks on real images, against the mean-colour guess; and why they fail where they do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.gradients.matching.matching_cases import (
    CLASSES,
    KINKED,
    SMOOTH,
    attacked,
    errors,
    mean_grey,
    pictures,
)

from exhume.attacks import Attack
from exhume.attacks.gradients.matching import (
    DLG,
    IDLG,
    BatchNormMatching,
    Geiping,
    GenerativePrior,
    LiuMatching,
)
from exhume.data import load
from exhume.defences import Noise
from exhume.models.convnet import ConvNet
from exhume.models.lenet import LeNet
from exhume.models.resnet import ResNet
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.batch_statistics import batch_statistics
from exhume.training.batches import Batches
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.optimisers import SGD
from exhume.training.warm_up import train_a_little

pytestmark = pytest.mark.slow


class TestExactRecovery:
    @pytest.mark.parametrize("attack", [DLG(), IDLG()], ids=["dlg", "idlg"])
    def test_a_smooth_network_gives_its_record_away(self, attack: Attack) -> None:
        """Known and found labels alike: the release's own rounding is all that is left."""
        network = LeNet((8, 8), 10)
        state = network.uniform_parameters(np.random.default_rng(3))
        step = GradientStep(network, CLASSES, state=state)
        data = pictures(8, 3).take([2])
        labels = data.y if attack.name == "dlg" else None
        found = attacked(attack, step, data, labels=labels)
        assert found.status is Status.CONVERGED, dict(found.stats)
        assert errors(data.x, found.samples)[0] < 1e-6
        assert found.labels is not None
        np.testing.assert_array_equal(found.labels, data.labels)
        assert found.stats["residual"] < 5 * found.stats["floor"]  # type: ignore[operator]

    def test_soft_labels_are_found_along(self) -> None:
        data = pictures(4, 4).take([3])
        found = attacked(DLG(), SMOOTH, data, labels=None)
        assert found.labels is not None
        np.testing.assert_array_equal(found.labels, data.labels)
        assert errors(data.x, found.samples)[0] < 1e-6

    @pytest.mark.parametrize(
        "mechanism",
        [
            LocalSteps(SMOOTH, SGD(0.2, 0.9), 3),
            LocalSteps(SMOOTH, SGD(0.2), 2, Batches(1, seed=5)),
            Aggregate(SMOOTH, 2),
            Aggregate(LocalSteps(SMOOTH, SGD(0.2), 2), 2),
        ],
        ids=["momentum", "mini-batches", "clients", "clients' steps"],
    )
    def test_several_steps_and_clients(self, mechanism: Mechanism) -> None:
        data = pictures(4, 2)
        found = attacked(DLG(), mechanism, data)
        assert found.status is Status.CONVERGED, dict(found.stats)
        assert errors(data.x, found.samples).max() < 1e-4

    @pytest.mark.parametrize(("count", "size", "epochs"), [(2, 1, 2), (4, 2, 1)])
    def test_an_unknown_order_of_few_batches_is_found(
        self, count: int, size: int, epochs: int
    ) -> None:
        mechanism = LocalSteps(SMOOTH, SGD(0.2), epochs, Batches(size, seed=None))
        data = pictures(4, count)
        found = attacked(DLG(starts=1), mechanism, data)
        assert found.status is Status.CONVERGED, dict(found.stats)
        assert errors(data.x, found.samples).max() < 1e-4

    def test_an_unknown_order_of_many_still_gives_something(self) -> None:
        mechanism = LocalSteps(SMOOTH, SGD(0.05), 4, Batches(1, seed=None))
        data = pictures(4, 4)
        found = attacked(DLG(starts=1), mechanism, data)
        assert errors(data.x, found.samples).mean() < 0.5 * mean_grey(data.x).mean()
        assert found.status is not Status.CONVERGED

    def test_only_some_layers(self) -> None:
        data = pictures(4, 1)
        release = SMOOTH.publish(data, rng=np.random.default_rng(0))
        first = {n: a for n, a in release.gradients.items() if n.startswith("1.")}
        knowledge = Knowledge(
            record_shape=(4, 4), value_range=(0.0, 1.0), training=SMOOTH, labels=data.y
        )
        found = DLG().reconstruct(Gradient(first, 1), knowledge, rng=0)
        assert errors(data.x, found.samples)[0] < 1e-6


class TestKinkedNetworks:
    data = pictures(14, 2)
    step = GradientStep(ConvNet((14, 14), 10, width=16), CLASSES)

    def test_continuation_beats_the_published_attack_and_the_mean(self) -> None:
        settings = Geiping(steps=250, total_variation=5e-3)
        ours = attacked(settings, self.step, self.data)
        published = attacked(replace(settings, continuation=False), self.step, self.data)
        error = errors(self.data.x, ours.samples).mean()
        assert error < 0.05 * mean_grey(self.data.x).mean()
        assert error < 0.3 * errors(self.data.x, published.samples).mean()
        assert ours.status is Status.APPROXIMATE
        assert ours.stats["distance"] < published.stats["distance"]  # type: ignore[operator]

    def test_weight_is_chosen_without_the_truth(self) -> None:
        found = attacked(Geiping(steps=160, total_variation=None), self.step, self.data)
        assert found.stats["total_variation"] in (3e-3, 1e-2, 3e-2)
        assert errors(self.data.x, found.samples).mean() < 0.05 * mean_grey(self.data.x).mean()

    def test_liu_with_and_without_its_image_prior(self) -> None:
        whole = attacked(LiuMatching(steps=200, total_variation=3e-3), self.step, self.data)
        assert errors(self.data.x, whole.samples).max() < 0.02 * mean_grey(self.data.x).mean()
        bare = LiuMatching(
            steps=200,
            total_variation=3e-3,
            reweighting=False,
            deep_image_prior=False,
            feature_matching=False,
        )
        found = attacked(bare, self.step, self.data)
        error = errors(self.data.x, found.samples).mean()
        assert errors(self.data.x, whole.samples).mean() < error < mean_grey(self.data.x).mean()

    def test_generative_prior(self) -> None:
        shadows = load("fashion-mnist-small").train.x[1000:1200, ::2, ::2].astype(np.float64)
        attack = GenerativePrior(steps=120, training_steps=80, code=16, width=8)
        found = attacked(attack, self.step, self.data, shadow_targets=Records(shadows))
        assert errors(self.data.x, found.samples).mean() < 0.3 * mean_grey(self.data.x).mean()
        refused = attacked(attack, self.step, self.data)
        assert refused.status is Status.UNINFORMED
        assert "data.shadow_targets" in refused.message


@pytest.fixture(scope="module")
def normalised() -> GradientStep:
    network = ResNet((14, 14), 10, width=6, blocks=(1, 1))
    records = load("fashion-mnist-small").train
    halves = Records(records.x[1000:2000, ::2, ::2], records.y[1000:2000])
    state = train_a_little(network, halves, 40)
    return GradientStep(network, CLASSES, state=state.parameters, buffers=state.buffers)


class TestNormalisedNetworks:
    def test_statistics_are_matched(self, normalised: GradientStep) -> None:
        """The found image has the known statistics, much nearer than without the term."""
        data = pictures(14, 1)
        known = batch_statistics(normalised, data)
        attack = BatchNormMatching(steps=120, total_variation=3e-3)
        off = []
        for weight in (1.0, 0.0):
            found = attacked(replace(attack, batch_norm=weight), normalised, data, batch_norm=known)
            own = batch_statistics(normalised, Records(found.samples))
            off.append(np.mean([np.square(own[n] - known[n]).mean() for n in known]))
            assert found.status.ran
        assert off[0] < 0.5 * off[1]

    def test_a_normalised_network_gives_more_than_the_mean(self) -> None:
        """Two images, statistics known: far better than knowing each one's mean grey."""
        network = ResNet((14, 14), 10, width=16, blocks=(1, 1))
        records = load("fashion-mnist-small").train
        halves = Records(records.x[1000:2000, ::2, ::2], records.y[1000:2000])
        state = train_a_little(network, halves, 60)
        step = GradientStep(network, CLASSES, state=state.parameters, buffers=state.buffers)
        data = pictures(14, 2, first=600)
        known = batch_statistics(step, data)
        found = attacked(LiuMatching(steps=200), step, data, batch_norm=known)
        assert errors(data.x, found.samples).mean() < 0.5 * mean_grey(data.x).mean()

    def test_statistics_are_pytorchs_own(self, normalised: GradientStep) -> None:
        import torch

        data = pictures(14, 3)
        module = normalised.network.build()
        module.load_state_dict(
            {n: torch.tensor(a) for n, a in (*normalised.state, *normalised.buffers)}  # type: ignore[misc]
        )
        for layer in module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = 1.0
        scores = module.train()(torch.tensor(data.x, dtype=torch.float32))
        assert scores.shape == (3, 10)
        own = dict(module.named_buffers())
        for name, values in batch_statistics(normalised, data).items():
            count = 3 * (49 if "stages.1" in name else 196)
            # PyTorch keeps the unbiased variance.
            factor = count / (count - 1) if name.endswith("var") else 1.0
            np.testing.assert_allclose(own[name], factor * values, rtol=1e-4, atol=1e-5)

    def test_statistics_are_needed(self, normalised: GradientStep) -> None:
        bare = replace(normalised, buffers=None)
        found = attacked(BatchNormMatching(), bare, pictures(14, 1))
        assert "no batch-norm statistics" in found.message

    def test_wrong_statistics_are_named(self, normalised: GradientStep) -> None:
        with pytest.raises(InputError, match=r"batch_norm needs 'stem.1.running_mean'"):
            attacked(BatchNormMatching(), normalised, pictures(14, 1), batch_norm={})


class TestDiagnosis:
    def test_zeros_hold_nothing(self) -> None:
        release = SMOOTH.publish(pictures(4, 1), rng=np.random.default_rng(0))
        nothing = Gradient({n: 0.0 * a for n, a in release.gradients.items()}, 1)
        knowledge = Knowledge(record_shape=(4, 4), training=SMOOTH, labels=np.array([0]))
        assert DLG().reconstruct(nothing, knowledge, rng=0).status is Status.NO_INFORMATION

    def test_a_wrong_label_contradicts_the_release(self) -> None:
        found = attacked(DLG(starts=1), SMOOTH, pictures(4, 1), labels=np.array([7]))
        assert found.status is Status.WRONG_ASSUMPTION
        assert "not among the labels" in found.message

    def test_a_scaled_release_is_recognised(self) -> None:
        data = pictures(8, 1)
        release = KINKED.publish(data, rng=np.random.default_rng(0))
        tripled = Gradient({n: 3.0 * a for n, a in release.gradients.items()}, 1)
        knowledge = Knowledge(
            record_shape=(8, 8), value_range=(0.0, 1.0), training=KINKED, labels=data.y
        )
        found = Geiping(steps=150).reconstruct(tripled, knowledge, rng=0)
        assert found.status is Status.WRONG_ASSUMPTION
        assert found.stats["scale"] == pytest.approx(3.0, rel=0.1)

    def test_noise_raises_the_floor(self) -> None:
        data = pictures(4, 1)
        release = SMOOTH.publish(data, rng=np.random.default_rng(0))
        size = 0.1 * float(np.sqrt(np.mean(release.gradients["1.weight"] ** 2)))
        found = attacked(DLG(starts=1), Noise(SMOOTH, size), data)
        assert found.stats["floor"] > 1e-3  # type: ignore[operator]
        assert found.stats["residual"] < 5 * found.stats["floor"]  # type: ignore[operator]
        assert found.status is Status.CONVERGED

    def test_a_short_run_says_so(self) -> None:
        found = attacked(Geiping(steps=8, continuation=False), KINKED, pictures(8, 1))
        assert found.stats["reason"] in ("budget-spent", "stuck")
        assert found.status in (Status.APPROXIMATE, Status.NOT_CONVERGED)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"labels": np.array([1, 2])}, "2 labels are known, but 1 records are not"),
        ({"record_shape": (2, 8)}, "the network takes"),
        ({"target_weight": 2.0}, "equal weights"),
        ({"fixed_set": pictures(4, 2)}, "are shadow targets"),
    ],
)
def test_what_can_not_be_matched_is_refused(known: dict[str, object], message: str) -> None:
    data = pictures(4, 1)
    release = SMOOTH.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(record_shape=(4, 4), training=SMOOTH, labels=data.y)
    found = DLG().reconstruct(release, replace(knowledge, **known), rng=0)  # type: ignore[arg-type]
    assert found.status is Status.REFUSED
    assert message in found.message


def test_settings_are_checked() -> None:
    for make in (DLG, Geiping, BatchNormMatching, LiuMatching, GenerativePrior):
        with pytest.raises(InputError, match="steps must be at least 1"):
            make(steps=0)


def test_the_global_stream_is_left_alone() -> None:
    import torch

    # Publishing builds a network too; only the attack is asked about here.
    release = SMOOTH.publish(pictures(4, 1), rng=np.random.default_rng(0))
    after = torch.get_rng_state()
    knowledge = Knowledge(record_shape=(4, 4), training=SMOOTH, labels=np.array([0]))
    Geiping(steps=2).reconstruct(release, knowledge, rng=0)
    assert torch.equal(torch.get_rng_state(), after)


def test_importing_the_attacks_leaves_torch_alone() -> None:
    import subprocess
    import sys

    code = "import sys, exhume.attacks.gradients.matching; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
