"""What MkDocs asks on its way: generated pages, their places in the menu, links out of docs/."""

from __future__ import annotations

import posixpath
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

from tools.site import pages  # noqa: E402

_FROM_THE_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the repository that are pages of the site, too."""
_EXAMPLES = (".md", ".toml", ".py", ".ipynb")
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)\s]*\))")


def on_config(config: Any) -> Any:
    """Put the generated pages into the menu, where it names their folder."""
    config.nav = [_entered(item) for item in config.nav]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from the code, those of the root, and the examples."""
    for page in pages.generated():
        files.append(File.generated(config, page.path, content=page.text))
    for path, place in _beside().items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links between docs/ and the rest of the repository to their places in the site."""
    here = page.file.src_uri
    source = next((path for path, place in _beside().items() if place == here), f"docs/{here}")

    def led(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), found[2]))
        place = _beside().get(path, path.removeprefix("docs/"))
        stays = source == f"docs/{here}" and path.startswith("docs/")
        if "://" in found[2] or stays:
            return found[0]
        return found[1] + posixpath.relpath(place, posixpath.dirname(here) or ".") + found[3]

    return _LINK.sub(led, markdown)


@cache
def _beside() -> dict[str, str]:
    """Return the files outside docs/ that the site has, each with its place in it."""
    found = [path for depth in ("*", "*/*") for path in (ROOT / "examples").glob(depth)]
    names = [str(path.relative_to(ROOT)) for path in found if path.suffix in _EXAMPLES]
    return _FROM_THE_ROOT | {name: name for name in sorted(names)}


def _entered(item: Any) -> Any:
    """Return an entry of the menu, a folder of generated pages as their list."""
    if isinstance(item, dict):
        return {title: _entered(inside) for title, inside in item.items()}
    if isinstance(item, list):
        return [one for each in item for one in _pages_of(each)]
    return item


def _pages_of(item: Any) -> list[Any]:
    if isinstance(item, str) and item.endswith("/*"):
        folder = item.removesuffix("*")
        return [{p.title: p.path} for p in pages.generated() if p.path.startswith(folder)]
    return [_entered(item)]
