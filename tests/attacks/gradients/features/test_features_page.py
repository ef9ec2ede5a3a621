"""The user's page about features shows what really comes out."""

from __future__ import annotations

from tests.docs.pages import Session, blocks

PAGE = "docs/explanation/features.md"


def test_python_blocks_print_what_the_page_says():
    session = Session()
    shown = [block for block in blocks(PAGE) if block.language == "python"]
    assert len(shown) == 2
    for block in shown:
        session.run(block)
