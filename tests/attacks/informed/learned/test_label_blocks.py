"""Ridge by label blocks on streamed rows, against one dense kernel with its eigendecomposition."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.shadows import small_network as small

from exhume.attacks.informed.learned import Ridge, label_blocks, ridge, streamed_kernel
from exhume.attacks.informed.learned.kernel_ridge import PENALTIES, Kernel, directions, fit
from exhume.attacks.informed.learned.label_blocks import learned_by_label
from exhume.attacks.informed.learned.shadow_regression import learned
from exhume.attacks.informed.learned.streamed_kernel import (
    StreamedDirections,
    block_regression,
    sought,
)
from exhume.models import MLP
from exhume.protocol.knowledge import KnownAttributes
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.shadows import Cache, Order, ShadowSet, filled, order_for

pytestmark = pytest.mark.slow
RNG = np.random.default_rng(0)
ROWS = (RNG.normal(size=(90, 40)) * 10.0 ** RNG.uniform(-3, 0, (90, 1))).astype(np.float32)
ANSWERS = RNG.normal(size=(90, 6))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read 16 rows at a time."""
    monkeypatch.setattr(streamed_kernel, "_ROWS", 16)


def prepared(places: np.ndarray) -> StreamedDirections:
    return StreamedDirections.of(ROWS, places, 25, float(np.abs(ROWS).max()))


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kernel", list(Kernel))
class TestAgainstTheDenseKernel:
    places = np.arange(7, 90, 2)

    def test_kernels(self, kernel: Kernel) -> None:
        dense, streamed = directions(ROWS[self.places], 25), prepared(self.places)
        expected = kernel.of(*dense.table(len(self.places)))
        np.testing.assert_allclose(streamed.table(kernel), expected, atol=2e-6)
        other = RNG.normal(size=40) * 1e-5
        row = kernel.of(*dense.cosines(other))
        np.testing.assert_allclose(streamed.kernel(kernel, other), row, atol=2e-6)

    def test_predictions_and_left_out_ones(self, kernel: Kernel) -> None:
        dense = directions(ROWS[self.places], 25)
        table, answers = kernel.of(*dense.table(len(self.places))), ANSWERS[self.places]
        expected = fit(table, answers, judged=4)
        unit = expected.penalty / PENALTIES
        # The same penalty, given as a place in the list.
        centred = table - table.mean(axis=0)[None] - table.mean(axis=1)[:, None] + table.mean()
        place = int(np.argmin(np.abs(unit - np.trace(centred) / len(centred))))
        found, _ = block_regression(
            prepared(self.places), kernel, answers, lambda _: place, judged=4
        )
        assert found.penalty == pytest.approx(expected.penalty, rel=1e-4)
        np.testing.assert_allclose(found.left_out, expected.left_out, atol=1e-3)
        other = RNG.normal(size=40)
        row = kernel.of(*dense.cosines(other))
        np.testing.assert_allclose(found.read(other)[0], expected.predict(row), atol=1e-3)


class TestPenalties:
    @pytest.mark.parametrize("best", [0, 7, 16, 31, 32])
    @pytest.mark.parametrize("start", [0, 11, 32])
    def test_the_search_goes_to_the_minimum(self, best: int, start: int) -> None:
        asked: list[int] = []

        def error(place: int) -> float:
            asked.append(place)
            return abs(place - best) + 1.0

        assert abs(sought(start)(error) - best) <= 1
        assert len(asked) == len(set(asked))

    def test_a_kernel_that_is_not_positive_is_passed_over(self) -> None:
        """Rounding makes a kernel of equal rows indefinite at the smallest penalties."""
        rows = np.repeat(ROWS[:3], 30, axis=0)
        compared = StreamedDirections.of(rows, np.arange(90), 25, 1.0)
        found, place = block_regression(compared, Kernel.SQUARE, ANSWERS, sought(0), judged=6)
        assert np.isfinite(found.left_out).all()
        assert 0 <= place < len(PENALTIES)


def ordered(count: int, **changes: object) -> Order:
    """Shadow models of a network with few known records, which reads well."""
    training = small.training(**changes)
    rows = small.images().take(np.arange(500, 500 + count))
    knowledge = small.knowledge(training, shadow_targets=rows)
    release = small.releases(training, 1)[0]
    found = order_for(release, knowledge, layers=None, most=count)
    assert isinstance(found, Order)
    return found


def kept(order: Order) -> ShadowSet:
    return filled(order, Cache(Path(os.environ["EXHUME_CACHE"])))


@pytest.fixture
def in_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if 300 shadow models were too many for one dense kernel."""
    monkeypatch.setattr(label_blocks, "DENSE", 300)
    monkeypatch.setattr(ridge, "DENSE", 300)
    yield
    ridge.learned_in_blocks.cache_clear()


def read_errors(taught: object, victims: ShadowSet, *, known: bool = False) -> np.ndarray:
    found = []
    for row, x, y in zip(
        victims.differences, victims.targets.x, victims.targets.labels, strict=True
    ):
        label = np.array([y]) if known else taught.label(row.astype(float))  # type: ignore[attr-defined]
        read, _, squared = taught.read(row.astype(float), label)  # type: ignore[attr-defined]
        found.append((np.square(np.clip(read, 0, 1) - x.ravel()).mean(), squared))
    return np.array(found)


@pytest.mark.usefixtures("in_blocks")
class TestBlocks:
    @pytest.mark.parametrize(
        ("most", "known", "factor"), [(1200, False, 1.02), (1200, True, 1.02), (600, False, 2.0)]
    )
    def test_as_good_as_the_dense_kernel(
        self, most: int, known: bool, factor: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same with all in one block; in blocks of half of them, what half of them give."""
        monkeypatch.setattr(label_blocks, "BLOCK", most)
        order = ordered(1200)
        shadows = kept(order)
        rows = small.images().take(np.arange(2000, 2200))
        victims = kept(replace(order, targets=rows))
        dense = read_errors(learned(order, known, (0.0, 1.0)), victims, known=known)
        taught = learned_by_label(shadows, known, (0.0, 1.0))
        found = read_errors(taught, victims, known=known)
        assert taught.by_label
        assert found[:, 0].mean() < factor * dense[:, 0].mean()
        # Its own estimate is about right, on average and in order.
        assert found[:, 1].mean() == pytest.approx(found[:, 0].mean(), rel=0.4)
        assert np.corrcoef(found.T)[0, 1] > 0.2
        assert taught.evidence.error**2 == pytest.approx(found[:, 0].mean(), rel=0.4)

    def test_a_label_without_models_is_read_by_the_mixed_block(self) -> None:
        order = ordered(1200)
        shadows = kept(order)
        rare = np.flatnonzero(shadows.targets.labels == 3)
        chosen = np.setdiff1d(np.arange(1200), rare)
        fewer = replace(
            shadows,
            differences=shadows.differences[chosen],
            targets=shadows.targets.take(chosen),
        )
        taught = learned_by_label(fewer, False, (0.0, 1.0))
        assert sorted(taught.blocks) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        row = shadows.differences[rare[7]].astype(float)
        mixed, _ = taught.mixed.read(row)
        np.testing.assert_array_equal(taught.read(row, np.array([3]))[0], mixed[: taught.size])

    def test_a_block_has_a_largest_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(label_blocks, "BLOCK", 200)
        shadows = kept(ordered(1200))
        taught = learned_by_label(shadows, False, (0.0, 1.0))
        assert len(taught.blocks) == 10
        for name, block in taught.blocks.items():
            assert len(block.compared.places) == 200
            assert block.labels is not None
            assert (block.labels == name).sum() == (shadows.targets.labels == name).sum()

    def test_the_attack_uses_them(self) -> None:
        training = small.training()
        shadows = small.images().take(np.arange(500, 1700))
        knowledge = small.knowledge(training, shadow_targets=shadows)
        releases = small.releases(training, 3)
        for release, truth in zip(releases, small.targets(3).x, strict=True):
            found = Ridge().reconstruct(release, knowledge, rng=0)
            assert found.status in (Status.CONVERGED, Status.APPROXIMATE)
            assert found.stats["by_label"] is True
            assert "by label" in found.message
            blind = np.square(shadows.x.mean(axis=0) - truth).mean()
            assert np.square(found.samples[0] - truth).mean() < blind
        mask = np.zeros(small.SHAPE, dtype=bool)
        mask[:3] = True
        values = np.where(mask, small.targets(1).x[0], 0.0)
        knows = replace(knowledge, known_attributes=KnownAttributes(mask, values))
        informed = Ridge().reconstruct(releases[0], knows, rng=0)
        assert informed.stats["shadows"] == 300
        np.testing.assert_array_equal(informed.samples[0][mask], values[mask])


def test_answers_that_are_numbers_have_one_block() -> None:
    """Without classes there are no labels to read apart."""
    numbers = [
        Records(part.x, part.x.reshape(len(part), -1).mean(axis=1))
        for part in (small.fixed_set(), small.images().take(np.arange(500, 900)))
    ]
    training = small.training(network=MLP(small.SHAPE, 1, hidden=(6,)), classes=None)
    release = training.publish(numbers[0], rng=np.random.default_rng(0))
    knowledge = small.knowledge(training, fixed_set=numbers[0], shadow_targets=numbers[1])
    order = order_for(release, knowledge, layers=None, most=400)
    assert isinstance(order, Order)
    shadows = kept(order)
    taught = learned_by_label(shadows, False, (0.0, 1.0))
    assert taught.blocks == {}
    row = shadows.differences[0].astype(float)
    assert taught.label(row) is None
    x, scores, _ = taught.read(row, None)
    assert (x.shape, taught.named(scores).shape) == ((49,), (1,))
    assert taught.evidence.error < taught.evidence.blind_error


def test_wide_models_are_read_fewer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same table, however many rows memory holds."""
    whole = prepared(np.arange(90)).table(Kernel.PRODUCT)
    monkeypatch.setattr(streamed_kernel, "_BYTES", 4 * 40 * 7)
    narrow = prepared(np.arange(90))
    assert max(len(rows) for _, rows in narrow.parts()) == 7
    np.testing.assert_allclose(narrow.table(Kernel.PRODUCT), whole, atol=2e-6)


def test_few_wide_models_that_memory_does_not_hold_are_streamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = small.training()
    knowledge = small.knowledge(training, shadow_targets=small.shadow_targets(150))
    releases, truth = small.releases(training, 30), small.targets(30).x

    def attacked() -> float:
        found = [Ridge().reconstruct(release, knowledge, rng=0) for release in releases]
        assert {one.stats["shadows"] for one in found} == {150}
        return float(
            np.mean([np.square(r.samples[0] - x) for r, x in zip(found, truth, strict=True)])
        )

    dense = attacked()
    # As if memory held the differences of 140 models of 370 numbers.
    monkeypatch.setattr(ridge, "MOST_BYTES", 4 * 370 * 140)
    monkeypatch.setattr(ridge, "learned", None)
    assert attacked() < 1.1 * dense
