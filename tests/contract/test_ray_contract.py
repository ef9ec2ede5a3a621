"""Tests Ray against the executor contract, on a real cluster of several nodes on this machine."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.audit import small
from tests.contract.executor import PLAIN, ExecutorContract, outcome, ran_on
from tests.contract.ray_nodes import Nodes, device, nodes
from tests.patience import PATIENCE_SECONDS
from tests.shadows import small_network as shadows
from tests.shadows.test_shared_training import ordered, same_by

from exhume.audit import Ray
from exhume.audit.stages.attack import run_unit
from exhume.protocol.errors import InputError

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'exhume[ray]'")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(2) as started:
        yield started


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A cluster without progress is a failure; do not wait for it forever."""

    def give_up(*_: object) -> None:
        raise TimeoutError("the cluster makes no progress")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class TestRay(ExecutorContract):
    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def connected(cls, cluster: Nodes, importable: None) -> Iterator[None]:
        """One connection for all tests of the class, which the executor reuses and leaves open."""
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
        """Its tasks run elsewhere; a node that joins meanwhile takes part."""
        folder, until = tmp_path / "marks", tmp_path / "go"
        folder.mkdir()
        plan = small.plan(PLAIN, small.audit(96), extra=(small.Marking(str(folder), str(until)),))
        with ThreadPoolExecutor(1) as driver:
            # Nodes are started from the main thread alone.
            running = driver.submit(
                lambda: list(ran_on(self.executor, plan, plan.units(), frozenset()))
            )
            _replace_a_node(cluster, folder, until)
            ran = running.result()
        assert len(small.marks(folder)) > 96, "no unit was cut off and begun again"
        assert sorted(unit.targets[0] for unit, _ in ran) == [0, 16, 32, 48, 64, 80]
        by_hand = [(u, run_unit(plan, u, frozenset())) for u in plan.units()]
        small.same(outcome(ran), outcome(by_hand))

    def test_shadow_models_are_the_same_bit_for_bit(self) -> None:
        same_by(self.executor, ordered(shadows.training()))

    def test_another_cluster_is_refused_while_connected(self, cluster: Nodes) -> None:
        with pytest.raises(InputError, match=f"connected to the Ray cluster at {cluster.address}"):
            list(Ray("local").map(small.divided, 1, [1]))

    def test_a_node_with_other_versions_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("exhume.runtime.ray_cluster.versions", lambda: {"exhume": "9.9"})
        with pytest.raises(InputError, match="has other versions than the process that started"):
            list(self.executor.map(small.divided, 1, [1]))


def _replace_a_node(cluster: Nodes, folder: Path, until: Path) -> None:
    """While both nodes are held in the middle of a unit, remove one and add another."""
    small.wait_for(lambda: len(small.marks(folder)) == 2)
    cluster.remove(small.marks(folder)[0])
    cluster.add()
    until.touch()


def test_a_private_cluster_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a home and a folder for temporary files that nobody else writes to meanwhile."""
    monkeypatch.setenv("HOME", str(tmp_path))
    # Short, for Ray's socket paths.
    with tempfile.TemporaryDirectory(prefix="xr-", dir="/tmp") as place:
        monkeypatch.delenv("RAY_TMPDIR", raising=False)
        monkeypatch.setenv("TMPDIR", place)
        monkeypatch.setattr(tempfile, "tempdir", place)
        found = dict(Ray("local", workers=1).map(small.divided, 6, [1, 2, 3]))
        assert found == {0: 6.0, 1: 3.0, 2: 2.0}
        assert list(Path(place).iterdir()) == []
    assert list(tmp_path.iterdir()) == []
    assert not ray.is_initialized()
