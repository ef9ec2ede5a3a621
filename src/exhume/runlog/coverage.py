"""Which attacks a result rests on: those that ran, and what the others lacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.protocol.reconstruction import Status
from exhume.runlog.summary import Row


@dataclass(frozen=True)
class Unrun:
    """An attack that ran on no target, and why."""

    attack: str
    reason: str


@dataclass(frozen=True)
class Coverage:
    """The attacks of a setting, blind guesses aside, by how they fared.

    ``lacking`` would run with one more fact; ``inapplicable`` are made for other releases;
    ``failed`` started and came to nothing that counts. ``without`` counts the trials that ended
    without a candidate, by attack.
    """

    ran: tuple[str, ...]
    lacking: tuple[Unrun, ...]
    inapplicable: tuple[Unrun, ...]
    failed: tuple[Unrun, ...]
    without: tuple[tuple[str, int, int], ...]

    @property
    def total(self) -> int:
        """How many attacks were asked for."""
        return len(self.ran) + len(self.lacking) + len(self.inapplicable) + len(self.failed)

    def describe(self) -> tuple[str, ...]:
        """Return sentences: how many ran, and of each of the others why it did not."""
        idle = [f"Not applicable: {_told(one)}." for one in self.inapplicable]
        return (*self._without_inapplicable(), *idle)

    def brief(self) -> tuple[str, ...]:
        """Return the same; where any attack ran, without those that no further fact would help."""
        return self._without_inapplicable() if self.ran else self.describe()

    def _without_inapplicable(self) -> tuple[str, ...]:
        if not self.total:
            return ("No attack was asked for: blind guesses alone are no evidence.",)
        counts = [f"{len(self.ran)} of {self.total} attacks ran"]
        if self.lacking:
            counts.append(f"{len(self.lacking)} lacked information")
        if self.inapplicable:
            counts.append(f"{len(self.inapplicable)} did not apply to this release")
        if self.failed:
            counts.append(f"{len(self.failed)} failed")
        lines = [f"{'; '.join(counts)}."]
        lines += [f"Information missing: {_told(one)}." for one in self.lacking]
        lines += [f"Failed: {_told(one)}." for one in self.failed]
        lines += [
            f"No candidate: {attack} ended without one on {count} of {of} targets."
            for attack, count, of in self.without
        ]
        return tuple(lines)


def coverage(rows: Sequence[Row]) -> Coverage:
    """Return what the rows of one setting rest on."""
    attacks = [row for row in rows if not row.baseline]
    # Every candidate has a score where the truth is known; elsewhere nothing is known of them.
    judged = any(row.metrics for row in rows)
    idle = [row for row in attacks if not row.ran]
    return Coverage(
        tuple(row.attack for row in attacks if row.ran),
        _unrun(idle, Status.UNINFORMED),
        _unrun(idle, Status.REFUSED),
        _unrun(idle, None),
        tuple((row.attack, _empty(row), row.trials) for row in attacks if judged and _empty(row)),
    )


def _kind(row: Row) -> Status | None:
    """Return the refusal that all trials of an attack ended in, None for anything else."""
    kinds = (Status.UNINFORMED, Status.REFUSED)
    return next((kind for kind in kinds if set(row.statuses) == {kind.name}), None)


def _unrun(rows: Sequence[Row], kind: Status | None) -> tuple[Unrun, ...]:
    return tuple(Unrun(row.attack, row.message) for row in rows if _kind(row) is kind)


def _empty(row: Row) -> int:
    """Return the number of targets for which an attack ran without any candidate."""
    return max(0, row.ran - max((spread.count for spread in row.metrics.values()), default=0))


def _told(one: Unrun) -> str:
    return f"{one.attack}: {one.reason}".rstrip(".")
