"""Grids: one setting without a defence and with each of several, attacked alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from exhume.audit.record import Record
from exhume.audit.summary import Summary, ran
from exhume.audit.tradeoff import Tradeoff
from exhume.reconstruction import Status
from exhume.report.settings import Case

UNDEFENDED = "no defence"
_PICTURE_METRIC = "psnr"


@dataclass(frozen=True, eq=False)
class Member:
    """One column of a grid: a setting, the defence it has, and where the page tells of it."""

    defence: str
    case: Case
    anchor: str

    @property
    def label(self) -> str:
        """The defence as the page calls it."""
        return self.defence or UNDEFENDED


@dataclass(frozen=True, eq=False)
class Cell:
    """One attack on one member.

    Errors are those of all candidates, also of such as the attack itself did not trust: what came
    out came out. Where it did not run to an end, that they are large says nothing.
    """

    attack: str
    records: tuple[Record, ...]

    @property
    def baseline(self) -> bool:
        """Whether the attack is a blind guess."""
        return bool(self.records) and self.records[0].baseline

    @cached_property
    def judged(self) -> tuple[Record, ...]:
        """The trials that left a candidate to measure."""
        return tuple(r for r in self.records if r.distance is not None)

    @property
    def ran(self) -> int:
        """In how many trials the attack really ran."""
        return sum(map(ran, self.records))

    @cached_property
    def error(self) -> float | None:
        """The mean distance to the target."""
        return _mean([r.distance for r in self.judged])

    @cached_property
    def psnr(self) -> float | None:
        """The mean peak signal-to-noise ratio in decibels, where it was measured."""
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
    cells: tuple[tuple[Cell, ...], ...]
    refused: tuple[str, ...]

    @property
    def base(self) -> Member:
        """The member without a defence, or the first where that was not measured."""
        return self.members[0]

    def column(self, index: int) -> tuple[Cell, ...]:
        """Return every attack on one member."""
        return tuple(row[index] for row in self.cells)

    def strongest(self, index: int) -> Cell | None:
        """Return the attack with the lowest mean error on a member; None where none has any."""
        found = [c for c in self.column(index) if not c.baseline and c.error is not None]
        return min(found, key=lambda cell: cell.error or 0.0, default=None)

    def decisive(self, index: int, tradeoff: Tradeoff | None) -> Cell | None:
        """Return what sets a defence's strength: its strongest attack, or a guess that beats it.

        None where no attack really ran: then a guess says nothing of the defence.
        """
        column, name = self.column(index), self.members[index].case.facts.name
        if not any(cell.ran for cell in column if not cell.baseline):
            return None
        points = () if tradeoff is None else tradeoff.points
        chosen = next((p.strength.attack for p in points if p.setting == name), None)
        found = next((cell for cell in column if cell.attack == chosen), None)
        return self.strongest(index) if found is None else found


def grids(summary: Summary, cases: Mapping[str, Case]) -> tuple[Grid, ...]:
    """Return the run's grids in the plan's order; ``cases`` by their anchors in the page."""
    found = {case.facts.name: (anchor, case) for anchor, case in cases.items()}
    groups: dict[str, list[Member]] = {}
    for bracket in summary.brackets:
        anchor, case = found[bracket.setting]
        if case.facts.group:
            member = Member(case.facts.defence, case, anchor)
            groups.setdefault(case.facts.group, []).append(member)
    return tuple(_grid(name, members) for name, members in groups.items() if len(members) > 1)


def _grid(name: str, members: Sequence[Member]) -> Grid:
    ordered = tuple(sorted(members, key=lambda member: member.defence != ""))
    by_attack: dict[str, list[Cell]] = {}
    for place, member in enumerate(ordered):
        records: dict[str, list[Record]] = {}
        for record in member.case.records:
            records.setdefault(record.trial.attack, []).append(record)
        for attack, own in records.items():
            row = by_attack.setdefault(attack, [Cell(attack, ()) for _ in ordered])
            row[place] = Cell(attack, tuple(own))
    refused = [a for a, row in by_attack.items() if all(cell.refused for cell in row)]
    rows = sorted(
        (row for attack, row in by_attack.items() if attack not in refused), key=_row_order
    )
    return Grid(
        name=name,
        title=ordered[0].case.facts.title,
        members=ordered,
        attacks=tuple(row[0].attack for row in rows),
        cells=tuple(tuple(row) for row in rows),
        refused=tuple(sorted(refused)),
    )


def _row_order(row: Sequence[Cell]) -> tuple[bool, bool, float, str]:
    first = row[0].error
    blind = any(cell.baseline for cell in row)
    return blind, first is None, 0.0 if first is None else first, row[0].attack


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None and np.isfinite(v)]
    return float(np.mean(known)) if known else None
