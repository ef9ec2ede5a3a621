"""The finding about solvers that stop early holds, on fewer targets than the page has."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

from tests.docs.pages import Block, blocks, printed

PAGE = "docs/explanation/threat-models.md"
TARGETS = "TARGETS = range(400, 450)"
LINE = re.compile(r"(\S+) +(\d+) rehearsals: +(\d+)% rebuilt, median error (\S+)")


def _block() -> Block:
    (found,) = [b for b in blocks(PAGE) if "SOLVERS = [" in b.text]
    return found


def _table(lines: list[str]) -> dict[tuple[str, int], tuple[int, float]]:
    """What each solver's lines say: (solver, rehearsals) -> (per cent rebuilt, median error)."""
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), lines
    return {(m[1], int(m[2])): (int(m[3]), float(m[4])) for m in found if m is not None}


def test_rehearsals_rebuild_what_the_closed_form_does_not():
    block = _block()
    assert TARGETS in block.text
    short = replace(block, text=block.text.replace(TARGETS, "TARGETS = range(400, 420)"))
    with warnings.catch_warnings():
        # Solvers that stop early say so.
        warnings.simplefilter("ignore")
        measured = _table(printed(short, {"__name__": "page"}))
    claimed = _table(re.findall(r"^#> (.*)$", block.text, re.MULTILINE))
    assert set(measured) == set(claimed)
    for case, (rebuilt, _) in measured.items():
        # 20 of the page's 50 targets: two and a half standard deviations of a share near a half.
        assert abs(rebuilt - claimed[case][0]) <= 25, case
    for table in (measured, claimed):
        assert table["newton-cholesky", 12][0] >= table["newton-cholesky", 0][0] + 25
        for solver, rehearsals in table:
            assert table[solver, 12][0] >= table[solver, rehearsals][0]
            assert table[solver, 12][1] <= table[solver, rehearsals][1]
