"""What an attack spent on a setting: the steps that its part declares."""

from __future__ import annotations

import math
from typing import Any

from exhume.attacks import Reconstructor
from exhume.studies.part import Part
from exhume.studies.reading import StudyRun


def effort(part: Part[Any], run: StudyRun, setting: str, attack: str) -> str:
    """Return an attack's steps on a setting in words, to follow a reason; "" if it states none."""
    config = part.config(part.size_of(run), seed=run.seed)
    table = next((one for one in config.setting if one.name == setting), None)
    options = [one.values() for one in (table.options if table else ()) if one.attack == attack]
    found = options[0] if options else {}
    if "steps" in found:
        return f", after {found['steps']:,} steps"
    if attack == Reconstructor.name and {"epochs", "shadows"} <= set(found):
        steps = found["epochs"] * math.ceil(found["shadows"] / Reconstructor.batch)
        return f", after {steps:,} steps on {found['shadows']:,} shadow models at most"
    return ""
