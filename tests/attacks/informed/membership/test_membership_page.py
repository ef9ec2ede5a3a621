"""The page about membership and attributes: every example runs, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Session, blocks

from exhume import attacks
from exhume.attacks.catalogue import membership_test
from exhume.attacks.informed import membership
from exhume.protocol.errors import InputError

PAGE = "docs/explanation/membership.md"
TOO_LONG = 'load("mnist")'
"""What the block holds that takes minutes; the statistical tests play it at a smaller size."""


def test_a_reader_can_follow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session()
    todo = [block for block in blocks(PAGE) if TOO_LONG not in block.text]
    assert len(todo) == len(blocks(PAGE)) - 1
    for block in todo:
        session.run(block)
    code = [block for block in todo if block.language == "python"]
    assert sum("#> " in block.text for block in code) == len(code) >= 5
    (said,) = re.findall(r'The report says: "([^"]*)"', (ROOT / PAGE).read_text(encoding="utf-8"))
    assert f"Which of two records was trained on? {said}" in Path("game-run/report.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    "name", ["Retraining", "NearestMean", "ShadowModels", "LossThreshold", "ByReconstruction"]
)
def test_every_attack_is_on_the_page(name):
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert f"`{name}(" in text
    assert issubclass(getattr(membership, name), membership.MembershipAttack)


def test_every_name_of_a_test_is_on_the_page():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for name in re.findall(r"^\| `\"([a-z-]+)\"` \|", text, re.MULTILINE):
        test = membership_test(name, attacks.GLM())
        assert f'`"{name}"` | `{type(test).__name__}(' in text
    with pytest.raises(InputError) as error:
        membership_test("none")
    for name in str(error.value).partition("there are ")[2].split(", "):
        assert f'| `"{name}"` |' in text


def test_defaults_are_those_of_the_table():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert f"`NearestMean(models={membership.NearestMean().models})`" in text
    assert f"`LossThreshold(models={membership.LossThreshold().models})`" in text
    assert f"`ShadowModels(models={membership.ShadowModels().models})`" in text
