"""The page on trajectory inversion shows what happens."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT, Session, blocks

PAGE = "docs/trajectory-inversion.md"


def test_a_reader_can_follow(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session()
    todo = blocks(PAGE)
    assert [block.language for block in todo] == ["python"]
    for block in todo:
        session.run(block)


def test_files_that_are_named_exist() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for name in re.findall(r"`([\w/]+\.py)`", text):
        folder = ROOT if "/" in name else ROOT / "src/exhume/attacks/trajectory"
        assert (folder / name).exists(), name
