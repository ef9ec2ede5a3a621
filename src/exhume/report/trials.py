"""The table of all trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.audit.record import Record
from exhume.audit.summary import ran
from exhume.reconstruction import Status
from exhume.report.attacks import message_text, status_words
from exhume.report.words import number

MOST = 2000
"""Trials in the table: what a browser sorts at once."""


@dataclass(frozen=True)
class Cell:
    """A number as shown, and as it is sorted (empty where there is none)."""

    text: str
    sort: str


@dataclass(frozen=True)
class TrialRow:
    """One trial. ``success`` of an attack that did not run is neither yes nor no."""

    setting: str
    attack: str
    target: int
    status: str
    ran: bool
    distance: Cell
    threshold: Cell
    success: str
    estimate: Cell
    message: str


@dataclass(frozen=True)
class TrialTable:
    """The first trials, how many there are in all, and what they can be filtered by."""

    rows: tuple[TrialRow, ...]
    total: int
    settings: tuple[str, ...]
    attacks: tuple[str, ...]
    statuses: tuple[str, ...]


def trial_table(records: Sequence[Record], *, redact: bool) -> TrialTable:
    """Return the table of the first MOST trials."""
    # What has something to say comes first: refusals may be nine in ten.
    order = sorted(records, key=lambda record: record.status == Status.REFUSED.name)
    rows = tuple(_row(record, redact=redact) for record in order[:MOST])
    return TrialTable(
        rows,
        len(records),
        tuple(dict.fromkeys(row.setting for row in rows)),
        tuple(dict.fromkeys(row.attack for row in rows)),
        tuple(dict.fromkeys(row.status for row in rows)),
    )


def _row(record: Record, *, redact: bool) -> TrialRow:
    return TrialRow(
        setting=record.trial.setting,
        attack=record.trial.attack,
        target=record.trial.target,
        status=status_words(record.status),
        ran=ran(record),
        distance=_cell(record.distance),
        threshold=_cell(record.threshold),
        success=_success(record),
        estimate=_cell(record.error_estimate),
        message=message_text(record.message, record.status == "CRASHED", redact=redact),
    )


def _cell(value: float | None) -> Cell:
    # "Infinity" is how a browser reads it.
    return Cell(number(value), "" if value is None else f"{value:.6g}".replace("inf", "Infinity"))


def _success(record: Record) -> str:
    if not ran(record):
        return "did not run"
    if record.success is None:
        return "not judged"
    return "yes" if record.success else "no"
