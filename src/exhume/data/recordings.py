"""A recorded training on disk: what a user's own script leaves, step by step.

A folder with ``recording.json`` (the facts), ``records.safetensors``, ``model.pt2``, and a file per
step in ``steps/``. It holds private records: only its owner can read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from exhume.data.array_files import read_arrays, write_arrays
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Transcript
from exhume.runtime.durable import make_folder, write_bytes, write_quickly

FACTS, RECORDS, CANDIDATES, MODEL, END = (
    *("recording.json", "records.safetensors", "candidates.safetensors"),
    *("model.pt2", "end.safetensors"),
)


@dataclass(frozen=True)
class RecordingFacts:
    """What is known of a training before its first step.

    ``refused`` says why no guarantee can be claimed, ``unexported`` why the model is not in the
    folder, ``obstacle`` why its steps can't be attacked; all empty where nothing is in the way.
    ``history`` is the accountant's: (noise multiplier, sampling rate, steps) each.
    """

    framework: str
    records: int
    outputs: int
    loss: str
    clipping: str
    sampling: str
    refused: str = ""
    unexported: str = ""
    obstacle: str = ""
    history: tuple[tuple[float, float, int], ...] = ()


@dataclass(frozen=True, eq=False)
class StepRecord:
    """One step as it was taken: what the optimiser was fed at which parameters, and by whose parts.

    ``norms`` holds one clipping norm, or one per parameter; ``deviation`` is the noise's on the
    sum, which was divided by ``count``; ``members`` are the numbers of those who took part.
    """

    number: int
    parameters: Mapping[str, Array]
    gradients: Mapping[str, Array]
    norms: FloatArray
    deviation: float
    multiplier: float
    count: float
    rate: float
    members: Array

    def write(self, folder: Path) -> None:
        """Write the step's file, all or nothing."""
        numbers = (self.deviation, self.multiplier, self.count, self.rate)
        arrays = {
            **{f"parameters.{name}": array for name, array in self.parameters.items()},
            **{f"gradients.{name}": array for name, array in self.gradients.items()},
            "norms": np.asarray(self.norms, dtype=np.float64),
            "numbers": np.array(numbers, dtype=np.float64),
            "members": np.asarray(self.members, dtype=np.int64),
        }
        from safetensors.numpy import save

        content = save({name: np.asarray(a, order="C") for name, a in arrays.items()})
        write_quickly(_step_file(folder, self.number), content)

    @classmethod
    def read(cls, folder: Path, number: int) -> StepRecord:
        """Read the step's file."""
        arrays = read_arrays(_step_file(folder, number))
        try:
            deviation, multiplier, count, rate = map(float, arrays["numbers"])
            norms, members = arrays["norms"], arrays["members"]
        except (KeyError, ValueError):
            raise InputError(f"{_step_file(folder, number)} is no recorded step") from None
        parts: dict[str, dict[str, Array]] = {"parameters": {}, "gradients": {}}
        for key, array in arrays.items():
            part, _, name = key.partition(".")
            if name:
                parts[part][name] = array
        found = (deviation, multiplier, count, rate)
        return cls(number, parts["parameters"], parts["gradients"], norms, *found, members)


@dataclass(frozen=True, eq=False)
class Recording:
    """A whole recorded training, as an audit reads it."""

    folder: Path
    facts: RecordingFacts
    records: Records
    candidates: Records | None
    transcript: Transcript
    steps: tuple[StepRecord, ...]


def start_recording(
    folder: Path, facts: RecordingFacts, records: Records, candidates: Records | None
) -> None:
    """Begin a recording in an empty folder; InputError where there is one already."""
    if (folder / FACTS).exists():
        raise InputError(f"{folder} holds a recording already: choose another folder for this run")
    make_folder(folder)
    make_folder(folder / "steps")
    write_arrays(folder / RECORDS, _arrays(records))
    if candidates is not None:
        write_arrays(folder / CANDIDATES, _arrays(candidates))
    write_facts(folder, facts)


def write_facts(folder: Path, facts: RecordingFacts) -> None:
    """Write the facts, in place of earlier ones."""
    write_bytes(folder / FACTS, (json.dumps(asdict(facts), indent=1) + "\n").encode())


def is_recording(folder: Path) -> bool:
    """Whether a folder holds a recorded training."""
    return (folder / FACTS).is_file()


def read_recording(folder: Path) -> Recording:
    """Read a recording; InputError where a step is missing or nothing was recorded."""
    facts = _facts(folder)
    numbers = sorted(int(p.stem) for p in (folder / "steps").glob("*.safetensors"))
    if not numbers:
        raise InputError(f"{folder} holds no step: the training was not run, or not recorded")
    missing = sorted(set(range(numbers[-1] + 1)) - set(numbers))
    if missing:
        raise InputError(
            f"{folder} lacks step {missing[0]} of {numbers[-1] + 1} ({len(missing)} missing): "
            "record the training again"
        )
    steps = tuple(StepRecord.read(folder, number) for number in numbers)
    return Recording(
        folder,
        facts,
        _records(folder / RECORDS),
        _records(folder / CANDIDATES) if (folder / CANDIDATES).is_file() else None,
        _transcript(folder, steps),
        steps,
    )


def _transcript(folder: Path, steps: tuple[StepRecord, ...]) -> Transcript:
    """Stack the steps. Where the script was stopped, the last parameters recorded are the end."""
    end = read_arrays(folder / END) if (folder / END).is_file() else steps[-1].parameters
    return Transcript(
        {name: np.stack([s.parameters[name] for s in steps]) for name in steps[0].parameters},
        {name: np.stack([s.gradients[name] for s in steps]) for name in steps[0].gradients},
        end,
        np.array([step.number for step in steps]),
    )


def _step_file(folder: Path, number: int) -> Path:
    return folder / "steps" / f"{number:08d}.safetensors"


def _facts(folder: Path) -> RecordingFacts:
    try:
        plain = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        known = {field.name for field in fields(RecordingFacts)}
        history = tuple(tuple(one) for one in plain.pop("history"))
        return RecordingFacts(**{k: v for k, v in plain.items() if k in known}, history=history)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{folder / FACTS} can't be read as a recording: {error}") from None


def _arrays(records: Records) -> dict[str, Array]:
    return {"x": records.x, "y": records.labels}


def _records(path: Path) -> Records:
    arrays = read_arrays(path)
    return Records(arrays["x"], arrays["y"])
