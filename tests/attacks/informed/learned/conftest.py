"""One cache for the whole run of these tests: nothing is trained twice."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shadow-cache")


@pytest.fixture(autouse=True)
def with_cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXHUME_CACHE", str(shared_cache))
