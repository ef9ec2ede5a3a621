"""The reconstructor network φ: what it learns, keeps, and how colour images are treated."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.shadows import small_network as small

from exhume.attacks import Oblivious
from exhume.attacks.informed.learned import Reconstructor
from exhume.attacks.informed.learned.phi import from_arrays, standardised
from exhume.attacks.informed.learned.reconstructor import taught_by
from exhume.attacks.informed.learned.train_network import (
    MOST_WEIGHTS,
    Adversary,
    Fitting,
    Perceptual,
    closeness,
    fine_tune,
    network_for,
    trained,
)
from exhume.models.reconstructors import (
    ConvolutionalReconstructor,
    DenseReconstructor,
    PatchDiscriminator,
)
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.runtime.fingerprint import fingerprint
from exhume.shadows import Cache, Order, ShadowSet, filled, order_for

ATTACK = Reconstructor(hidden=(64, 64), epochs=60)


def shadows(fixed: Records | None = None, count: int = 400, first: int = 500) -> ShadowSet:
    knowledge = small.knowledge(
        small.training(),
        fixed_set=fixed or small.fixed_set(),
        shadow_targets=small.images().take(np.arange(first, first + count)),
    )
    release = small.releases(small.training(), 1)[0]
    order = order_for(release, knowledge, layers=None, most=1000)
    assert isinstance(order, Order)
    return filled(order, Cache(Path(os.environ["EXHUME_CACHE"])))


def fitting(**changes: object) -> Fitting:
    plain = ATTACK.fitting(shadows(count=8), (0.0, 1.0))
    return replace(plain, **changes)  # type: ignore[arg-type]


class TestQuality:
    def test_beats_the_blind_guess_on_real_images(self) -> None:
        count = 20
        training, truth = small.training(), small.targets(count).x
        knowledge = small.knowledge(
            training, shadow_targets=small.images().take(np.arange(500, 1100))
        )
        streams = [np.random.default_rng(i) for i in range(count)]
        found = ATTACK.reconstruct_each(
            small.releases(training, count), [knowledge] * count, rngs=streams
        )
        ours = np.mean(
            [np.square(r.samples[0] - x).mean() for r, x in zip(found, truth, strict=True)]
        )
        guess = Oblivious().reconstruct(small.releases(training, 1)[0], knowledge, rng=0)
        assert ours < 0.5 * np.square(guess.samples[0] - truth).mean()
        assert {r.status for r in found} <= {Status.CONVERGED, Status.APPROXIMATE}
        own = float(found[0].error_estimate[0]) ** 2
        assert own == pytest.approx(ours, rel=0.5)

    def test_from_answers_alone(self) -> None:
        from exhume.training import Answers

        asked = Answers(small.training(), small.images().x[1500:1600])
        knowledge = small.knowledge(asked, shadow_targets=small.images().take(np.arange(500, 1100)))
        found = ATTACK.reconstruct_each(
            small.releases(asked, 12), [knowledge] * 12, rngs=[np.random.default_rng(0)] * 12
        )
        truth = small.targets(12).x
        ours = np.mean(
            [np.square(r.samples[0] - x).mean() for r, x in zip(found, truth, strict=True)]
        )
        mean = np.square(knowledge.pool().mean(axis=0) - truth).mean()
        assert ours < 0.8 * mean

    def test_too_few_shadow_models_are_no_information(self) -> None:
        knowledge = small.knowledge(small.training(), shadow_targets=small.shadow_targets(10))
        found = ATTACK.reconstruct(small.releases(small.training(), 1)[0], knowledge, rng=0)
        assert found.status in (Status.NO_INFORMATION, Status.APPROXIMATE)

    def test_fine_tuning_needs_fewer_shadow_models(self) -> None:
        """Appendix B of Balle et al. 2022: φ of one fixed set helps with another, disjoint one."""
        first = trained(shadows(count=600), fitting())
        other = small.images().take(np.arange(200, 260))
        few = shadows(other, count=60, first=1200)
        held = shadows(other, count=60, first=2000)
        tuned = fine_tune(first, few, fitting(epochs=30))
        fresh = trained(few, fitting(epochs=30))

        def error(phi: object) -> float:
            x = held.targets.x.reshape(60, -1)
            found = [phi.read(d.astype(np.float64)) for d in held.differences]  # type: ignore[attr-defined]
            return float(np.square(np.array(found) - x).mean())

        assert error(tuned) < 0.9 * error(fresh)


class TestTraining:
    def test_same_seed_same_network_other_seed_another(self) -> None:
        sets, settings = shadows(count=40), [fitting(epochs=2, seed=s) for s in (0, 0, 1)]
        state = torch.random.get_rng_state()
        one, two, three = (trained(sets, one) for one in settings)
        assert all(np.array_equal(a, two.state[n]) for n, a in one.state.items())
        assert not all(np.array_equal(a, three.state[n]) for n, a in one.state.items())
        one.read(sets.differences[0].astype(np.float64))
        assert torch.equal(torch.random.get_rng_state(), state), "the global stream is not ours"

    def test_stops_when_held_out_shadow_models_get_worse(self) -> None:
        phi = trained(shadows(count=60), fitting(epochs=400, learning_rate=0.01))
        assert phi.epochs < 380

    def test_held_out_errors_are_its_own(self) -> None:
        sets = shadows(count=60)
        phi = trained(sets, fitting(epochs=3))
        all_errors = sets.targets.x.reshape(60, -1) - np.array(
            [phi.read(d.astype(np.float64)) for d in sets.differences]
        )
        for row in phi.held_out:
            assert np.abs(all_errors - row).max(axis=1).min() < 1e-5

    def test_survives_a_file(self) -> None:
        phi = trained(shadows(count=40), fitting(epochs=2))
        again = from_arrays(phi.arrays(), phi.network)
        vector = np.random.default_rng(0).normal(size=370) * 1e-2
        np.testing.assert_array_equal(again.read(vector), phi.read(vector))

    def test_is_trained_once_and_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        knowledge = small.knowledge(small.training())
        release = small.releases(small.training(), 1)[0]
        first = ATTACK.reconstruct(release, knowledge, rng=0)
        taught_by.cache_clear()
        monkeypatch.setattr("exhume.attacks.informed.learned.train_network.trained", _never)
        again = ATTACK.reconstruct(release, knowledge, rng=1)
        assert again.samples.tobytes() == first.samples.tobytes()

    def test_inputs_are_standardised(self) -> None:
        rng = np.random.default_rng(0)
        rows = (rng.normal(3.0, 10.0 ** rng.uniform(-1, 1, 30), (50, 30))).astype(np.float32)
        rows[:, 4] = 7.0
        inputs = standardised(rows, 30)(rows)
        moving = np.delete(np.arange(30), 4)
        np.testing.assert_allclose(inputs[:, moving].mean(axis=0), 0.0, atol=1e-5)
        np.testing.assert_allclose(inputs[:, moving].std(axis=0), 1.0, atol=1e-3)
        assert np.abs(inputs[:, 4]).max() < 1e-3

    def test_wide_inputs_are_rotated_without_loss(self) -> None:
        rng = np.random.default_rng(1)
        rows = rng.normal(size=(20, 300)).astype(np.float32)
        whole, part = standardised(rows, 300)(rows), standardised(rows, 20)(rows)
        assert part.shape == (20, 20)

        def angles(x: np.ndarray) -> np.ndarray:
            unit = x / np.linalg.norm(x, axis=1, keepdims=True)
            return unit @ unit.T

        np.testing.assert_allclose(angles(part), angles(whole), atol=1e-4)

    def test_memory_is_bounded(self) -> None:
        sets = shadows(count=40)
        wide = replace(sets, differences=np.broadcast_to(np.float32(0), (40, 60_000)))
        network = network_for(wide, fitting(hidden=(1000,)))
        assert network.inputs == 40
        assert network.weights() < MOST_WEIGHTS

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"epochs": 0}, "epochs must be at least 1"),
            ({"shadows": 2}, "shadows must be at least 8"),
            ({"batch": 0}, "batch must be at least 1"),
            ({"learning_rate": -1.0}, "learning_rate must be a positive number"),
        ],
    )
    def test_bad_settings(self, settings: dict[str, object], message: str) -> None:
        with pytest.raises(InputError, match=message):
            Reconstructor(**settings)  # type: ignore[arg-type]


class TestNetworks:
    """Sizes as Balle et al. 2022 print them."""

    def test_sizes(self) -> None:
        for network in (
            DenseReconstructor(50, (4, 3), (7, 5)),
            ConvolutionalReconstructor(30, (12, 10, 3)),
        ):
            module = network.build()
            assert sum(p.numel() for p in module.parameters()) == network.weights()
            assert module(torch.zeros(2, network.inputs)).shape == (2, *network.record_shape)
        # Table V: 9.7M and 226M parameters.
        assert round(DenseReconstructor(7960, (28, 28)).weights() / 1e6, 1) == 9.7
        assert round(ConvolutionalReconstructor(55098, (32, 32, 3)).weights() / 1e6) == 226

    def test_outputs_stay_in_range(self) -> None:
        inputs = 100 * torch.randn(50, 20, generator=torch.Generator().manual_seed(0))
        found = DenseReconstructor(20, (3,), (8,), (-2.0, 5.0)).build()(inputs)
        assert found.min() >= -2.0
        assert found.max() <= 5.0
        free = DenseReconstructor(20, (3,), (8,), None).build()(inputs)
        assert free.abs().max() > 5.0

    def test_the_discriminator_sees_patches(self) -> None:
        assert PatchDiscriminator((32, 32, 3)).build()(torch.zeros(2, 32, 32, 3)).shape == (
            2,
            1,
            2,
            2,
        )
        with pytest.raises(InputError, match="24 pixels"):
            PatchDiscriminator((8, 8, 3)).build()
        with pytest.raises(InputError, match="images"):
            ConvolutionalReconstructor(10, (8, 8))


class TestColour:
    @pytest.fixture
    def lpips(self) -> Path:
        folder = os.environ.get("EXHUME_DATA", "")
        path = Path(folder) / "lpips_alex.npz"
        if not folder or not path.is_file():
            pytest.skip("EXHUME_DATA names no folder with lpips_alex.npz")
        return path

    def test_lpips_is_the_metric_and_has_a_slope(self, lpips: Path) -> None:
        from exhume.metrics import LPIPS

        images = np.random.default_rng(0).uniform(size=(2, 3, 32, 32, 3)).astype(np.float32)
        found, truth = (torch.tensor(x) for x in images)
        found.requires_grad_(True)
        loss = Perceptual(lpips, (0.0, 1.0), "cpu")(found, truth)
        expected = LPIPS(lpips, value_range=(0.0, 1.0))(images[1], images[0]).mean()
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)
        loss.backward()
        assert found.grad is not None
        assert float(found.grad.abs().max()) > 0

    def test_is_part_of_the_training_where_it_is_at_hand(
        self, lpips: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sets = coloured()
        settings = Reconstructor(epochs=1, adversarial=0.0).fitting(sets, (0.0, 1.0))
        assert settings.lpips == lpips
        called: list[int] = []
        real = Perceptual.__call__
        monkeypatch.setattr(Perceptual, "__call__", lambda *a: (called.append(1), real(*a))[1])
        trained(sets, settings)
        assert called
        assert len(fingerprint(settings)) == 64, "settings with a path can be kept by content"

    def test_the_adversary_learns(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            adversary = Adversary((24, 24, 3), "cpu")
        real, made = torch.full((2, 24, 24, 3), 0.9), torch.zeros(2, 24, 24, 3)
        before = float(adversary(real).detach())
        for _ in range(8):
            adversary.learn(made, real)
        assert float(adversary(real).detach()) < before, "real images pass better and better"

    def test_closeness(self) -> None:
        assert float(closeness(torch.tensor([0.5, 0.0]), torch.zeros(2))) == 0.25 + 0.125

    def test_trains_on_colour_images(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The whole of Table VII and VIII, on a few; where LPIPS is not at hand it says so."""
        monkeypatch.delenv("EXHUME_DATA", raising=False)
        colour = coloured()
        settings = Reconstructor(epochs=10, batch=16, learning_rate=3e-3).fitting(
            colour, (0.0, 1.0)
        )
        assert settings.convolutional
        assert settings.lpips is None
        phi = trained(colour, settings)
        assert isinstance(phi.network, ConvolutionalReconstructor)
        assert np.square(phi.held_out).mean() < 0.7 * phi.blind.mean()


def coloured() -> ShadowSet:
    """Shadow models that give away a single tint, of images of that tint."""
    sets = shadows(count=40)
    tint = np.random.default_rng(0).uniform(size=(40, 1, 1, 3))
    images = np.broadcast_to(tint, (40, 24, 24, 3)).copy()
    differences = np.repeat(tint[:, 0, 0], 20, axis=1).astype(np.float32)
    targets = Records(images, sets.targets.labels)
    return replace(sets, targets=targets, differences=differences)


def _never(*_: object) -> None:
    raise AssertionError("nothing should be trained here")
