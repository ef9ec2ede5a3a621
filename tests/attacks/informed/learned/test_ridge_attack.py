"""Kernel ridge on shadow models: on real images, and its algebra against the slow way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.attacks import Oblivious
from exhume.attacks.informed.learned.held_out_errors import conditioner
from exhume.attacks.informed.learned.kernel_ridge import fit
from exhume.attacks.informed.learned.ridge import Ridge
from exhume.data import load
from exhume.defences import Rounding
from exhume.metrics import MSE, nearest_neighbours
from exhume.models import MLP, Initialisation
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Release, Weights
from exhume.training import SGD, Answers, Training

DATA = load("fashion-mnist-small").train
FIXED, SHADOWS, TARGETS = (
    DATA.take(np.arange(150)),
    DATA.take(np.arange(150, 470)),
    DATA.take(np.arange(1000, 1020)),
)
TRAINING = Training(MLP((28, 28), 10), tuple(range(10)), SGD(0.05, 0.9), epochs=30)
QUERIES = DATA.x[2000:2100]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cached(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXHUME_CACHE", str(folder))


@cache
def published(mechanism: Mechanism) -> Sequence[Release]:
    streams = [np.random.default_rng(i) for i in range(len(TARGETS))]
    return mechanism.publish_each(FIXED, TARGETS, rngs=streams)


def attacked(
    mechanism: Mechanism, attack: Ridge | None = None, **knows: object
) -> list[Reconstruction]:
    """Publish with every target and attack; ``knows`` may hold True for labels or a mask."""
    streams = [np.random.default_rng(i) for i in range(len(TARGETS))]
    releases = published(mechanism)
    knowledge = []
    for i in range(len(TARGETS)):
        more = dict(knows)
        if "labels" in more:
            more["labels"] = TARGETS.labels[i : i + 1]
        if "mask" in more:
            mask = np.asarray(more.pop("mask"))
            more["known_attributes"] = KnownAttributes(mask, np.where(mask, TARGETS.x[i], 0))
        knowledge.append(
            Knowledge(
                record_shape=(28, 28),
                value_range=(0.0, 1.0),
                training=mechanism,
                fixed_set=FIXED,
                shadow_targets=SHADOWS,
                **more,  # type: ignore[arg-type]
            )
        )
    return (attack or Ridge()).reconstruct_each(releases, knowledge, rngs=streams)


def errors(found: Sequence[Reconstruction]) -> np.ndarray:
    return np.array(
        [np.square(r.samples[0] - x).mean() for r, x in zip(found, TARGETS.x, strict=True)]
    )


def oracle() -> np.ndarray:
    """Squared distance of each target to the nearest record the adversary had."""
    pool = np.concatenate([FIXED.x, SHADOWS.x]).astype(np.float64)
    return nearest_neighbours(TARGETS.x.astype(np.float64), pool, MSE()).nearest_distance


def blind() -> float:
    knowledge = Knowledge(
        record_shape=(28, 28), value_range=(0.0, 1.0), fixed_set=FIXED, shadow_targets=SHADOWS
    )
    guess = Oblivious().reconstruct(Weights({"w": np.ones(1)}), knowledge, rng=0).samples[0]
    return float(np.square(guess - TARGETS.x).mean())


class TestRealImages:
    def test_beats_the_blind_guess_and_the_nearest_known_record(self) -> None:
        found = attacked(TRAINING)
        ours, nearest = errors(found), oracle()
        assert ours.mean() < 0.25 * blind()
        assert ours.mean() < 0.9 * nearest.mean()
        assert (ours < nearest).mean() > 0.6
        right = [r.labels[0] == y for r, y in zip(found, TARGETS.labels, strict=True)]
        assert np.mean(right) >= 0.9

    def test_its_own_estimate_is_about_right(self) -> None:
        found = attacked(TRAINING)
        own = np.array([np.square(r.error_estimate[0]) for r in found])
        assert own.mean() == pytest.approx(errors(found).mean(), rel=0.35)
        assert np.corrcoef(own, errors(found))[0, 1] > 0.2

    def test_says_converged_only_where_it_expects_to_beat_known_records(self) -> None:
        for one in attacked(TRAINING):
            assert one.status in (Status.CONVERGED, Status.APPROXIMATE)
            spread = float(one.stats["blind_error"])
            assert one.status is Status.APPROXIMATE or one.error_estimate[0] < 0.7 * spread

    def test_more_shadow_models_help(self) -> None:
        few, many = (errors(attacked(TRAINING, Ridge(shadows=k))).mean() for k in (40, 320))
        assert many < 0.8 * few

    @pytest.mark.parametrize(
        "mechanism",
        [
            Answers(TRAINING, QUERIES),
            Answers(TRAINING, QUERIES, Answer.PROBABILITIES),
            Rounding(TRAINING, 4),
        ],
        ids=["scores", "probabilities", "rounded"],
    )
    def test_other_releases_give_nearly_as_much(self, mechanism: Mechanism) -> None:
        assert errors(attacked(mechanism)).mean() < 1.4 * errors(attacked(TRAINING)).mean()

    def test_the_last_layer_alone_gives_the_record_away(self) -> None:
        """As Balle et al. 2022, section VI-B, found for the second of two layers."""
        assert errors(attacked(TRAINING, Ridge(layers=("3",)))).mean() < 0.4 * blind()

    def test_heavy_rounding_leaves_less(self) -> None:
        rough, fine = (errors(attacked(Rounding(TRAINING, d))).mean() for d in (1, 4))
        assert rough > 1.3 * fine

    def test_an_unknown_start_hides_the_record(self) -> None:
        """Table II of Balle et al. 2022: 0.0695 beside 0.0089 with the start known."""
        hidden = replace(TRAINING, initial=Initialisation(seed=None), epochs=3)
        found = attacked(hidden, Ridge(shadows=48))
        assert {r.status for r in found} <= {Status.NO_INFORMATION, Status.APPROXIMATE}
        assert errors(found).mean() > 0.5 * blind()


class TestKnowingMore:
    MASK = np.arange(784).reshape(28, 28) < 14 * 28

    def test_a_label_never_hurts_much(self) -> None:
        assert (
            errors(attacked(TRAINING, labels=True)).mean()
            < 1.02 * errors(attacked(TRAINING)).mean()
        )

    def test_known_entries_are_kept_and_improve_the_others(self) -> None:
        plain, told = attacked(TRAINING), attacked(TRAINING, mask=self.MASK)
        for one, x in zip(told, TARGETS.x, strict=True):
            np.testing.assert_allclose(one.samples[0][self.MASK], x[self.MASK], atol=1e-12)
        lower = [
            np.mean(
                [
                    np.square((r.samples[0] - x)[~self.MASK]).mean()
                    for r, x in zip(found, TARGETS.x, strict=True)
                ]
            )
            for found in (told, plain)
        ]
        assert lower[0] < 0.95 * lower[1]

    def test_knowing_everything_leaves_no_error(self) -> None:
        told = attacked(TRAINING, mask=np.ones((28, 28), dtype=bool))
        assert errors(told).max() < 1e-24
        assert all(r.error_estimate[0] == 0 for r in told)


class TestBadInput:
    def test_settings(self) -> None:
        with pytest.raises(InputError, match="at least 8, got 3"):
            Ridge(shadows=3)

    def test_a_diverging_training_is_no_crash(self) -> None:
        wild = replace(TRAINING, optimiser=SGD(1e8))
        release = TRAINING.publish(FIXED, rng=np.random.default_rng(0))
        knowledge = Knowledge(
            record_shape=(28, 28), training=wild, fixed_set=FIXED, shadow_targets=SHADOWS
        )
        found = Ridge(shadows=20).reconstruct(release, knowledge, rng=0)
        assert (found.status, len(found)) == (Status.NOT_CONVERGED, 0)
        assert "diverged" in found.message

    def test_a_release_of_some_other_training_is_recognised(self) -> None:
        other = replace(TRAINING, initial=Initialisation(seed=5))
        release = other.publish(FIXED.with_record(TARGETS.take([0])), rng=np.random.default_rng(0))
        knowledge = Knowledge(
            record_shape=(28, 28), training=TRAINING, fixed_set=FIXED, shadow_targets=SHADOWS
        )
        found = Ridge(shadows=64).reconstruct(release, knowledge, rng=0)
        assert found.status is Status.WRONG_ASSUMPTION
        assert "far more than any shadow model" in found.message

    def test_regression_targets(self) -> None:
        """A network with one output and real responses: the response comes back with the record."""
        y = DATA.x.mean(axis=(1, 2)).astype(np.float64)
        data = Records(DATA.x, y)
        training = Training(MLP((28, 28), 1), None, SGD(0.01, 0.9), epochs=20)
        fixed, target = data.take(np.arange(100)), data.take([900])
        release = training.publish(fixed.with_record(target), rng=np.random.default_rng(0))
        knowledge = Knowledge(
            record_shape=(28, 28),
            value_range=(0.0, 1.0),
            training=training,
            fixed_set=fixed,
            shadow_targets=data.take(np.arange(100, 400)),
        )
        found = Ridge().reconstruct(release, knowledge, rng=0)
        assert found.labels is not None
        assert found.labels[0] == pytest.approx(y[900], abs=0.1)
        assert np.square(found.samples[0] - DATA.x[900]).mean() < 0.06


class TestRegression:
    """The closed form against the slow way."""

    @given(st.integers(0, 1000), st.integers(6, 14), st.sampled_from([1e-2, 1.0, 30.0]))
    @settings(max_examples=20, deadline=None)
    def test_left_out_is_what_leaving_out_gives(self, seed: int, count: int, scale: float) -> None:
        rng = np.random.default_rng(seed)
        x, y = scale * rng.normal(size=(count, 3)), rng.normal(size=(count, 2))
        found = fit(x @ x.T, y, judged=2)
        for i in range(count):
            rest = np.delete(np.arange(count), i)
            expected = _ridge(x[rest], y[rest], found.penalty, x[i])
            np.testing.assert_allclose(found.left_out[i], expected, rtol=1e-6, atol=1e-8)

    def test_prediction_is_primal_ridge_with_a_free_intercept(self) -> None:
        rng = np.random.default_rng(0)
        x, y, new = rng.normal(size=(30, 4)), rng.normal(size=(30, 3)) + 7.0, rng.normal(size=4)
        found = fit(x @ x.T, y, judged=3)
        np.testing.assert_allclose(
            found.predict(x @ new), _ridge(x, y, found.penalty, new), rtol=1e-9
        )

    def test_the_penalty_follows_the_noise(self) -> None:
        rng = np.random.default_rng(1)
        x, w = rng.normal(size=(60, 20)), rng.normal(size=(20, 5))
        clean, noisy = x @ w, x @ w + 20 * rng.normal(size=(60, 5))
        assert fit(x @ x.T, noisy, judged=5).penalty > 30 * fit(x @ x.T, clean, judged=5).penalty

    def test_spread_is_the_gaussian_posterior_variance(self) -> None:
        rng = np.random.default_rng(2)
        x, y, new = rng.normal(size=(25, 6)), rng.normal(size=(25, 2)), rng.normal(size=6)
        found = fit(x @ x.T, y, judged=2)
        centred, moved = x - x.mean(axis=0), new - x.mean(axis=0)
        inner = centred @ centred.T + found.penalty * np.eye(25)
        expected = moved @ moved - (centred @ moved) @ np.linalg.solve(inner, centred @ moved)
        assert found.spread_at(x @ new, float(new @ new)) == pytest.approx(expected, rel=1e-6)

    def test_nothing_to_learn(self) -> None:
        found = fit(np.zeros((9, 9)), np.arange(9.0)[:, None], judged=1)
        np.testing.assert_allclose(found.predict(np.zeros(9)), [4.0])

    def test_conditioning_is_that_of_a_gaussian(self) -> None:
        """With many residuals and little noise: Σ_uk Σ_kk⁻¹ times what is seen."""
        rng = np.random.default_rng(3)
        factor = rng.normal(size=(4, 4))
        residuals = rng.normal(size=(1200, 4)) @ factor
        mask = np.array([True, False, True, False])
        covariance = factor.T @ factor
        seen = np.array([0.7, 0.0, -0.4, 0.0])
        gain = covariance[np.ix_(~mask, mask)] @ np.linalg.inv(covariance[np.ix_(mask, mask)])
        moved, left = conditioner(residuals, mask)(np.zeros(4), 1.0, KnownAttributes(mask, seen))
        np.testing.assert_allclose(moved[~mask], gain @ seen[mask], rtol=0.15, atol=0.05)
        assert 0 < left < 0.5


def _ridge(x: np.ndarray, y: np.ndarray, penalty: float, new: np.ndarray) -> np.ndarray:
    middle, mean = x.mean(axis=0), y.mean(axis=0)
    inner = (x - middle).T @ (x - middle) + penalty * np.eye(x.shape[1])
    return mean + (new - middle) @ np.linalg.solve(inner, (x - middle).T @ (y - mean))
