"""The page on weights alone shows what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import Session, blocks

from exhume.config import parse

PAGE = "docs/weights-only.md"


def test_a_reader_can_follow(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session()
    found = blocks(PAGE)
    assert [block.language for block in found] == ["python", "toml"]
    session.run(found[0])


def test_the_setting_is_one() -> None:
    (table,) = [block.text for block in blocks(PAGE) if block.language == "toml"]
    setting = parse(table, folder=Path(), source=PAGE).setting[0]
    assert setting.batch == 16
    assert setting.release.kind == "weights"
