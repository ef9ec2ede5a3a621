"""Sets of shadow models larger than memory may be: the same numbers, from a mapped file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.shadows import small_network as small
from tests.shadows.test_shadow_sets import QUERIES, Noise, ordered

from exhume.protocol.mechanism import Mechanism
from exhume.protocol.release import Answer
from exhume.runtime import cache_rows
from exhume.runtime.cache import Cache
from exhume.runtime.cache_rows import blocks_of, keep_rows, kept_rows
from exhume.shadows import filled, order, train_shadows
from exhume.shadows.maker import Repeated
from exhume.training import Answers, Batches

SHELF = "sets-" + "ab" * 16


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if memory held the differences of 20 models of 370 numbers."""
    for module in (train_shadows, order):
        monkeypatch.setattr(module, "MOST_BYTES", 4 * 370 * 20)
    order._affordable.cache_clear()
    yield
    order._affordable.cache_clear()


def test_the_limit_is_what_it_says(tmp_path: Path, small_memory: None) -> None:
    within = filled(ordered(small.training(), 20), Cache(tmp_path))
    beyond = filled(ordered(small.training(), 21), Cache(tmp_path))
    assert not isinstance(within.differences, np.memmap)
    assert isinstance(beyond.differences, np.memmap)


@pytest.mark.parametrize(
    "mechanism",
    [
        small.training(),
        Answers(small.training(), QUERIES, Answer.PROBABILITIES),
        Noise(small.training(), 0.05),
        small.training(epochs=3, batches=Batches(16, seed=None)),
    ],
    ids=["plain", "probabilities", "noise", "own draws"],
)
def test_the_same_numbers(tmp_path: Path, mechanism: Mechanism, request: object) -> None:
    dense = filled(ordered(mechanism), Cache(None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_shadows, "MOST_BYTES", 1)
        mapped = filled(ordered(mechanism), Cache(tmp_path))
    assert isinstance(mapped.differences, np.memmap)
    # Where the base is the mean of all, it is summed in another order.
    close = {"rtol": 0.0, "atol": 0.0 if dense.order.repeatable else 1e-6}
    np.testing.assert_allclose(mapped.differences, dense.differences, **close)
    np.testing.assert_allclose(mapped.base, dense.base, **close)
    assert mapped.far_off(10 * dense.differences[0].astype(float)) == dense.far_off(
        10 * dense.differences[0].astype(float)
    )


@pytest.mark.usefixtures("small_memory")
class TestFoundAgain:
    def test_by_a_second_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = filled(ordered(small.training()), Cache(tmp_path))
        monkeypatch.setattr(Repeated, "rows", _never)
        for chunk in tmp_path.glob("shadows-*/*"):
            if chunk.stem != "base":
                chunk.unlink()
        again = filled(ordered(small.training()), Cache(tmp_path))
        np.testing.assert_array_equal(again.differences, first.differences)

    def test_after_damage(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = np.array(filled(ordered(small.training()), Cache(tmp_path)).differences)
        (path,) = [p for p in tmp_path.glob("sets-*/*") if not p.stem.endswith("-base")]
        content = bytearray(path.read_bytes())
        content[-9] ^= 1
        path.write_bytes(bytes(content))
        monkeypatch.setattr(Repeated, "rows", _never)  # the chunks are still there
        again = filled(ordered(small.training()), Cache(tmp_path))
        np.testing.assert_array_equal(again.differences, first)

    def test_after_a_kill_while_it_was_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = f"""
            import os, signal
            from pathlib import Path
            from tests.shadows import small_network as small
            from tests.shadows.test_shadow_sets import ordered
            from exhume.runtime import cache_rows
            from exhume.shadows import Cache, filled, order, train_shadows
            train_shadows.MOST_BYTES = order.MOST_BYTES = {4 * 370 * 20}
            cache_rows._header = lambda *parts: os.kill(os.getpid(), signal.SIGKILL)
            filled(ordered(small.training()), Cache(Path({str(tmp_path)!r})))
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        root = Path(__file__).parents[2]
        ended = subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
        assert ended.returncode == -signal.SIGKILL
        assert len(list(tmp_path.glob("sets-*/.tmp-*"))) == 1
        monkeypatch.setattr(Repeated, "rows", _never)
        found = filled(ordered(small.training()), Cache(tmp_path))
        assert found.differences.shape == (80, 370)
        assert found.problem == ""


@pytest.mark.usefixtures("small_memory")
class TestNoRoom:
    def test_a_full_disk_leaves_what_memory_holds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = cache_rows._header

        def full(*parts: object) -> bytes:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(cache_rows, "_header", full)
        shadows = filled(ordered(small.training(), 150), Cache(tmp_path))
        # One whole chunk: a set of fewer than that would be trained for nothing.
        assert (len(shadows), shadows.unkept) == (64, 86)
        assert "86 shadow targets were omitted" in shadows.note()
        assert "the disk is full" in shadows.note()
        assert list(tmp_path.glob("sets-*/.tmp-*")) == []
        monkeypatch.setattr(cache_rows, "_header", real)
        monkeypatch.setattr(Repeated, "rows", _never)
        assert len(filled(ordered(small.training(), 150), Cache(tmp_path))) == 150

    def test_a_cache_that_is_too_small_is_said_beforehand(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(order, "_ROUND", 10)
        monkeypatch.setenv("EXHUME_CACHE_LIMIT", f"{2 * 4 * 370 * 55}")
        found = ordered(small.training(), 150)
        assert (len(found.targets), found.unaffordable) == (50, 100)
        shadows = filled(found, Cache(None))
        assert "omitted" in shadows.note()
        assert "EXHUME_CACHE_LIMIT" in shadows.note()


class TestTables:
    def kept(self, folder: Path, rows: np.ndarray) -> np.ndarray | None:
        cache = Cache(folder)
        parts = np.array_split(rows, 3)
        keep_rows(
            cache, SHELF, "one", rows.shape, parts, finish=lambda _: None, about="3 shadow models"
        )
        assert cache.problem == ""
        return kept_rows(cache, SHELF, "one")

    def test_any_reader_of_safetensors_can_read_them(self, tmp_path: Path) -> None:
        from safetensors.numpy import load_file

        rows = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
        found = self.kept(tmp_path, rows)
        assert found is not None
        np.testing.assert_array_equal(found, rows)
        assert not found.flags.writeable
        path = tmp_path / SHELF / "one.safetensors"
        np.testing.assert_array_equal(load_file(path)["rows"], rows)
        assert path.stat().st_mode & 0o777 == 0o600
        plain = Cache(tmp_path).load(SHELF, "one")
        assert plain is not None
        np.testing.assert_array_equal(plain["rows"], rows)

    @pytest.mark.parametrize("length", [0, 7, 100, 600])
    def test_a_cut_file_is_not_trusted(self, tmp_path: Path, length: int) -> None:
        self.kept(tmp_path, np.ones((40, 5), np.float32))
        path = tmp_path / SHELF / "one.safetensors"
        path.write_bytes(path.read_bytes()[:length])
        assert kept_rows(Cache(tmp_path), SHELF, "one") is None
        assert not path.exists()

    @pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
    def test_reading_takes_no_memory_of_its_own(self, tmp_path: Path) -> None:
        """400 MB are written, sealed and read; a process keeps less than half of it at any time."""
        script = f"""
            import resource, numpy as np
            from pathlib import Path
            from exhume.runtime.cache import Cache
            from exhume.runtime.cache_rows import blocks_of, keep_rows, kept_rows
            cache, block = Cache(Path({str(tmp_path)!r})), np.ones((1000, 1000), np.float32)
            def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            before = peak()
            blocks = (block for _ in range(100))
            keep_rows(cache, {SHELF!r}, "one", (100_000, 1000), blocks,
                      finish=lambda _: None, about="")
            rows = kept_rows(cache, {SHELF!r}, "one")
            print(int(sum(float(part.sum()) for _, part in blocks_of(rows))), peak() - before)
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert int(told[0]) == 100_000_000
        assert int(told[1]) < 200

    def test_blocks_are_the_whole(self) -> None:
        rows = np.arange(22.0).reshape(11, 2)
        np.testing.assert_array_equal(np.concatenate([b for _, b in blocks_of(rows, 4)]), rows)
        assert list(blocks_of(rows[:0])) == []


def _never(*_: object) -> np.ndarray:
    raise AssertionError("nothing should be trained here")
