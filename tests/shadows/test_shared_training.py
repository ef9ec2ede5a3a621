"""Shadow models trained by an executor's workers: the same to the last bit, and kept for audits."""

from __future__ import annotations

import pickle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from tests.audit import small as audits
from tests.shadows import small_network as small

from exhume.audit import Executor, Processes, Serial, run
from exhume.models.initialise import Initialisation
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Gradient, Outputs, Update, Weights
from exhume.shadows import (
    Cache,
    Order,
    chunks_left,
    filled,
    keep_chunk,
    order_for,
    train_chunk,
)
from exhume.training import Batches, Training

pytestmark = pytest.mark.slow

NETWORK = """
[[setting]]
name = "network"
data = { name = "fashion-mnist-small", fixed_set = 40, shadow_targets = 150 }
release = { model = "mlp", hidden = [6], activation = "elu" }
knowledge = { training = { learning_rate = 0.05, momentum = 0.9, epochs = 5 } }
"""


def ordered(mechanism: Training, count: int = 150) -> Order:
    knowledge = small.knowledge(mechanism)
    found = order_for(small.releases(mechanism, 1)[0], knowledge, layers=None, most=count)
    assert isinstance(found, Order), found
    return found


def train_ahead(order: Order, cache: Cache, executor: Executor) -> int:
    """Have an executor train what the cache doesn't hold, as audits do; return how many models."""
    todo, count = chunks_left(order, cache), 0
    for place, rows in executor.map(train_chunk, order, todo):
        assert rows is not None
        keep_chunk(cache, todo[place], rows)
        count += len(rows)
    return count


def same_by(executor: Executor, order: Order) -> None:
    """Assert that an executor's shadow set is the one that is trained here."""
    with TemporaryDirectory() as folder:
        cache = Cache(Path(folder) / "c")
        train_ahead(order, cache, executor)
        assert chunks_left(order, cache) == []
        here, there = filled(order, Cache(None)), filled(order, cache)
    assert here.differences.tobytes() == there.differences.tobytes()
    assert here.base.tobytes() == there.base.tobytes()
    assert len(there) == len(order.targets)


def test_repeated_training_is_the_same_bit_for_bit() -> None:
    same_by(Processes(2), ordered(small.training()))


def test_so_is_training_that_draws_for_itself() -> None:
    """Its start and its batches are unknown: a stream of its own for every model."""
    start, batches = Initialisation(seed=None), Batches(20, seed=None)
    unknown = small.training(epochs=2, initial=start, batches=batches)
    order = ordered(unknown, count=70)
    assert not order.repeatable
    same_by(Processes(2), order)


def test_only_what_is_not_kept_is_trained(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    assert train_ahead(ordered(small.training(), count=64), cache, Serial()) == 64
    # 150 are chunks of 64, 64 and 22, the first of which is there.
    assert train_ahead(ordered(small.training()), cache, Serial()) == 86
    assert train_ahead(ordered(small.training()), cache, Serial()) == 0
    assert train_ahead(ordered(small.training()), Cache(None), Serial()) == 0


def test_an_audit_trains_them_ahead_and_is_the_same(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = audits.plan(NETWORK, audits.audit(3, attacks='["ridge"]'))
    run(plan, tmp_path / "alone", Serial())
    monkeypatch.setenv("EXHUME_CACHE", str(tmp_path / "other"))
    seen = Watched(2)
    run(plan, tmp_path / "together", seen)
    # Three chunks of shadow models went out before the one unit of targets did.
    assert seen.tasks == [3, 1]
    audits.same(audits.outcome(tmp_path / "together"), audits.outcome(tmp_path / "alone"))
    names = [
        {path.relative_to(cache) for path in cache.rglob("*.safetensors")}
        for cache in (own_cache, tmp_path / "other")
    ]
    assert names[0] == names[1]


class Watched(Processes):
    """Notes how many tasks it is given each time."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        object.__setattr__(self, "tasks", [])

    def map(self, work, common, tasks):  # type: ignore[no-untyped-def]
        self.tasks.append(len(tasks))
        return super().map(work, common, tasks)


@pytest.mark.parametrize(
    "value",
    [
        Weights({"a": np.ones(2)}),
        Gradient({"a": np.ones(2)}, 3),
        Update({"a": np.ones(2)}, 3, 4),
        Outputs(np.ones((2, 3)), np.ones((2, 1))),
        Reconstruction(np.ones((1, 2)), Status.CONVERGED, stats={"steps": 3}),
    ],
)
def test_what_is_read_only_here_can_be_sent(value: object) -> None:
    there = pickle.loads(pickle.dumps(value))
    for name, found in vars(value).items():
        other = getattr(there, name)
        assert type(other) is type(found)
        if isinstance(found, np.ndarray):
            np.testing.assert_array_equal(other, found)
        elif hasattr(found, "items"):
            assert {n: np.asarray(v).tolist() for n, v in other.items()} == {
                n: np.asarray(v).tolist() for n, v in found.items()
            }
        else:
            assert other == found


def test_an_order_with_a_start_that_was_told_can_be_sent() -> None:
    hidden = small.training(initial=Initialisation(seed=None))
    initial = Initialisation().draw(hidden.network, np.random.default_rng(3))
    knowledge = small.knowledge(hidden, initial=initial)
    order = order_for(small.releases(hidden, 1)[0], knowledge, layers=None, most=20)
    assert isinstance(order, Order)
    assert pickle.loads(pickle.dumps(order)) == order
