"""A page of the site that no one writes by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GeneratedPage:
    """A page: its path below docs/, its title in the menu, and its Markdown."""

    path: str
    title: str
    text: str


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a Markdown table.

    >>> print(table(["a", "b"], [["1 | 2", "3"]]))
    | a | b |
    |---|---|
    | 1 \| 2 | 3 |
    """
    lines = [_row(heads), "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(_row(cells) for cells in rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
