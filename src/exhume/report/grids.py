"""Grids: one setting without a defence and with each of several, attacked alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exhume.protocol.reconstruction import Status
from exhume.report.setting_part import ReportedSetting
from exhume.runlog.outcome import Outcome
from exhume.runlog.strongest import by_error
from exhume.runlog.summary import Summary


@dataclass(frozen=True, eq=False)
class Member:
    """One column of a grid: a setting, its defence, and its anchor in the page."""

    defence: str
    case: ReportedSetting
    anchor: str

    @property
    def label(self) -> str:
        """The defence as the page calls it."""
        return self.defence or UNDEFENDED


@dataclass(frozen=True, eq=False)
class GridCell:
    """One attack on one member.

    Errors include candidates that the attack itself did not trust, because a close candidate is a
    leak in any case. If the attack did not finish, a large error shows nothing.
    """

    attack: str
    records: tuple[Outcome, ...]

    @property
    def baseline(self) -> bool:
        """Whether the attack is a blind guess."""
        return bool(self.records) and self.records[0].baseline

    @cached_property
    def judged(self) -> tuple[Outcome, ...]:
        """The trials that returned a candidate."""
        return tuple(r for r in self.records if r.distance is not None)

    @property
    def ran(self) -> int:
        """The number of trials in which the attack really ran."""
        return sum(r.ran for r in self.records)

    @cached_property
    def error(self) -> float | None:
        """The mean distance to the target."""
        return _mean([r.distance for r in self.judged])

    @cached_property
    def psnr(self) -> float | None:
        """The mean peak signal-to-noise ratio in decibels, if it was measured."""
        return _mean([r.scores.get(_PICTURE_METRIC) for r in self.judged])

    @property
    def refused(self) -> bool:
        """Whether the attack is made for other releases."""
        return all(r.status == Status.REFUSED.name for r in self.records)


@dataclass(frozen=True, eq=False)
class Grid:
    """A setting without a defence and with each of several; ``cells`` by attack, then member.

    Attacks are in the order of their errors on the first member, blind guesses last. ``refused``
    names attacks that are made for other releases than any of these.
    """

    name: str
    title: str
    members: tuple[Member, ...]
    attacks: tuple[str, ...]
    cells: tuple[tuple[GridCell, ...], ...]
    refused: tuple[str, ...]

    @property
    def base(self) -> Member:
        """The member without a defence, or the first member if that was not measured."""
        return self.members[0]

    def column(self, index: int) -> tuple[GridCell, ...]:
        """Return every attack on one member."""
        return tuple(row[index] for row in self.cells)

    def strongest(self, index: int) -> GridCell | None:
        """Return the strongest attack on a member by its error; None where none has any."""
        return next((c for c in self._ranked(index) if not c.baseline), None)

    def decisive(self, index: int) -> GridCell | None:
        """Return what determines a defence's strength: its strongest attack, or a better guess.

        None if no attack really ran: then a guess shows nothing about the defence.
        """
        ran = any(cell.ran for cell in self.column(index) if not cell.baseline)
        return next(iter(self._ranked(index)), None) if ran else None

    def _ranked(self, index: int) -> list[GridCell]:
        cells = {cell.attack: cell for cell in self.column(index)}
        rows = by_error(self.members[index].case.rows)
        return [cells[row.attack] for row in rows if row.attack in cells]


def grids(summary: Summary, cases: Mapping[str, ReportedSetting]) -> tuple[Grid, ...]:
    """Return the run's grids in the plan's order; ``cases`` by their anchors in the page."""
    found = {case.setting.name: (anchor, case) for anchor, case in cases.items()}
    groups: dict[str, list[Member]] = {}
    for bracket in summary.brackets:
        anchor, case = found[bracket.setting]
        if case.setting.group:
            member = Member(case.setting.defence, case, anchor)
            groups.setdefault(case.setting.group, []).append(member)
    return tuple(_grid(name, members) for name, members in groups.items() if len(members) > 1)


def _grid(name: str, members: Sequence[Member]) -> Grid:
    ordered = tuple(sorted(members, key=lambda member: member.defence != ""))
    by_attack: dict[str, list[GridCell]] = {}
    for place, member in enumerate(ordered):
        records: dict[str, list[Outcome]] = {}
        for record in member.case.records:
            records.setdefault(record.trial.attack, []).append(record)
        for attack, own in records.items():
            row = by_attack.setdefault(attack, [GridCell(attack, ()) for _ in ordered])
            row[place] = GridCell(attack, tuple(own))
    refused = [a for a, row in by_attack.items() if all(cell.refused for cell in row)]
    rows = sorted(
        (row for attack, row in by_attack.items() if attack not in refused), key=_row_order
    )
    return Grid(
        name=name,
        title=ordered[0].case.setting.title,
        members=ordered,
        attacks=tuple(row[0].attack for row in rows),
        cells=tuple(tuple(row) for row in rows),
        refused=tuple(sorted(refused)),
    )


def _row_order(row: Sequence[GridCell]) -> tuple[bool, bool, float, str]:
    first = row[0].error
    blind = any(cell.baseline for cell in row)
    return blind, first is None, 0.0 if first is None else first, row[0].attack


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None and np.isfinite(v)]
    return float(np.mean(known)) if known else None


UNDEFENDED = "no defence"


_PICTURE_METRIC = "psnr"
