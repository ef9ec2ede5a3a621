"""One random stream per role, derived from (seed, role): roles never disturb each other."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np

Seed: TypeAlias = int | np.random.SeedSequence | np.random.Generator


def stream(seed: int, *role: str | int) -> np.random.Generator:
    """Return the random stream of a role, such as ``stream(0, "attack", "glm", 17)``.

    >>> stream(0, "attack").integers(1000) == stream(0, "attack").integers(1000)
    np.True_
    """
    text = "\x1f".join(str(part) for part in role).encode()
    words = np.frombuffer(hashlib.sha256(text).digest()[:16], dtype=np.uint32)
    return np.random.default_rng([seed, *(int(word) for word in words)])


def generator(seed: Seed) -> np.random.Generator:
    """Return a generator for ``seed``; a generator is returned unchanged."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
