"""The page on trajectory inversion shows what happens."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT, Session, blocks

PAGE = "docs/explanation/trajectory-inversion.md"


def test_a_reader_can_follow(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session()
    todo = blocks(PAGE)
    assert [block.language for block in todo] == ["python"]
    for block in todo:
        session.run(block)


def test_files_that_are_named_exist() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    names = re.findall(r"`(\w+/[\w/]+\.py)`", text)
    assert "many_targets/search.py" in names
    room = ROOT / "src/exhume/attacks/informed/trajectory"
    for name in names:
        assert ((ROOT if name.startswith("src/") else room) / name).exists(), name
