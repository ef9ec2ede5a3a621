"""The page about shadow models shows what really comes out."""

from __future__ import annotations

import pytest
from tests.docs.pages import Session, blocks


def test_a_reader_can_follow(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.chdir(str(tmp_path))
    session = Session()
    todo = blocks("docs/explanation/shadows.md")
    assert [block.language for block in todo] == ["python", "python", "console"]
    for block in todo:
        session.run(block)
