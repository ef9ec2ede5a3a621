"""The page on gradients does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import Session, blocks

PAGE = "docs/explanation/gradients.md"


def test_a_reader_can_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session, found = Session(), blocks(PAGE)
    assert sum(block.language == "python" for block in found) >= 3
    for block in found:
        session.run(block)
