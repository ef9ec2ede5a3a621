"""The reference of the Python interface: what each public package exports."""

from __future__ import annotations

import importlib
from types import ModuleType

from tools.site.doctests import fenced
from tools.site.page import GeneratedPage

_PACKAGES = (
    *("exhume", "exhume.sklearn", "exhume.torch", "exhume.attacks", "exhume.membership"),
    *("exhume.defences", "exhume.metrics", "exhume.bounds", "exhume.bounds.floors"),
    *("exhume.training", "exhume.models", "exhume.data", "exhume.shadows", "exhume.stats"),
    *("exhume.audit", "exhume.runlog", "exhume.studies", "exhume.report"),
    *("exhume.opacus", "exhume.flower", "exhume.mlflow"),
)


def pages() -> tuple[GeneratedPage, ...]:
    """Return a page per package; what several packages export stands on the first one's page."""
    seen: dict[int, str] = {}
    return tuple(_page(package, seen) for package in _PACKAGES)


def _page(package: str, seen: dict[int, str]) -> GeneratedPage:
    module = _module(package)
    own, elsewhere = list[str](), list[str]()
    for name in _exported(module):
        what = getattr(module, name)
        if isinstance(what, ModuleType):
            continue
        first = seen.setdefault(id(what), package)
        line = f"[`{name}`]({first}.md#{first}.{name})"
        (own if first == package else elsewhere).append(name if first == package else line)
    parts = [f"# {package}", fenced(module.__doc__ or "")]
    if elsewhere:
        parts.append(f"Also exported here: {', '.join(elsewhere)}.")
    for name in own:
        # The anchor is the public name, wherever the object is defined.
        parts.append(f'<a id="{package}.{name}"></a>\n\n::: {module.__name__}.{name}')
    return GeneratedPage(f"reference/api/{package}.md", package, "\n\n".join(parts) + "\n")


def _exported(module: ModuleType) -> list[str]:
    """Return what a module exports: what it says, or the public classes and functions in it."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    members = vars(module).items()
    return [n for n, it in members if n[0] != "_" and _defined_in(it) == module.__name__]


def _defined_in(member: object) -> str:
    return getattr(member, "__module__", "") if callable(member) else ""


def _module(package: str) -> ModuleType:
    """Import a package; ``exhume.membership`` is a short name."""
    parent, _, name = package.rpartition(".")
    found = getattr(importlib.import_module(parent), name, None) if parent else None
    return found if isinstance(found, ModuleType) else importlib.import_module(package)
