"""Shadow sets against models that were really trained, whatever is around the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.shadows import small_network as small

from exhume.defences import Rounding
from exhume.models import Initialisation
from exhume.protocol.defence import Blurring, Defence
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Gradient, Release, Weights
from exhume.runtime.fingerprint import fingerprint
from exhume.shadows import Cache, Order, filled, order_for, shadows_of
from exhume.shadows.maker import Repeated
from exhume.training import SGD, Answers, Batches, DPClipping
from exhume.training.simulator import PlainSimulator

QUERIES = small.images().x[1000:1012]


@dataclass(frozen=True)
class Noise(Blurring):
    """Gaussian noise on whatever is released."""

    inner: Mechanism
    size: float
    name: ClassVar[str] = "noise"

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        release = self.inner.publish(data, rng=rng)
        assert isinstance(release, Weights)
        noisy = {n: a + rng.normal(0, self.size, a.shape) for n, a in release.parameters.items()}
        return Weights(noisy)

    def deviation(self, records: int) -> float:
        return self.size

    def describe(self) -> str:
        return f"noise {self.size}"


@dataclass(frozen=True)
class Halved(Defence):
    """Not a blur: releases half of every weight."""

    inner: Mechanism
    name: ClassVar[str] = "halved"

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        release = self.inner.publish(data, rng=rng)
        assert isinstance(release, Weights)
        return Weights({n: a / 2 for n, a in release.parameters.items()})

    def describe(self) -> str:
        return "halved"


def ordered(mechanism: Mechanism, count: int = 80, **changes: object) -> Order:
    knowledge = small.knowledge(mechanism, **changes)
    found = order_for(small.releases(mechanism, 1)[0], knowledge, layers=None, most=count)
    assert isinstance(found, Order), found
    return found


def published(mechanism: Mechanism, chosen: Sequence[int]) -> list[Release]:
    targets = small.shadow_targets().take(list(chosen))
    streams = [np.random.default_rng(i) for i in chosen]
    return list(mechanism.publish_each(small.fixed_set(), targets, rngs=streams))


class TestWhatTheyAre:
    @pytest.mark.parametrize(
        "mechanism",
        [
            small.training(),
            small.training(precision="float64"),
            small.training(batches=Batches(16)),
            Answers(small.training(), QUERIES),
            Answers(small.training(), QUERIES, Answer.PROBABILITIES),
            Rounding(small.training(), 9),
            Rounding(Answers(small.training(), QUERIES), 9),
            Halved(small.training()),
        ],
        ids=["plain", "double", "batches", "scores", "probabilities", "rounded", "both", "halved"],
    )
    def test_differences_are_those_of_trained_models(self, mechanism: Mechanism) -> None:
        shadows = filled(ordered(mechanism, 10), Cache(None))
        chosen = [0, 3, 9]
        trained = np.array([shadows.read(release) for release in published(mechanism, chosen)])
        errors = np.linalg.norm(trained - shadows.differences[chosen], axis=1)
        assert (errors < 2e-4 * np.linalg.norm(trained, axis=1)).all(), errors

    def test_base_is_training_without_a_target(self) -> None:
        shadows = filled(ordered(small.training(), 10), Cache(None))
        plain = PlainSimulator(small.training(), small.fixed_set())
        np.testing.assert_allclose(shadows.base, plain.base, rtol=1e-9, atol=1e-12)

    def test_noise_has_the_size_of_the_defence(self) -> None:
        quiet = filled(ordered(small.training()), Cache(None)).differences
        noisy = filled(ordered(Noise(small.training(), 0.05)), Cache(None)).differences
        gap = noisy - quiet
        assert gap.std() == pytest.approx(0.05, rel=0.02)
        assert not np.allclose(gap[0], gap[1]), "every shadow has noise of its own"

    @pytest.mark.parametrize(
        "changes",
        [
            {"initial": Initialisation(seed=None)},
            {"batches": Batches(16, seed=None)},
            {"clipping": DPClipping(1.0, 0.1)},
        ],
        ids=["initialisation", "order", "noise"],
    )
    def test_what_is_unknown_is_drawn_for_each(self, changes: dict[str, object]) -> None:
        order = ordered(small.training(epochs=3, **changes), 12)
        shadows = filled(order, Cache(None))
        assert not order.repeatable
        np.testing.assert_allclose(shadows.differences.mean(axis=0), 0.0, atol=1e-6)
        again = filled(ordered(small.training(epochs=3, **changes), 12), Cache(None))
        np.testing.assert_array_equal(shadows.differences, again.differences)

    def test_initial_parameters_that_were_told_make_it_repeatable(self) -> None:
        known = small.training()
        start = known.initial.draw(known.network, np.random.default_rng(0))
        secret = small.training(initial=Initialisation(seed=None))
        told = filled(ordered(secret, 10, initial=start), Cache(None))
        same = filled(ordered(known, 10), Cache(None))
        np.testing.assert_allclose(told.differences, same.differences, atol=1e-9)

    def test_a_target_that_counts_double(self) -> None:
        once = filled(ordered(small.training(), 10), Cache(None))
        twice = filled(ordered(small.training(), 10, target_weight=2.0), Cache(None))
        lengths = [np.linalg.norm(s.differences, axis=1).mean() for s in (once, twice)]
        assert 1.4 * lengths[0] < lengths[1] < 2.2 * lengths[0]

    def test_layers_are_chosen_by_name(self) -> None:
        release = small.releases(small.training(), 1)[0]
        knowledge = small.knowledge(small.training())
        order = order_for(release, knowledge, layers=("3", "1.bias"), most=10)
        assert isinstance(order, Order)
        part = filled(order, Cache(None))
        whole = filled(ordered(small.training(), 10), Cache(None))
        np.testing.assert_array_equal(part.differences, whole.differences[:, 49 * 6 :])
        assert part.read(release).shape == (6 + 70,)


class TestKept:
    def test_nothing_is_trained_twice(
        self, own_cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = shadows_of(ordered(small.training()))
        shadows_of.cache_clear()
        monkeypatch.setattr("exhume.shadows.maker.simulator_for", _never)
        again = shadows_of(ordered(small.training()))
        assert again.differences.tobytes() == first.differences.tobytes()
        assert again.base.tobytes() == first.base.tobytes()
        asked = shadows_of(ordered(Answers(small.training(), QUERIES)))
        assert asked.differences.shape == (80, 120), "answers come from the models that are there"

    def test_more_shadows_reuse_whole_chunks(
        self, own_cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shadows_of(ordered(small.training(), 64))
        trained: list[int] = []
        real = Repeated.rows

        def counted(self: Repeated, targets: Records, name: str) -> np.ndarray:
            trained.append(len(targets))
            return real(self, targets, name)

        monkeypatch.setattr(Repeated, "rows", counted)
        assert len(shadows_of(ordered(small.training(), 100))) == 100
        assert trained == [36]

    @pytest.mark.parametrize(
        "other",
        [
            small.training(epochs=16),
            small.training(optimiser=SGD(0.1, 0.8)),
            small.training(initial=Initialisation(seed=1)),
            small.training(precision="float64"),
            Rounding(small.training(), 5),
        ],
    )
    def test_other_settings_are_another_order(self, other: Mechanism) -> None:
        assert ordered(other) != ordered(small.training())

    def test_other_data_is_another_order(self) -> None:
        plain = ordered(small.training())
        fixed = small.fixed_set()
        x = fixed.x.copy()
        x[0, 0, 0] += 1e-3
        assert ordered(small.training(), fixed_set=Records(x, fixed.y)) != plain
        assert (
            ordered(small.training(), shadow_targets=small.images().take(slice(900, 980))) != plain
        )
        assert ordered(small.training()) == plain
        assert hash(ordered(small.training())) == hash(plain)

    def test_a_damaged_chunk_is_trained_again(self, own_cache: Path) -> None:
        first = shadows_of(ordered(small.training()))
        for path in own_cache.glob("*/*.safetensors"):
            path.write_bytes(path.read_bytes()[:-3])
        shadows_of.cache_clear()
        again = shadows_of(ordered(small.training()))
        assert again.differences.tobytes() == first.differences.tobytes()

    def test_a_cache_that_fails_is_mentioned_and_costs_nothing(
        self, own_cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own_cache.write_text("a file in the way")
        shadows = shadows_of(ordered(small.training()))
        assert len(shadows) == 80
        assert "could not be cached" in shadows.note()

    def test_what_can_not_be_told_apart_is_not_kept(self, own_cache: Path) -> None:
        @dataclass(frozen=True)
        class Strange(Halved):
            secret: object = None

        order = ordered(Strange(small.training(epochs=1), object()), 8)
        assert order.source == ""
        assert len(shadows_of(order)) == 8
        assert list(own_cache.glob("*/*")) == []


class TestRefusals:
    def reason(self, release: Release | None = None, **changes: object) -> str:
        training = small.training()
        knowledge = small.knowledge(training, **changes)
        release = release or small.releases(training, 1)[0]
        found = order_for(release, knowledge, layers=None, most=100)
        assert isinstance(found, str), found
        return found

    def test_each_has_its_reason(self) -> None:
        few = small.shadow_targets(7)
        same = Records(np.repeat(small.shadow_targets().x[:1], 20, axis=0), np.zeros(20, dtype=int))
        strange = Records(small.shadow_targets().x, np.full(150, 11))
        assert "shadow targets" in self.reason(shadow_targets=None)
        assert "at least 8 shadow targets, got 7" in self.reason(shadow_targets=few)
        assert "all the same" in self.reason(shadow_targets=same)
        assert "no labels" in self.reason(shadow_targets=Records(small.shadow_targets().x))
        assert "label 11 is not one of" in self.reason(shadow_targets=strange)
        assert "fixed set" in self.reason(fixed_set=None)
        assert "training" in self.reason(training=None)
        assert "'1.weight'" in self.reason(Weights({"0.weight": np.ones((3, 3))}))
        assert "not Gradient" in self.reason(Gradient({"1.weight": np.ones((6, 49))}, 1))
        answers = Answers(small.training(), QUERIES)
        assert "weights were released" in self.reason(training=answers)

    def test_overlap_with_the_fixed_set(self) -> None:
        """A shadow target that is in the fixed set already has made its difference."""
        overlapping = small.fixed_set(20).with_record(small.shadow_targets(30))
        order = ordered(small.training(), shadow_targets=overlapping)
        assert (len(order.targets), order.left_out) == (30, 20)
        assert "20 shadow targets are in the fixed set" in filled(order, Cache(None)).note()
        assert "20 more are also in the fixed set" in self.reason(
            shadow_targets=small.fixed_set(20).with_record(small.shadow_targets(3))
        )

    @pytest.mark.parametrize("layers", [(), ("7",), ("1", "nonsense")])
    def test_layers_that_are_not_there(self, layers: tuple[str, ...]) -> None:
        release = small.releases(small.training(), 1)[0]
        found = order_for(release, small.knowledge(small.training()), layers=layers, most=10)
        assert isinstance(found, str)
        assert "layer" in found

    def test_training_that_diverges_says_so(self) -> None:
        wild = small.training(optimiser=SGD(1e9), epochs=60)
        knowledge = small.knowledge(wild)
        release = small.releases(small.training(), 1)[0]
        order = order_for(release, knowledge, layers=None, most=10)
        assert isinstance(order, Order)
        with pytest.raises(InputError, match="diverged"):
            filled(order, Cache(None))

    def test_single_shadow_models_that_diverge_are_left_out(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Repeated.rows

        def sick(self: Repeated, targets: Records, name: str) -> np.ndarray:
            rows = real(self, targets, name)
            rows[2] = np.nan
            return rows

        monkeypatch.setattr(Repeated, "rows", sick)
        shadows = filled(ordered(small.training()), Cache(None))
        assert (len(shadows), shadows.diverged) == (78, 2)
        assert np.isfinite(shadows.differences).all()
        np.testing.assert_array_equal(shadows.targets.x[2], small.shadow_targets().x[3])
        assert "2 shadow models diverged" in shadows.note()


class TestFingerprints:
    def test_types_and_borders_count(self) -> None:
        different = [
            fingerprint(*parts)
            for parts in [
                (1,),
                (1.0,),
                (True,),
                ("1",),
                ("ab", "c"),
                ("a", "bc"),
                (("a",), "bc"),
                (np.ones(2),),
                (np.ones(2, dtype=np.float32),),
                (np.ones((1, 2)),),
                (None,),
                (),
            ]
        ]
        assert len(set(different)) == len(different)

    def test_it_is_the_same_tomorrow(self) -> None:
        # sha256 of the encoding in fingerprint.py, computed once: a change would orphan caches.
        assert fingerprint("exhume", 1)[:16] == hashed_once()

    def test_content_that_can_not_be_told(self) -> None:
        with pytest.raises(InputError, match="no content that can be fingerprinted"):
            fingerprint(object())
        with pytest.raises(InputError):
            fingerprint(lambda: 0)


def hashed_once() -> str:
    import hashlib

    text = b"sequence:1:2" + b"str:8:'exhume'" + b"int:1:1"
    return hashlib.sha256(text).hexdigest()[:16]


def _never(*_: object) -> None:
    raise AssertionError("nothing should be trained here")


def test_knowledge_of_a_stranger_is_refused() -> None:
    release = small.releases(small.training(), 1)[0]
    found = order_for(release, Knowledge(record_shape=small.SHAPE), layers=None, most=10)
    assert isinstance(found, str)


def test_replacing_the_queries_keeps_the_release_readable() -> None:
    """The adversary's own queries count, not those in the description of the training."""
    asked = Answers(small.training(), QUERIES)
    other = replace(asked, queries=small.images().x[1100:1105])
    release = small.releases(other, 1)[0]
    order = order_for(release, small.knowledge(asked), layers=None, most=10)
    assert isinstance(order, Order)
    assert filled(order, Cache(None)).read(release).shape == (50,)
