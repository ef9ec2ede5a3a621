"""The table of attacks on one setting; it always says explicitly that an attack did not run.

The table of all trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.metrics.names import SHARES
from exhume.protocol.reconstruction import Status
from exhume.report.numbers import NOTHING, duration, number, percent, rate_text
from exhume.runlog.outcome import Outcome
from exhume.runlog.summary import Row

_WORDS = {
    Status.CONVERGED: "converged",
    Status.APPROXIMATE: "approximate",
    Status.NOT_CONVERGED: "did not converge",
    Status.NO_INFORMATION: "found no information",
    Status.WRONG_ASSUMPTION: "wrong assumption",
    Status.REFUSED: "does not apply",
    Status.UNINFORMED: "lacks information",
    Status.INVALID_RELEASE: "invalid release",
    Status.CRASHED: "crashed",
}


@dataclass(frozen=True)
class AttackOutcome:
    """How many trials ended in one status, in words, and whether the attack ran in them."""

    words: str
    meaning: str
    count: int
    ran: bool


@dataclass(frozen=True)
class AttackRow:
    """One line of the table. ``warning`` says why trials are no evidence; empty if all are."""

    name: str
    baseline: bool
    ran: str
    outcomes: tuple[AttackOutcome, ...]
    success: str
    metrics: tuple[str, ...]
    labels: str
    estimate: str
    seconds: str
    message: str
    warning: str


def attack_row(row: Row, metrics: tuple[str, ...], *, redact: bool) -> AttackRow:
    """Return one attack's line: of ``metrics`` in that order the medians, of shares the means."""
    figures = (_figure(row, name) for name in metrics)
    return AttackRow(
        name=row.attack,
        baseline=row.baseline,
        ran=f"{row.ran:,} of {row.trials:,}",
        outcomes=tuple(_outcome(status, count) for status, count in row.statuses.items()),
        success=_success_text(row),
        metrics=tuple(figures),
        labels=NOTHING if row.labels_correct is None else percent(row.labels_correct),
        estimate=NOTHING if row.error_estimate is None else number(row.error_estimate.median),
        seconds=duration(row.seconds),
        message=message_text(row.message, _crashed(row), redact=redact),
        warning=_warning(row),
    )


def _figure(row: Row, metric: str) -> str:
    spread = row.metrics.get(metric)
    if spread is None:
        return number(None)
    return percent(spread.mean) if metric in SHARES else number(spread.median)


def status_words(status: str) -> str:
    """Return a status in a word or two.

    >>> status_words("REFUSED")
    'does not apply'
    """
    return _WORDS[Status[status]]


def message_text(message: str, crashed: bool, *, redact: bool) -> str:
    """Return a trial's message. An error may quote a record, so redaction keeps only its type.

    >>> message_text("ValueError: 17.99 is too large", True, redact=True)
    'ValueError: (text omitted)'
    """
    if not (redact and crashed):
        return message
    kind = message.partition(":")[0]
    return f"{kind if kind.isidentifier() else 'an error'}: (text omitted)"


def _outcome(status: str, count: int) -> AttackOutcome:
    found = Status[status]
    return AttackOutcome(_WORDS[found], found.value, count, found.ran)


def _success_text(row: Row) -> str:
    if row.success is not None:
        return rate_text(row.success)
    return "not judged: the truth is not known" if row.ran else "not tested"


def _crashed(row: Row) -> bool:
    return Status.CRASHED.name in row.statuses


def _warning(row: Row) -> str:
    if row.ran == row.trials:
        return ""
    if row.ran == 0:
        return "Did not run: this is no evidence of safety."
    return f"Did not run on {row.trials - row.ran:,} targets: nothing is known about those."


MOST = 2000
"""Trials in the table: as many as a browser sorts quickly."""


@dataclass(frozen=True)
class TrialCell:
    """A number as shown, and as it is sorted (empty if there is none)."""

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
    distance: TrialCell
    threshold: TrialCell
    success: str
    estimate: TrialCell
    message: str


@dataclass(frozen=True)
class TrialTable:
    """The first trials, how many there are in all, and what they can be filtered by."""

    rows: tuple[TrialRow, ...]
    total: int
    settings: tuple[str, ...]
    attacks: tuple[str, ...]
    statuses: tuple[str, ...]


def trial_table(records: Sequence[Outcome], *, redact: bool) -> TrialTable:
    """Return the table of the first MOST trials."""
    # Trials with a result come first: nine out of ten trials may be refusals.
    order = sorted(records, key=lambda record: record.status == Status.REFUSED.name)
    rows = tuple(_row(record, redact=redact) for record in order[:MOST])
    return TrialTable(
        rows,
        len(records),
        tuple(dict.fromkeys(row.setting for row in rows)),
        tuple(dict.fromkeys(row.attack for row in rows)),
        tuple(dict.fromkeys(row.status for row in rows)),
    )


def _row(record: Outcome, *, redact: bool) -> TrialRow:
    return TrialRow(
        setting=record.trial.setting,
        attack=record.trial.attack,
        target=record.trial.target,
        status=status_words(record.status),
        ran=record.ran,
        distance=_cell(record.distance),
        threshold=_cell(record.threshold),
        success=_success(record),
        estimate=_cell(record.error_estimate),
        message=message_text(record.message, record.status == "CRASHED", redact=redact),
    )


def _cell(value: float | None) -> TrialCell:
    # "Infinity" is how a browser reads it.
    return TrialCell(
        number(value), "" if value is None else f"{value:.6g}".replace("inf", "Infinity")
    )


def _success(record: Outcome) -> str:
    if not record.ran:
        return "did not run"
    if record.success is None:
        return "not judged"
    return "yes" if record.success else "no"
