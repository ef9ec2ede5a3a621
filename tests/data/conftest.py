"""What the tests of the data rooms share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def nothing_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what the machine may have: a test sees only the files it makes."""
    monkeypatch.delenv("EXHUME_DATA", raising=False)
    monkeypatch.setattr("exhume.data.folder.SYSTEM_FOLDERS", ())


_REAL = os.environ.get("EXHUME_DATA")


@pytest.fixture
def real_data() -> Path:
    """The real data folder; the test is skipped where there is none."""
    if not _REAL:
        pytest.skip("EXHUME_DATA is not set: no real data to compare with")
    return Path(_REAL)
