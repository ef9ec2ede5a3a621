"""Fixtures that the contract classes share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit import small
from tests.contract.executor import LONG

from exhume.audit import Serial, run


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of the contract's long audit, run completely in this process."""
    folder = tmp_path_factory.mktemp("contract") / "undisturbed"
    run(small.plan(LONG), folder, Serial())
    return folder
