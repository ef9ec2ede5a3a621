"""The attack that users are shown is short, and keeps to the contract of every attack."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from tests.docs.pages import Block, blocks, printed

PAGE = "docs/how-to/write-your-own-attack.md"
MODULE = "exhume_page_attack"


def _block(start: str) -> Block:
    (found,) = [b for b in blocks(PAGE) if b.language == "python" and b.text.startswith(start)]
    return found


def _module() -> ModuleType:
    """The page's attack in a module that can be imported: without one it can't be pickled."""
    if MODULE not in sys.modules:
        sys.modules[MODULE] = ModuleType(MODULE)
        printed(_block("from dataclasses"), vars(sys.modules[MODULE]))
    return sys.modules[MODULE]


def _shown_test() -> type:
    """The test class as the page has it."""
    names = {"TrainAgain": _module().TrainAgain, "__name__": __name__}
    printed(_block("import pytest"), names)
    shown = names["TestTrainAgain"]
    assert isinstance(shown, type)
    return shown


TestTrainAgain = _shown_test()


def test_the_attack_has_fewer_than_forty_lines():
    assert len(_block("from dataclasses").text.splitlines()) < 40


@pytest.mark.parametrize("page", ["docs/tutorials/tour.md", "docs/index.md", "docs/gallery.md"])
def test_other_pages_count_its_lines_right(page):
    from tests.docs.pages import ROOT

    lines = len(_block("from dataclasses").text.splitlines())
    assert f"{lines} lines" in (ROOT / page).read_text(encoding="utf-8")
