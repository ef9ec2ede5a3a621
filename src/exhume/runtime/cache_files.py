"""Arrays in one file, with a checksum that detects damage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from exhume.protocol.arrays import Array
from exhume.runtime.fingerprint import fingerprint


def packed(arrays: Mapping[str, Array], place: str, about: str) -> bytes:
    """Return arrays as a safetensors file, with a checksum that includes their place."""
    import numpy as np
    from safetensors.numpy import save

    whole = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    packed: bytes = save(whole, metadata={"seal": seal_of(whole, place), "about": about})
    return packed


def seal_of(arrays: Mapping[str, Array], place: str) -> str:
    """Return the checksum of arrays at their place."""
    return fingerprint(place, dict(sorted(arrays.items())))


def unpacked(content: bytes, place: str) -> dict[str, Array] | None:
    """Return the arrays if they are those that were stored at this place, else None."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays: dict[str, Array] = load(content)
        seal = _metadata(content).get("seal")
    except (SafetensorError, ValueError, KeyError, TypeError, UnicodeDecodeError):
        return None
    return arrays if seal == seal_of(arrays, place) else None


def _metadata(content: bytes) -> dict[str, str]:
    import json

    # The format: eight bytes of length, then that much JSON.
    length = int.from_bytes(content[:8], "little")
    found: dict[str, str] = json.loads(content[8 : 8 + length]).get("__metadata__", {})
    return found


def about(path: Path) -> str:
    """Return the description in a stored file, or nothing if it cannot be read."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            head = file.read(min(length, 1 << 20))
        return _metadata(length.to_bytes(8, "little") + head).get("about", "")
    except (OSError, ValueError, AttributeError):
        return ""
