"""Shadow models to first order: chosen by their measured error, and found again after anything."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.shadows import small_network as small
from tests.shadows.test_shared_training import same_by

from exhume.attacks import Reconstructor, Ridge
from exhume.audit import Processes
from exhume.protocol.records import Records
from exhume.runtime.cache import Cache
from exhume.shadows import Order, filled, first_order, order_for
from exhume.shadows.first_order import LinearisedModels, maker_for, measured_errors
from exhume.shadows.maker import Repeated
from exhume.training.linearised import Hessian
from exhume.training.many_mlps import FoldedSimulator

pytestmark = pytest.mark.slow


def ordered(known: int = 2000, count: int = 80) -> Order:
    """An order with so many known records; the more there are, the smaller is the error."""
    rows = small.images()
    mechanism = small.training(epochs=8)
    knowledge = small.knowledge(
        mechanism,
        fixed_set=rows.take(slice(0, known)),
        shadow_targets=rows.take(slice(2000, 2000 + count)),
    )
    found = order_for(small.releases(mechanism, 1)[0], knowledge, layers=None, most=count)
    assert isinstance(found, Order), found
    return found


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the exact way were dear: so few small models never are worth a Hessian."""
    monkeypatch.setattr(first_order, "WORTH", 0.0)


@pytest.fixture
def hessians(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps whose Hessians are computed."""
    computed: list[int] = []
    real = Hessian.of

    def counted(nominal, step):  # type: ignore[no-untyped-def]
        computed.append(step.number)
        return real(nominal, step)

    monkeypatch.setattr(Hessian, "of", counted)
    return computed


@pytest.mark.usefixtures("cheap")
class TestChoice:
    def test_a_small_error_is_measured_and_said(self, tmp_path: Path) -> None:
        order = ordered()
        shadows = filled(order, Cache(tmp_path))
        exact = FoldedSimulator(order.training, order.fixed_set)  # type: ignore[arg-type]
        y = order.training.responses(order.targets.labels)
        truth = exact.differences(order.targets.x, y)
        gaps = np.linalg.norm(shadows.differences - truth, axis=1) / np.linalg.norm(truth, axis=1)
        assert shadows.errors is not None
        # The sample is the first 16 targets, whose errors were found without any Hessian.
        np.testing.assert_allclose(shadows.errors, gaps[:16], rtol=0.05)
        assert 1e-5 < gaps.mean() < first_order.MOST_OFF
        assert f"to first order, {shadows.errors.mean():.2%} off" in shadows.note()

    def test_attacks_say_how_the_models_were_made(self, tmp_path: Path) -> None:
        """The message and the statistics are what the run log and the report show."""
        order = ordered()
        knowledge = small.knowledge(
            order.mechanism, fixed_set=order.fixed_set, shadow_targets=order.targets
        )
        release = order.mechanism.publish(
            order.fixed_set.with_record(small.targets(1)), rng=np.random.default_rng(0)
        )
        for attack in (Ridge(), Reconstructor(hidden=(20,), epochs=2)):
            found = attack.reconstruct(release, knowledge, rng=0)
            assert "shadow models were trained to first order" in found.message
            assert 1e-5 < float(found.stats["shadow_error"]) < first_order.MOST_OFF

    def test_a_large_error_leaves_training_exact(self, tmp_path: Path) -> None:
        order, cache = ordered(known=30), Cache(tmp_path)
        assert measured_errors(Repeated(order), order.targets.take(slice(0, 16))).mean() > 0.01
        shadows = filled(order, cache)
        assert shadows.errors is None
        assert "first order" not in shadows.note()
        np.testing.assert_array_equal(
            shadows.differences, filled(ordered(known=30), Cache(None)).differences
        )

    def test_it_is_measured_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = maker_for(ordered(), Cache(tmp_path))
        monkeypatch.setattr(first_order, "measured_errors", _never)
        again = maker_for(ordered(), Cache(tmp_path))
        assert isinstance(again, LinearisedModels)
        assert first.errors is not None
        np.testing.assert_array_equal(again.errors, first.errors)

    def test_without_room_for_hessians_training_is_exact(self, tmp_path: Path) -> None:
        assert type(maker_for(ordered(), Cache(None))) is Repeated
        assert type(maker_for(ordered(), Cache(tmp_path, limit=100_000))) is Repeated
        assert type(maker_for(ordered(), Cache(tmp_path, limit=10**9))) is LinearisedModels


def test_few_models_are_not_worth_it(tmp_path: Path) -> None:
    assert type(maker_for(ordered(), Cache(tmp_path))) is Repeated


@pytest.mark.usefixtures("cheap")
class TestHessians:
    def test_they_are_found_again(self, tmp_path: Path, hessians: list[int]) -> None:
        first = filled(ordered(), Cache(tmp_path))
        assert hessians == list(range(8))
        # A second run with other targets needs no Hessian; a damaged one is computed again.
        more = filled(ordered(count=100), Cache(tmp_path))
        assert hessians == list(range(8))
        np.testing.assert_allclose(
            more.differences[:80],
            first.differences,
            rtol=1e-3,
            atol=1e-6 * np.abs(first.base).max(),
        )
        (damaged,) = tmp_path.glob("curvature-*/step-000003.safetensors")
        damaged.write_bytes(damaged.read_bytes()[:-5])
        filled(ordered(count=120), Cache(tmp_path))
        assert hessians == [*range(8), 3]

    def test_stopped_between_two_of_them(self, tmp_path: Path, hessians: list[int]) -> None:
        real = Cache.keep

        def stopping(self, shelf, name, arrays, *, about):  # type: ignore[no-untyped-def]
            if name == "step-000005":
                raise KeyboardInterrupt
            real(self, shelf, name, arrays, about=about)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cache, "keep", stopping)
            with pytest.raises(KeyboardInterrupt):
                filled(ordered(), Cache(tmp_path))
        resumed = filled(ordered(), Cache(tmp_path))
        assert hessians == [*range(6), 5, 6, 7]
        whole = filled(ordered(), Cache(tmp_path / "other"))
        np.testing.assert_array_equal(resumed.differences, whole.differences)

    def test_a_disk_that_is_full_by_then(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Hessians that cannot be kept are computed whenever they are needed."""
        whole = filled(ordered(), Cache(tmp_path / "other"))
        real = Cache.keep

        def full(self, shelf, name, arrays, *, about):  # type: ignore[no-untyped-def]
            if name == "step-000005":
                self.problem = "the disk is full"
            real(self, shelf, name, arrays, about=about)

        monkeypatch.setattr(Cache, "keep", full)
        shadows = filled(ordered(), Cache(tmp_path))
        np.testing.assert_array_equal(shadows.differences, whole.differences)
        assert "the disk is full" in shadows.note()

    def test_workers_share_them(self) -> None:
        """Workers fork after the choice was made, and find the Hessians that others computed."""
        same_by(Processes(2), ordered())


def _never(*_: object) -> Records:
    raise AssertionError("nothing should be measured here")
