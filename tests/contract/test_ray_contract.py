"""Ray against the executors' contract, on a real cluster of several nodes on this machine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.audit import small
from tests.contract.executor import ExecutorContract, outcome
from tests.contract.ray_nodes import Nodes, device, nodes
from tests.shadows import small_network as shadows
from tests.shadows.test_shared_training import ordered, same_by

from exhume.audit import Ray
from exhume.audit.trial import run_unit
from exhume.errors import InputError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'exhume[ray]'")

# One cluster for all tests, also where tests are spread over processes.
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(2) as started:
        yield started


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A cluster that does not go on is a failure, not a night's wait."""

    def give_up(*_: object) -> None:
        raise TimeoutError("the cluster made no progress in three minutes")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(180)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class TestRay(ExecutorContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def connected(cls, cluster: Nodes, importable: None) -> Iterator[None]:
        """One connection for all tests of the class, which the executor finds and leaves open."""
        cls.executor = Ray(cluster.address)
        cls.options = ("--executor", "ray", "--address", cluster.address)
        host = cluster.address.partition(":")[0]
        ray.init(address=cluster.address, _node_ip_address=host, log_to_driver=False)
        yield
        assert ray.is_initialized()
        ray.shutdown()

    def test_shares_of_a_gpu_are_where_one_is(self, cluster: Nodes) -> None:
        halves = Ray(cluster.address, cpus=0.5, gpus=0.5)
        assert dict(halves.map(device, "none", range(4))) == dict.fromkeys(range(4), "0")

    def test_a_node_removed_in_the_middle(self, cluster: Nodes, tmp_path: Path) -> None:
        """Its tasks are done elsewhere; a node that joins meanwhile takes part."""
        plan = small.plan(
            small.PLAIN, small.audit(96), extra=(small.Marking(str(tmp_path), pause=0.05),)
        )
        ran = []
        for unit, batches in self.executor.run(plan, plan.units(), frozenset()):
            if not ran:
                cluster.remove(_at_work(tmp_path))
                cluster.add()
            ran.append((unit, batches))
        marks = len(list(tmp_path.iterdir()))
        assert marks > 96, "no unit was cut off and begun again"
        assert sorted(unit.targets[0] for unit, _ in ran) == [0, 16, 32, 48, 64, 80]
        by_hand = [(u, run_unit(plan, u, frozenset())) for u in plan.units()]
        small.same(outcome(ran), outcome(by_hand))

    def test_shadow_models_are_the_same_bit_for_bit(self) -> None:
        same_by(self.executor, ordered(shadows.training()))

    def test_another_cluster_is_refused_while_connected(self, cluster: Nodes) -> None:
        with pytest.raises(InputError, match=f"connected to the Ray cluster at {cluster.address}"):
            list(Ray("local").map(small.divided, 1, [1]))

    def test_a_node_with_other_versions_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "exhume.audit.executors.ray_cluster.versions", lambda: {"exhume": "9.9"}
        )
        with pytest.raises(InputError, match="has other versions than the process that started"):
            list(self.executor.map(small.divided, 1, [1]))


def _at_work(marks: Path) -> int:
    """Freeze a process in the middle of a unit of 16 marks, and return its id."""
    while True:
        before = set(marks.iterdir())
        while not (new := set(marks.iterdir()) - before):
            time.sleep(0.005)
        worker = int(new.pop().name.partition("-")[0])
        os.kill(worker, signal.SIGSTOP)
        if len(list(marks.glob(f"{worker}-*"))) % 16:
            return worker
        os.kill(worker, signal.SIGCONT)


def test_a_private_cluster_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    before = set(Path("/tmp").iterdir())
    found = dict(Ray("local", workers=2).map(small.divided, 6, [1, 2, 3]))
    assert found == {0: 6.0, 1: 3.0, 2: 2.0}
    left = [path.name for path in set(Path("/tmp").iterdir()) - before]
    assert not [name for name in left if "ray" in name]
    assert list(tmp_path.iterdir()) == []
    assert not ray.is_initialized()
