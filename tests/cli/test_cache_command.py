"""``exhume cache``: what is kept, in eighty columns, and how it goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cli.command import invoke

from exhume.runtime.cache import Cache, shelf_name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EXHUME_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EXHUME_CACHE_LIMIT", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path / "cache"


def fill(folder: Path) -> None:
    cache = Cache(folder)
    shelf = shelf_name("shadows", "12" * 32)
    cache.keep(shelf, "base", {"base": np.ones(10)}, about="base")
    for i in range(3):
        cache.keep(shelf, f"c{i}", {"rows": np.ones((64, 100))}, about="64 shadow models")
    other = shelf_name("reconstructor", "ab" * 32)
    cache.keep(other, "phi", {"w": np.ones(500)}, about="from 192 shadow models")


def test_shows_what_is_there(folder: Path) -> None:
    fill(folder)
    found = invoke("cache")
    assert (found.code, found.err) == (0, "")
    assert str(folder) in found.out
    assert "kept     159 kB of at most 2 GB" in found.out
    rows = [line.split("  ") for line in found.out.splitlines() if line.startswith(("sh", "rec"))]
    words = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert sorted(row[:3] for row in words) == [
        ["reconstructor-abababab", "from 192 shadow models", "4.19 kB"],
        ["shadows-12121212", "192 shadow models", "154 kB"],
    ]
    assert all(len(line) <= 80 for line in found.out.splitlines() if str(folder) not in line)


def test_an_empty_cache_is_no_error(folder: Path) -> None:
    found = invoke("cache")
    assert found.code == 0
    assert "kept     0 bytes of at most 2 GB" in found.out
    assert not folder.exists(), "looking creates nothing"


def test_empties(folder: Path) -> None:
    fill(folder)
    found = invoke("cache", "--empty")
    assert found.code == 0
    assert "159 kB deleted" in found.out
    assert list(folder.rglob("*")) == []
    assert "0 bytes deleted" in invoke("cache", "--empty").out


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXHUME_CACHE", "off")
    assert "switched off" in invoke("cache").out
    assert invoke("cache", "--empty").code == 0


def test_a_limit_that_is_none_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXHUME_CACHE_LIMIT", "lots")
    assert "EXHUME_CACHE_LIMIT must be a size" in invoke("cache").error


def test_strange_files_in_the_folder(folder: Path) -> None:
    fill(folder)
    (folder / "shadows-12").mkdir()
    (folder / "notes.txt").write_text("mine")
    broken = folder / shelf_name("shadows", "cd" * 32)
    broken.mkdir()
    (broken / "bad.safetensors").write_bytes(b"\xff" * 100)
    found = invoke("cache")
    assert found.code == 0
    assert "0 shadow models" in found.out
    invoke("cache", "--empty")
    assert (folder / "notes.txt").exists()
    assert not broken.exists()
