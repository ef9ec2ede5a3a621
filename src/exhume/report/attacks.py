"""The table of attacks on one setting; that an attack did not run is never left to be guessed."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.audit.summary import Row
from exhume.reconstruction import Status
from exhume.report.words import NOTHING, duration, number, percent, rate_text

_WORDS = {
    Status.CONVERGED: "converged",
    Status.APPROXIMATE: "approximate",
    Status.NOT_CONVERGED: "did not converge",
    Status.NO_INFORMATION: "found no information",
    Status.WRONG_ASSUMPTION: "wrong assumption",
    Status.REFUSED: "does not apply",
    Status.INVALID_RELEASE: "invalid release",
    Status.CRASHED: "crashed",
}


@dataclass(frozen=True)
class Outcome:
    """How many trials ended in one status, in words, and whether the attack ran in them."""

    words: str
    meaning: str
    count: int
    ran: bool


@dataclass(frozen=True)
class AttackRow:
    """One line of the table. ``warning`` says why trials are no evidence, empty where all are."""

    name: str
    baseline: bool
    ran: str
    outcomes: tuple[Outcome, ...]
    success: str
    metrics: tuple[str, ...]
    labels: str
    estimate: str
    seconds: str
    message: str
    warning: str


def attack_row(row: Row, metrics: tuple[str, ...], *, redact: bool) -> AttackRow:
    """Return one attack's line, with the medians of ``metrics`` in that order."""
    medians = (row.metrics[name].median if name in row.metrics else None for name in metrics)
    return AttackRow(
        name=row.attack,
        baseline=row.baseline,
        ran=f"{row.ran:,} of {row.trials:,}",
        outcomes=tuple(_outcome(status, count) for status, count in row.statuses.items()),
        success=_success(row),
        metrics=tuple(number(median) for median in medians),
        labels=NOTHING if row.labels_correct is None else percent(row.labels_correct),
        estimate=NOTHING if row.error_estimate is None else number(row.error_estimate.median),
        seconds=duration(row.seconds),
        message=message_text(row.message, _crashed(row), redact=redact),
        warning=_warning(row),
    )


def status_words(status: str) -> str:
    """Return a status in a word or two.

    >>> status_words("REFUSED")
    'does not apply'
    """
    return _WORDS[Status[status]]


def message_text(message: str, crashed: bool, *, redact: bool) -> str:
    """Return a trial's message; an error's text may quote a record, so redaction keeps its kind.

    >>> message_text("ValueError: 17.99 is too large", True, redact=True)
    'ValueError: (text left out)'
    """
    if not (redact and crashed):
        return message
    kind = message.partition(":")[0]
    return f"{kind if kind.isidentifier() else 'an error'}: (text left out)"


def _outcome(status: str, count: int) -> Outcome:
    found = Status[status]
    return Outcome(_WORDS[found], found.value, count, found.ran)


def _success(row: Row) -> str:
    if row.success is not None:
        return rate_text(row.success)
    return "not judged: the truth is not known" if row.ran else "not tested"


def _crashed(row: Row) -> bool:
    return Status.CRASHED.name in row.statuses


def _warning(row: Row) -> str:
    if row.ran == row.trials:
        return ""
    if row.ran == 0:
        return "Did not run: this says nothing about safety."
    return f"Did not run on {row.trials - row.ran:,} targets: nothing is known from those."
