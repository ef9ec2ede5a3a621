"""What makes one audit another one: the first keys in which two configurations differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_SHOWN = 3
_LONG = 40


def difference(before: str | None, now: str) -> str:
    """Return in words how an audit differs from the one in a folder, both as ``Plan.contents``.

    >>> difference('{"audit": {"seed": 0}}', '{"audit": {"seed": 1}}')
    'audit.seed is 1, there 0'
    """
    if before is None:
        return "an earlier version of Exhume made it"
    there, here = (dict(_leaves(json.loads(text))) for text in (before, now))
    keys = [key for key in {**here, **there} if here.get(key) != there.get(key)]
    if not keys:
        return "its files had other contents, or Exhume another version"
    shown = [_told(key, here.get(key), there.get(key)) for key in keys[:_SHOWN]]
    more = f", and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return ", ".join(shown) + more


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value below ``value`` with its keys; a setting or attack goes by its name."""
    parts: dict[str, Any] = {}
    if isinstance(value, dict):
        parts = value
    elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
        parts = {str(one.get("name", place)): one for place, one in enumerate(value)}
    if not parts:
        yield path, json.dumps(value, ensure_ascii=False)
    for key, part in parts.items():
        yield from _leaves(part, f"{path}.{key}" if path else key)


def _told(key: str, here: str | None, there: str | None) -> str:
    files = [text for text in (here, there) if text is not None and text.startswith('"file:')]
    if len(files) == 2:
        return f"the file of {key} has other contents"
    return f"{key} is {_short(here)}, there {_short(there)}"


def _short(text: str | None) -> str:
    if text is None:
        return "not given"
    if text.startswith('"file:'):
        return "a file"
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
