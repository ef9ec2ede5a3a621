"""The cache: hits, damage, limits, processes that share, disks that won't."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.cli.mounted import inside, require_mounts
from tests.patience import PATIENCE_SECONDS

from exhume.protocol.errors import InputError
from exhume.runtime import cache as cache_module
from exhume.runtime.cache import Cache, shelf_name, user_cache

SHELF = shelf_name("shadows", "ab" * 32)
ARRAYS = {"rows": np.arange(12.0, dtype=np.float32).reshape(3, 4), "base": np.ones(2)}


def kept(folder: Path, name: str = "one") -> Path:
    return folder / SHELF / f"{name}.safetensors"


class TestKeeping:
    def test_what_was_kept_comes_back_bit_for_bit(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path / "c")
        cache.keep(SHELF, "one", ARRAYS, about="3 shadow models")
        found = Cache(tmp_path / "c").load(SHELF, "one")
        assert found is not None
        assert {n: (a.dtype, a.tobytes()) for n, a in found.items()} == {
            n: (a.dtype, a.tobytes()) for n, a in ARRAYS.items()
        }

    def test_only_the_owner_can_read_it(self, tmp_path: Path) -> None:
        Cache(tmp_path / "c").keep(SHELF, "one", ARRAYS, about="")
        for folder in (tmp_path / "c", tmp_path / "c" / SHELF):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(kept(tmp_path / "c").stat().st_mode) == 0o600

    def test_computes_once(self, tmp_path: Path) -> None:
        calls = []

        def compute() -> dict[str, np.ndarray]:
            calls.append(1)
            return dict(ARRAYS)

        for _ in range(3):
            Cache(tmp_path).computed(SHELF, "one", compute, about="", wait=True)
        assert len(calls) == 1

    def test_switched_off_it_keeps_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EXHUME_CACHE", "off")
        cache = user_cache()
        cache.keep(SHELF, "one", ARRAYS, about="")
        assert (cache.folder, cache.load(SHELF, "one"), cache.entries()) == (None, None, [])

    def test_without_a_word_it_is_in_the_users_cache_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("EXHUME_CACHE")
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert user_cache().folder == tmp_path / "exhume"

    @pytest.mark.parametrize(
        ("text", "size"), [("", 2 * 10**9), ("500 MB", 5 * 10**8), ("1.5gb", 1_500_000_000)]
    )
    def test_limits_are_read(self, text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EXHUME_CACHE_LIMIT", text)
        assert user_cache().limit == size

    @pytest.mark.parametrize("text", ["much", "-3", "5 apples", "nan"])
    def test_a_limit_that_is_none_is_an_error(
        self, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EXHUME_CACHE_LIMIT", text)
        with pytest.raises(InputError, match="500 MB"):
            user_cache()


class TestDamage:
    @pytest.mark.parametrize("length", [0, 4, 8, 40, -1])
    def test_a_truncated_file_is_not_trusted(self, tmp_path: Path, length: int) -> None:
        cache = Cache(tmp_path)
        cache.keep(SHELF, "one", ARRAYS, about="")
        content = kept(tmp_path).read_bytes()
        kept(tmp_path).write_bytes(content[:length])
        assert cache.load(SHELF, "one") is None
        assert not kept(tmp_path).exists(), "it would be read again and again"

    def test_no_single_byte_can_be_changed(self, tmp_path: Path) -> None:
        """Except in the words about the content, which nothing depends on."""
        cache = Cache(tmp_path)
        cache.keep(SHELF, "one", ARRAYS, about="")
        content = kept(tmp_path).read_bytes()
        for place in range(len(content)):
            changed = bytearray(content)
            changed[place] ^= 0x11
            kept(tmp_path).write_bytes(bytes(changed))
            found = cache.load(SHELF, "one")
            assert found is None or all(
                found[name].tobytes() == array.tobytes() for name, array in ARRAYS.items()
            ), place

    def test_a_file_moved_to_another_name_is_not_trusted(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path)
        cache.keep(SHELF, "one", ARRAYS, about="")
        kept(tmp_path).rename(kept(tmp_path, "two"))
        assert cache.load(SHELF, "two") is None

    def test_killed_while_writing_leaves_nothing_to_trust(self, tmp_path: Path) -> None:
        script = f"""
            import os, signal, numpy as np
            from pathlib import Path
            from exhume.runtime.cache import Cache
            os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
            Cache(Path({str(tmp_path)!r})).keep({SHELF!r}, "one", {{"a": np.ones(9)}}, about="")
        """
        ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)])
        assert ended.returncode == -signal.SIGKILL
        cache = Cache(tmp_path)
        assert cache.load(SHELF, "one") is None
        (left,) = (tmp_path / SHELF).glob(".tmp-*")
        os.utime(left, (0, 0))
        cache.keep(SHELF, "one", ARRAYS, about="")
        assert cache.load(SHELF, "one") is not None
        assert not left.exists(), "what a killed process left is swept away"


class TestLimit:
    def test_the_least_recently_used_goes_first(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path)
        for age, name in enumerate(("new", "middle", "old")):
            cache.keep(SHELF, name, ARRAYS, about="")
            os.utime(kept(tmp_path, name), (1000 - age, 1000 - age))
        size = cache.entries()[0].size
        assert cache.load(SHELF, "old") is not None, "now it is the newest"
        Cache(tmp_path, limit=3 * size).keep(SHELF, "one", ARRAYS, about="")
        left = {entry.path.stem for entry in cache.entries()}
        assert left == {"old", "new", "one"}

    def test_what_is_larger_than_the_limit_is_not_kept(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path, limit=100)
        cache.keep(SHELF, "one", ARRAYS, about="")
        assert cache.entries() == []
        assert "EXHUME_CACHE_LIMIT" in cache.problem

    def test_emptying_leaves_strangers_alone(self, tmp_path: Path) -> None:
        mine = tmp_path / "my-models" / "weights.safetensors"
        mine.parent.mkdir()
        mine.write_bytes(b"precious")
        cache = Cache(tmp_path)
        cache.keep(SHELF, "one", ARRAYS, about="")
        assert cache.empty() > 0
        assert mine.read_bytes() == b"precious"
        assert not (tmp_path / SHELF).exists()


class TestTurns:
    def test_a_turn_is_taken_once(self, tmp_path: Path) -> None:
        cache = Cache(tmp_path)
        with cache.turn(SHELF, "one", wait=False) as first:
            with Cache(tmp_path).turn(SHELF, "one", wait=False) as second:
                assert (first, second) == (True, False)
            with Cache(tmp_path).turn(SHELF, "two", wait=False) as other:
                assert other
        with cache.turn(SHELF, "one", wait=False) as again:
            assert again

    def test_a_killed_process_does_not_block(self, tmp_path: Path) -> None:
        script = f"""
            import os, signal
            from pathlib import Path
            from exhume.runtime.cache import Cache
            with Cache(Path({str(tmp_path)!r})).turn({SHELF!r}, "one", wait=False):
                os.kill(os.getpid(), signal.SIGKILL)
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(script)])
        assert (tmp_path / SHELF / "one.lock").exists()
        with Cache(tmp_path).turn(SHELF, "one", wait=False) as mine:
            assert mine

    def test_two_processes_share_the_work(self, tmp_path: Path) -> None:
        """Each of eight files is computed by exactly one of them, and both get all.

        The first two that a process computes wait until the other process computes as many.
        """
        begun = tmp_path / "begun"
        begun.mkdir()
        script = f"""
            import os, time, numpy as np
            from pathlib import Path
            from exhume.runtime.cache import Cache
            folder, begun, done = Path({str(tmp_path / "c")!r}), Path({str(begun)!r}), 0
            def compute():
                global done
                done += 1
                (begun / f"{{done}}-{{os.getpid()}}").touch()
                while done <= 2 and len(list(begun.glob(f"{{done}}-*"))) < 2:
                    time.sleep(0.01)
                return {{"a": np.ones(3)}}
            print("ready", flush=True); input()
            found = {{}}
            for wait in (False, True):
                for i in range(8):
                    if i not in found:
                        one = Cache(folder).computed(
                            {SHELF!r}, f"n{{i}}", compute, about="", wait=wait)
                        if one is not None:
                            found[i] = one
            print(done, len(found))
        """
        command = [sys.executable, "-c", textwrap.dedent(script)]
        both = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for one in both:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        said = []
        for one in both:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        for one in both:
            said.append(
                [int(word) for word in one.communicate(timeout=PATIENCE_SECONDS)[0].split()]
            )
        assert sum(done for done, _ in said) == 8
        assert all(done >= 2 for done, _ in said), said
        assert [count for _, count in said] == [8, 8]


class TestDisks:
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
    def test_what_can_not_be_written_is_still_returned(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        def failing(handle: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", failing)
        cache = Cache(tmp_path)
        found = cache.computed(SHELF, "one", lambda: dict(ARRAYS), about="", wait=True)
        assert found is not None
        assert cache.problem
        assert "\n" not in cache.problem
        assert cache.entries() == []

    def test_a_file_in_the_folders_place(self, tmp_path: Path) -> None:
        (tmp_path / "c").write_text("not a folder")
        cache = Cache(tmp_path / "c")
        assert cache.computed(SHELF, "one", lambda: dict(ARRAYS), about="", wait=True) is not None
        assert cache.problem
        assert cache.entries() == []
        assert cache.empty() == 0

    @pytest.mark.parametrize("options", ["size=64k", "ro"])
    def test_disks_that_are_really_full_or_read_only(self, tmp_path: Path, options: str) -> None:
        require_mounts()
        code = """
import os, sys, numpy as np
from pathlib import Path
from exhume.runtime.cache import Cache
cache = Cache(Path(sys.argv[1]) / "c")
found = cache.computed("shadows-" + "ab" * 16, "one",
                       lambda: {"a": np.ones(100_000)}, about="", wait=True)
print(found["a"].sum(), bool(cache.problem), len(cache.entries()))
"""
        script = f"""
mount -t tmpfs -o {options} none "$1" || exit 99
{sys.executable} -c "$2" "$1"
"""
        found = inside(script, tmp_path, code)
        assert found.stdout.strip() == "100000.0 True 0", found


def test_no_locks_on_this_platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with Cache(tmp_path).turn(SHELF, "one", wait=False) as mine:
        assert mine
    assert cache_module._locked(0, wait=True)


class TestElastic:
    """Without a limit of the user's own, what is in use may exceed the default one."""

    def kept_then(self, folder: Path, age: float, monkeypatch: pytest.MonkeyPatch) -> set[str]:
        """Keep one file, then two more in a cache that has room for one; the first has this age."""
        cache = Cache(folder, elastic=True)
        cache.keep(SHELF, "first", ARRAYS, about="")
        (entry,) = cache.entries()
        monkeypatch.setattr(cache_module.time, "time", lambda: entry.used + age)
        small = Cache(folder, limit=entry.size, elastic=True)
        small.keep(SHELF, "other", ARRAYS, about="")
        assert small.problem == ""
        return {one.path.stem for one in small.entries()}

    def test_what_was_used_today_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.kept_then(tmp_path, 3600.0, monkeypatch) == {"first", "other"}

    def test_what_was_not_is_deleted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.kept_then(tmp_path, 90_000.0, monkeypatch) == {"other"}

    def test_half_of_the_free_disk_is_the_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = cache_module.shutil.disk_usage(tmp_path)._replace(free=1000)
        monkeypatch.setattr(cache_module.shutil, "disk_usage", lambda path: usage)
        cache = Cache(tmp_path / "c", limit=10, elastic=True)
        cache.keep(SHELF, "one", ARRAYS, about="")
        (entry,) = cache.entries()
        assert cache.room() == (1000 + entry.size) // 2
        cache.keep(SHELF, "two", {"rows": np.ones(1000)}, about="")
        assert "EXHUME_CACHE_LIMIT" in cache.problem

    def test_a_limit_of_ones_own_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert user_cache().elastic
        monkeypatch.setenv("EXHUME_CACHE_LIMIT", "500 MB")
        assert (user_cache().elastic, user_cache().room()) == (False, 5 * 10**8)
