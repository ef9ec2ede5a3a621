"""All pages of the site that are made from the code."""

from __future__ import annotations

from functools import cache

from tools.site import api, keys, methods
from tools.site.page import GeneratedPage


@cache
def generated() -> tuple[GeneratedPage, ...]:
    """Return every generated page, in the order of the menu."""
    return (keys.page(), *methods.pages(), *api.pages())
