"""What the client's and the server's recordings share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from exhume.data.updates import write_named
from exhume.protocol.records import Records

MODEL, SIMILAR = "model.pt2", "similar.safetensors"
Pair = tuple[Any, Any]


@dataclass(eq=False)
class Attempts:
    """Does things for a recording: what fails is said in one line, and training goes on."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    said: set[str] = field(default_factory=set)

    def attempt(self, action: Callable[[], object]) -> None:
        """Do something; where it fails, say so."""
        try:
            action()
        except Exception as error:  # whatever happens to the recording, training must go on
            problem = " ".join(str(error).split())[:300] or type(error).__name__
            self.problems.append(problem)
            self.say(f"not recorded: {problem}; training goes on, and what is stored is kept")

    def say(self, text: str) -> None:
        """Say something in one line, once."""
        if text not in self.said:
            self.said.add(text)
            print(f"exhume: {self.folder}: {text}", file=sys.stderr)


def similar_file(root: Path, given: Pair | None) -> Path | None:
    """Write records that nobody trained on, once, and return their file."""
    path = root / SIMILAR
    if given is not None and not path.exists():
        found = pair(given)
        write_named(path, {"x": found.x, "y": found.labels})
    return None if given is None else path


def pair(given: Pair) -> Records:
    """Return (x, y) as records."""
    x, y = (np.asarray(part) for part in given)
    return Records(x, y)


def round_folder(root: Path, number: int) -> Path:
    """Return the folder of a round."""
    return root / f"round-{number:04d}"
