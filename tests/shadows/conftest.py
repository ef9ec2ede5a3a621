"""Every test has a cache of its own, and no memory of another's shadow models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.shadows import shadows_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("EXHUME_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EXHUME_CACHE_LIMIT", raising=False)
    shadows_of.cache_clear()
    yield tmp_path / "cache"
    shadows_of.cache_clear()
