"""A report read with nothing but the standard library's parser."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "link", "img", "input", "source", "br", "hr"}


@dataclass
class Page(HTMLParser):
    """Tags with their attributes, visible text, and what stands in style and script."""

    source: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    insides: dict[str, str] = field(default_factory=dict)
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)
        self.feed(self.source)
        self.close()

    def __hash__(self) -> int:
        return id(self)

    @property
    def text(self) -> str:
        """All text a reader sees, with single spaces."""
        return " ".join(" ".join(self.words).replace("\u00a0", " ").split())

    def all(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags, f"</{tag}> closes nothing"
        assert self.open_tags.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        inside = self.open_tags[-1] if self.open_tags else ""
        if inside in ("style", "script"):
            self.insides[inside] = self.insides.get(inside, "") + data
        else:
            self.words.append(data)


def read(path: Path) -> Page:
    """Parse a report; raises where tags do not match."""
    page = Page(path.read_text(encoding="utf-8"))
    assert not page.open_tags, f"{page.open_tags} were never closed"
    return page
