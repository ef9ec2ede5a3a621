"""One setting's part of the report: threat model, attacks, figures, bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.audit.record import Record
from exhume.audit.store import Store
from exhume.audit.summary import Bracket, Row, ran
from exhume.reconstruction import Status
from exhume.report.attacks import AttackRow, attack_row
from exhume.report.authenticity import AuthenticityPart, authenticity_part
from exhume.report.bars import Line, line
from exhume.report.curves import calibration, errors, success_curve
from exhume.report.evidence import read_truth, true_errors
from exhume.report.facts import Facts
from exhume.report.figures import bracket_figure, calibration_figure, error_figure
from exhume.report.gallery import Gallery, gallery
from exhume.report.theme import Drawing
from exhume.report.verdict import Finding
from exhume.report.words import percent, utility_text

_MOST_ESTIMATES = 1000
"""Estimates compared with the truth a setting: each needs its candidate read from disk."""


@dataclass(frozen=True, eq=False)
class Case:
    """Everything a run folder has on one setting."""

    store: Store
    facts: Facts
    bracket: Bracket
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    finding: Finding
    closeness: float

    def of(self, attack: str) -> list[Record]:
        """Return the records of one attack."""
        return [r for r in self.records if r.trial.attack == attack]

    @property
    def strongest(self) -> str | None:
        """The attack of the bracket; where nothing was judged, the first that really ran."""
        if self.bracket.attack is not None:
            return self.bracket.attack
        return next((r.attack for r in self.rows if r.ran and not r.baseline), None)


@dataclass(frozen=True)
class SettingPart:
    """One setting as the page shows it."""

    line: Line
    threat: tuple[str, ...]
    notes: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]
    attacks: tuple[AttackRow, ...]
    inapplicable: tuple[AttackRow, ...]
    figures: tuple[Drawing, ...]
    gallery: Gallery | None
    authenticity: AuthenticityPart | None
    short: bool


def setting_part(
    case: Case, *, anchor: str, redact: bool, draw_figures: bool, short: bool = False
) -> SettingPart:
    """Return one setting's part; ``draw_figures`` spares a long report its later figures.

    A ``short`` one, whose pictures and errors a grid shows already, has no figures and no gallery.
    """
    metrics = tuple(dict.fromkeys(name for row in case.rows for name in row.metrics))
    tried, refused = _sorted_rows(case)
    return SettingPart(
        line=line(case.bracket, case.finding, anchor),
        threat=case.facts.threat,
        notes=notes(case),
        metrics=metrics,
        attacks=tuple(attack_row(row, metrics, redact=redact) for row in tried),
        inapplicable=tuple(attack_row(row, metrics, redact=redact) for row in refused),
        figures=figures(case) if draw_figures and not short else (),
        gallery=None if redact or short else _gallery(case),
        authenticity=authenticity_part(case.store, case.facts, redact=redact),
        short=short,
    )


def _sorted_rows(case: Case) -> tuple[list[Row], list[Row]]:
    """Return the attacks that apply, strongest first, and those made for other releases.

    Where no attack at all applies, all of them are shown: that is what the reader must see.
    """
    order = sorted(
        case.rows,
        key=lambda r: (r.baseline, -(r.success.rate if r.success else -1.0), -r.ran, r.attack),
    )
    refused = [row for row in order if set(row.statuses) == {Status.REFUSED.name}]
    if not any(row not in refused and not row.baseline for row in order):
        return order, []
    return [row for row in order if row not in refused], refused


def notes(case: Case) -> tuple[tuple[str, str], ...]:
    """Return what goes with the numbers, as pairs of a name and a sentence; none are empty."""
    facts = case.facts
    unit = f"{facts.unit}; an attack's own estimate is in the record's own units." * bool(
        facts.unit
    )
    utility = f"{utility_text(facts.utility_name, facts.utility)} on records that nobody used."
    pairs = (
        ("Interval", _interval_text(case)),
        ("Distance", unit),
        ("Bound", _bound_text(facts, case.bracket.ceiling_note)),
        ("Membership", _membership_text(facts)),
        ("Model", "" if facts.utility is None else utility),
    )
    return tuple((name, text) for name, text in pairs if text)


def figures(case: Case) -> tuple[Drawing, ...]:
    """Return the figures that the setting's records allow."""
    drawn = (_bracket(case), _errors(case), _calibration(case))
    return tuple(figure for figure in drawn if figure is not None)


def _bracket(case: Case) -> Drawing | None:
    attack, reached = case.bracket.attack, case.bracket.reached
    if attack is None or reached is None:
        return None
    asked, level = case.closeness, reached.confidence
    curve = success_curve(case.of(attack), asked=asked, confidence=level)
    blind = success_curve([r for r in case.records if r.baseline], asked=asked, confidence=level)
    return None if curve is None else bracket_figure(attack, curve, blind, case.facts, asked=asked)


def _errors(case: Case) -> Drawing | None:
    found = [errors(name, case.of(name)) for name in _strongest_first(case)]
    kept = [one for one in found if one is not None]
    return error_figure(kept, case.facts) if any(not one.baseline for one in kept) else None


def _calibration(case: Case) -> Drawing | None:
    truth = read_truth(case.store, case.facts)
    if truth is None:
        return None
    found = []
    for name in _strongest_first(case):
        tried = [r for r in case.of(name) if ran(r) and not r.baseline]
        estimated = [r for r in tried if r.error_estimate is not None][:_MOST_ESTIMATES]
        true = true_errors(case.store, estimated, case.facts, truth)
        one = calibration(name, estimated, true)
        found += [] if one is None else [one]
    return calibration_figure(found) if found else None


def _gallery(case: Case) -> Gallery | None:
    attack = case.strongest
    return None if attack is None else gallery(case.store, case.of(attack), case.facts)


def _strongest_first(case: Case) -> Sequence[str]:
    names = [row.attack for row in case.rows]
    return sorted(names, key=lambda name: name != case.bracket.attack)


def _interval_text(case: Case) -> str:
    if case.bracket.reached is None:
        return ""
    tried = sum(1 for row in case.rows if row.success is not None and not row.baseline)
    text = "Clopper–Pearson, 95 %"
    if tried == 1:
        return f"{text}."
    level = f"{100 * case.bracket.reached.confidence:.4g} %"
    return f"{text}; in the bracket {level}, for having chosen the strongest of {tried} attacks."


def _membership_text(facts: Facts) -> str:
    if not facts.membership:
        return ""
    text = f"{facts.membership[:1].upper()}{facts.membership[1:]}"
    return f"Which of two records was trained on? {text}."


def _bound_text(facts: Facts, note: str) -> str:
    if facts.bound_at is None:
        return f"{note[:1].upper()}{note[1:]}." if note else ""
    at = facts.bound_at
    return (
        f"No attack beats γ = {percent(at.gamma)} where no blind guess beats κ = "
        f"{percent(at.kappa)} ({facts.bound_method} bound of {facts.event}); {note}. "
        f"It binds {facts.bound_binds}."
    )
