"""The page about membership and attributes: every example runs, and prints what the page says."""

from __future__ import annotations

import pytest
from tests.docs.pages import ROOT, Session, blocks

from exhume import membership

PAGE = "docs/membership.md"
TOO_LONG = 'load("mnist")'
"""What the block holds that takes minutes; the statistical tests play it at a smaller size."""


def test_a_reader_can_follow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session()
    todo = [block for block in blocks(PAGE) if TOO_LONG not in block.text]
    assert len(todo) == len(blocks(PAGE)) - 1
    for block in todo:
        session.run(block)
    assert sum("#> " in block.text for block in todo) == len(todo) >= 5


@pytest.mark.parametrize(
    "name", ["Retraining", "NearestMean", "ShadowModels", "LossThreshold", "ByReconstruction"]
)
def test_every_attack_is_on_the_page(name):
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert f"`{name}(" in text
    assert issubclass(getattr(membership, name), membership.MembershipAttack)


def test_defaults_are_those_of_the_table():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert f"`NearestMean(models={membership.NearestMean().models})`" in text
    assert f"`LossThreshold(models={membership.LossThreshold().models})`" in text
    assert f"`ShadowModels(models={membership.ShadowModels().models})`" in text
