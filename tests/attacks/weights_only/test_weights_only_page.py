"""The page on weights alone shows what happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.pages import Session, blocks

from exhume.config import parse

PAGE = "docs/explanation/weights-only.md"


def test_a_reader_can_follow(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session()
    found = blocks(PAGE)
    assert found[0].language == "python"
    session.run(found[0])


def test_the_settings_are_some() -> None:
    tables = [block.text for block in blocks(PAGE) if block.language == "toml"]
    settings = [parse(table, folder=Path(), source=PAGE).setting[0] for table in tables]
    assert [setting.batch for setting in settings] == [50, 16]
    assert all(setting.release.kind == "weights" for setting in settings)
    assert settings[0].knowledge.training is not None
    assert settings[0].knowledge.training.loss == "logistic"
