"""Damage to bytes and text, and what a reader may do with it: answer, or refuse in one line."""

from __future__ import annotations

import os
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from exhume.protocol.errors import ExhumeError

GIVEN = os.environ.get("EXHUME_FUZZ")
"""How many inputs of each kind; in the suite a few, and always the same."""

fuzzed = settings(
    max_examples=int(GIVEN or 25),
    derandomize=GIVEN is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def answers_or_refuses(read: Callable[[], object]) -> None:
    """Fail on any error that is not one printable line of Exhume's own."""
    try:
        read()
    except ExhumeError as error:
        message = str(error)
        assert message.strip()
        assert "\n" not in message, message
        assert len(message) < 2000, message


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """``whole`` with bytes flipped, cut out, inserted or repeated, or cut short; or only noise."""
    found = bytearray(whole)
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, max(len(found) - 1, 0)))
        length = draw(st.integers(1, 40))
        match draw(st.sampled_from(["flip", "cut", "insert", "repeat", "truncate", "replace"])):
            case "flip" if found:
                found[place] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del found[place : place + length]
            case "insert":
                found[place:place] = draw(st.binary(min_size=1, max_size=40))
            case "repeat":
                found[place:place] = found[place : place + length]
            case "truncate":
                del found[place:]
            case _:
                found = bytearray(draw(st.binary(max_size=200)))
    return bytes(found)
