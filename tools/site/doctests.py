"""Docstrings as Markdown: their doctests as blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^>>> .*(?:\n(?!\n|$).*)*", re.MULTILINE)


def fenced(docstring: str) -> str:
    """Return a docstring with a fence around every doctest."""
    return _DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", docstring)


class FencedDoctests(griffe.Extension):
    """What mkdocstrings reads has its doctests fenced."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
