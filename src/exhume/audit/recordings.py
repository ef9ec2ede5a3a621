"""A recorded training as a setting: each training record in turn is the one that is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from exhume.audit.register import Register
from exhume.audit.setting import ThreatSetting
from exhume.config import Config, NetworkReleaseTable, SettingTable
from exhume.data.recordings import MODEL, Recording, StepRecord, read_recording
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Transcript
from exhume.protocol.seeds import stream
from exhume.training.recorded import RecordedElsewhere, StepRules


@dataclass(frozen=True, eq=False)
class RecordedSetting(ThreatSetting):
    """One training that really ran, on ``whole``; the targets stand at ``places`` in it.

    ``fixed_set`` holds the records that are no targets: the pool that results are compared with.
    """

    whole: Records | None = None
    places: tuple[int, ...] = ()
    parts: tuple[StepRecord, ...] = ()

    @property
    def records(self) -> int:
        """How many records were trained on."""
        assert self.whole is not None
        return len(self.whole)

    @property
    def pool(self) -> FloatArray:
        """Every record that is no target."""
        return np.asarray(self.fixed_set.x, dtype=np.float64)

    def knowledge(self, *members: int) -> Knowledge:
        """What the adversary knows: all training records but the target."""
        assert self.whole is not None
        known = super().knowledge(*members)
        others = np.delete(np.arange(len(self.whole)), self.places[members[0]])
        return replace(known, fixed_set=self.whole.take(others))

    def releases(self, groups: Sequence[tuple[int, ...]], seed: int) -> Sequence[Release]:
        """Return the transcript once per target, with everybody's part told but the target's."""
        return [self._without(self.places[index]) for (index,) in groups]

    def _without(self, place: int) -> Transcript:
        assert isinstance(self.given, Transcript)
        members = np.zeros((len(self.parts), self.records), dtype=bool)
        for row, step in zip(members, self.parts, strict=True):
            row[step.members] = True
        return replace(self.given, members=np.delete(members, place, axis=1))


def recorded_setting(config: Config, table: SettingTable) -> ThreatSetting:
    """Read a recording, and draw the targets among its records."""
    from exhume.data import read_records

    assert isinstance(table.release, NetworkReleaseTable)
    assert table.release.recording is not None
    found = read_recording(table.release.recording)
    count, records = table.targets or config.audit.targets, found.records
    if count >= len(records):
        raise InputError(f"{count} targets are too many for a training on {len(records)} records")
    places = stream(config.audit.seed, "targets").permutation(len(records))[:count]
    rest = np.setdiff1d(np.arange(len(records)), places)
    listed, seed = table.knowledge.candidates, config.audit.seed
    targets = records.take(places)
    register: Register | None = None
    if isinstance(listed, Path):
        register = Register.listed(read_records(listed), targets, seed)
    elif listed:
        others = records if found.candidates is None else found.candidates
        register = Register.drawn(others, listed, seed)
    return RecordedSetting(
        table.name,
        table.title or table.name,
        _training(found),
        records.take(rest),
        None,
        targets,
        None,
        table.knowledge.value_range,
        given=found.transcript,
        register=register,
        whole=records,
        places=tuple(places.tolist()),
        parts=found.steps,
    )


def _training(found: Recording) -> RecordedElsewhere:
    """Return the training as far as the recording shows it."""
    from exhume.models import Exported
    from exhume.models.base import misfits

    facts, steps = found.facts, found.steps
    if facts.unexported or facts.obstacle:
        reason = facts.obstacle or f"its model could not be exported: {facts.unexported}"
        raise InputError(f"the steps in {found.folder} can't be attacked: {reason}")
    network = Exported(found.records.record_shape, facts.outputs, found.folder / MODEL)
    mismatch = misfits(network.parameter_shapes(), found.transcript.final)
    if mismatch:
        raise InputError(
            f"{found.folder / MODEL} is not the model whose steps were recorded: {mismatch[0]}"
        )
    classes = tuple(range(facts.outputs)) if facts.loss == "cross-entropy" else None
    rules = StepRules(
        np.stack([step.norms for step in steps]),
        np.array([step.deviation for step in steps]),
        np.array([step.count for step in steps]),
        np.array([step.rate for step in steps]),
    )
    return RecordedElsewhere(
        network, classes, rules, _history(found), facts.framework, facts.refused
    )


def _history(found: Recording) -> tuple[tuple[float, float, int], ...]:
    """Return the accountant's history, or where the script was stopped that of the steps."""
    if found.facts.history:
        return found.facts.history
    told: list[tuple[float, float, int]] = []
    for step in found.steps:
        noise, rate = step.multiplier, step.rate
        if told and told[-1][:2] == (noise, rate):
            told[-1] = (noise, rate, told[-1][2] + 1)
        else:
            told.append((noise, rate, 1))
    return tuple(told)
