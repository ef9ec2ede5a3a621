"""The page on studies: its example runs, in ten lines beside the attack, and shows what it says."""

from __future__ import annotations

import json

from tests.docs.pages import Session, blocks

from exhume.studies.leaderboard import leaderboard
from exhume.studies.publish import publish
from exhume.studies.reading import RECORD

PAGE = "docs/how-to/studies.md"


def test_an_attack_of_ones_own_gets_on_the_leaderboard(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session()
    for block in blocks(PAGE):
        session.run(block)
    rows = json.loads((tmp_path / "mine" / RECORD).read_text(encoding="utf-8"))["summary"]["rows"]
    assert {row["attack"] for row in rows} == {"mean", "oblivious"}
    publish(tmp_path / "results", [tmp_path / "mine"])
    assert "\n| mean | " in leaderboard(tmp_path / "results")
