"""Names that users write, and the message for an unknown name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def meant(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, or None.

    >>> meant("prunning", ["noise", "pruning"]), meant("gml", ["glm", "kkt"])
    ('pruning', 'glm')
    """
    by_key, wanted = {_plain(one): one for one in known}, _plain(name)
    # Letters in another order count for little in a short name.
    swapped = [key for key in by_key if sorted(key) == sorted(wanted)]
    close = swapped or get_close_matches(wanted, by_key, n=1, cutoff=0.7)
    return by_key[close[0]] if close else None


def no_such(kind: str, name: str, known: Iterable[str]) -> str:
    """Return one line for an unknown name: the name probably meant, or else all known names.

    >>> no_such("defence", "prunning", ["noise", "pruning"])
    "there is no defence called 'prunning'; did you mean 'pruning'?"
    >>> no_such("attack", "magic", ["glm", "kkt"])
    "there is no attack called 'magic'; there are glm, kkt"
    """
    known = tuple(known)
    close = meant(name, known)
    rest = f"did you mean {close!r}?" if close else f"there are {', '.join(known) or 'none'}"
    return f"there is no {kind} called {name!r}; {rest}"


def _plain(name: str) -> str:
    """Return a name without common variations: capitals, underscores, American spelling."""
    plain = name.lower().replace("_", "-")
    return plain.replace("optimiz", "optimis").replace("defens", "defenc").replace("ializ", "ialis")
