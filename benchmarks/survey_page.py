"""The survey of estimators as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SurveyRow:
    """What came out of one estimator.

    ``ratio`` is the median error over the distance to the nearest known record, ``closer`` the
    share of targets below 1. Of trees, ``pinned`` columns came out exactly per target, and
    ``width`` is the mean interval of the others, in deviations.
    """

    name: str
    kind: str
    answer: str
    attack: str = ""
    ratio: float | None = None
    closer: float = 0.0
    pinned: float | None = None
    width: float | None = None
    note: str = ""
    seconds: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether a record came out, or is carried as it is."""
        return self.answer in ("rebuilt", "carries records")

    def line(self) -> str:
        """Return the row for a terminal."""
        ratio = "" if self.ratio is None else f"{self.ratio:.1e}"
        return (
            f"{self.name[:34]:34s} {self.answer:16s} {self.attack:15s} {ratio:>8s} "
            f"{self.closer:4.0%} {self.seconds:6.2f} s  {self.note[:70]}"
        )


FLOOR = 0.55
_KINDS = {"classifier": "Classifiers", "regressor": "Regressors", "pipeline": "Pipelines"}
_TOLD = {
    "rebuilt": "rebuilt: of 20 targets, the median came out closer than the nearest known record",
    "carries records": "carries training records, which are read as they are",
    "cells": "cells pinned or bounded: trees, by an interval per column",
    "not rebuilt": "attacked, and not rebuilt",
    "refused": "refused, with the reason",
    "not run": "not attacked here: a fit takes too long to be repeated for 20 targets",
}
_INTRO = """# Every estimator of scikit-learn

Every default-constructible classifier and regressor of `sklearn.utils.all_estimators()`, \
and twelve pipelines, with the attacks of `exhume.sklearn.audit`. Made by `python \
benchmarks/survey_estimators.py`, which keeps its rows in `docs/results/estimators.jsonl`.

Each is fitted on 150 records and one target, for 20 targets in turn: wine for classifiers, \
diabetes for regressors (columns in standard deviations), steps from 0 for estimators of \
counts, and for mixed pipelines diabetes with levels and missing cells. `random_state` is 0 \
where there is one. The adversary knows the 150 records and nothing of the target, and makes \
60 to 600 fits per target, fewer of what is slow. Of the attacks' answers, the one counts \
whose own estimate of its error is smallest. "Error" is its median error over the distance \
to the nearest known record: below 1 the record came out, at 1 nothing is gained. "Closer" \
is the share of targets below 1.

"Not rebuilt" and "refused" say nothing about safety: another attack may find more."""


def page(rows: Sequence[SurveyRow]) -> str:
    """Return the page: what was counted, a table per kind, and why some have no number."""
    count = sum(row.counts for row in rows)
    share = f"**{count} of {len(rows)} ({count / len(rows):.0%})** were rebuilt, or carry records."
    parts = [_INTRO, share, _counts(rows)]
    for kind, title in _KINDS.items():
        parts += [f"## {title}", _table([row for row in rows if row.kind == kind])]
    refused = [f"- **{r.name}**: {r.note}" for r in rows if r.answer == "refused"]
    return "\n\n".join([*parts, "## Refused", "\n".join(refused)]) + "\n"


def _counts(rows: Sequence[SurveyRow]) -> str:
    lines = ["| what came out | estimators |", "|---|---|"]
    for answer, told in _TOLD.items():
        lines.append(f"| {told} | {sum(row.answer == answer for row in rows)} |")
    return "\n".join(lines)


def _table(rows: Sequence[SurveyRow]) -> str:
    heads = ("estimator", "what came out", "attack", "error", "closer", "beside")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for row in rows:
        error = "" if row.ratio is None else _short(row.ratio)
        closer = "" if row.answer in ("refused", "not run") else f"{row.closer:.0%}"
        cells = (row.name, row.answer, row.attack, error, closer, _beside(row))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.01 else f"{ratio:.0e}"


def _beside(row: SurveyRow) -> str:
    """Say what the numbers do not: where records are, what of a tree's columns is known, or why."""
    if row.answer == "carries records":
        return row.note.partition(": ")[2].replace("_", "\\_")
    if row.pinned is not None and row.width is not None:
        pinned = f"{row.pinned:g} columns exactly"
        return f"{pinned}, the others within {row.width:.2g} deviations (medians)"
    return row.note if row.answer == "not rebuilt" else ""
