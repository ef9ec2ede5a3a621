"""Where the pages show a method at work: sections that name it, and its rows on the leaderboard."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pymdownx.slugs import slugify

DOCS = Path(__file__).parents[2] / "docs"
_LEADERBOARD = "results/leaderboard.md"
_OVERVIEWS = ("index.md", _LEADERBOARD)
_slug = slugify(case="lower")


@dataclass(frozen=True)
class Section:
    """A section of a page by hand: its page's title, its own, its link and its text."""

    page: str
    title: str
    path: str
    text: str


@cache
def sections() -> tuple[Section, ...]:
    """Return the sections of all pages."""
    paths = sorted(path for path in DOCS.rglob("*.md"))
    return tuple(one for path in paths for one in _sections_of(path))


def _sections_of(path: Path) -> Iterator[Section]:
    text = _without_code(path.read_text(encoding="utf-8"))
    parts = re.split(r"^(#{1,3}) (.*)$", text, flags=re.MULTILINE)
    name, page = path.relative_to(DOCS).as_posix(), parts[2]
    for _, title, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        anchor = "" if title == page else f"#{_slug(_plain(title), '-')}"
        yield Section(_plain(page), _plain(title), name + anchor, body)


def _without_code(text: str) -> str:
    """Return a page with blocks of code kept, but without lines in them that look like headings."""
    return re.sub(
        r"^```.*?^```$",
        lambda found: re.sub(r"^#", " #", found[0], flags=re.MULTILINE),
        text,
        flags=re.MULTILINE | re.DOTALL,
    )


def _plain(title: str) -> str:
    return title.replace("`", "")


def sections_on(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return title and link of each section that names a method as code, the most telling first."""
    pattern = re.compile("|".join(rf"`(?:\w+\.)*{re.escape(name)}[`(]" for name in names))
    found = [
        (len(pattern.findall(one.text)), one)
        for one in sections()
        if not one.path.startswith(_OVERVIEWS) and pattern.search(one.text)
    ]
    ordered = [one for _, one in sorted(found, key=lambda pair: -pair[0])]
    titles = [one.page if one.title == one.page else f"{one.page}: {one.title}" for one in ordered]
    return [(title, one.path) for title, one in zip(titles, ordered, strict=True)][:8]


def leaderboard_of(name: str) -> str:
    """Return the rows of an attack on the leaderboard, with the table that each stands in."""
    lines = (DOCS / _LEADERBOARD).read_text(encoding="utf-8").splitlines()
    rows, heading, head = list[str](), "", ""
    for line in lines:
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| attack "):
            head = line
        elif line.startswith(f"| {name} |"):
            rows.append(f"| {heading} {line.removeprefix(f'| {name} ')}")
    if not rows:
        return ""
    head = head.replace("| attack ", "| released ", 1)
    rule = "|" + "---|" * (head.count("|") - 1)
    said = f"On the [leaderboard](../../{_LEADERBOARD}), from the studies:"
    return "\n".join([said, "", head, rule, *rows])
