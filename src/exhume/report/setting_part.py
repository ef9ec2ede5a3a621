"""One setting's part of the report: threat model, attacks, figures, bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.metrics.names import SHARES
from exhume.protocol.reconstruction import Status
from exhume.report.authenticity import AuthenticityPart, authenticity_part
from exhume.report.bars import Line, line
from exhume.report.figures import (
    bracket_figure,
    calibration,
    calibration_figure,
    error_figure,
    errors,
    kappa_figure,
    success_curve,
)
from exhume.report.gallery import Gallery, gallery
from exhume.report.numbers import limit_text, percent, utility_text
from exhume.report.table_part import TablePart, table_part
from exhume.report.tables import AttackRow, attack_row
from exhume.report.theme import Drawing
from exhume.report.verdict import Finding
from exhume.runlog.artefacts import read_truth, true_errors
from exhume.runlog.coverage import coverage
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting
from exhume.runlog.store import Store
from exhume.runlog.strongest import SUCCESS_RULE, by_success
from exhume.runlog.summary import Bracket, Row

_MOST_ESTIMATES = 1000
"""Estimates compared with the truth, per setting: each one reads its candidate from disk."""


@dataclass(frozen=True, eq=False)
class ReportedSetting:
    """Everything that a run folder contains about one setting."""

    store: Store
    setting: Setting
    bracket: Bracket
    rows: tuple[Row, ...]
    records: tuple[Outcome, ...]
    finding: Finding
    closeness: float

    def of(self, attack: str) -> list[Outcome]:
        """Return the records of one attack."""
        return [r for r in self.records if r.trial.attack == attack]

    @property
    def strongest(self) -> str | None:
        """The attack of the bracket; if nothing was judged, the first that really ran."""
        if self.bracket.attack is not None:
            return self.bracket.attack
        return next((row.attack for row in self.rows if row.ran and not row.baseline), None)


@dataclass(frozen=True)
class SettingPart:
    """One setting as the page shows it."""

    line: Line
    threat: tuple[str, ...]
    coverage: tuple[str, ...]
    notes: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]
    shares: tuple[str, ...]
    attacks: tuple[AttackRow, ...]
    inapplicable: tuple[AttackRow, ...]
    figures: tuple[Drawing, ...]
    gallery: Gallery | None
    table: TablePart | None
    authenticity: AuthenticityPart | None
    short: bool


def setting_part(
    case: ReportedSetting, *, anchor: str, redact: bool, draw_figures: bool, short: bool = False
) -> SettingPart:
    """Return one setting's part; ``draw_figures`` limits the figures of a long report.

    A ``short`` part has no figures and no gallery, because a grid already shows its pictures and
    errors.
    """
    metrics = tuple(dict.fromkeys(name for row in case.rows for name in row.metrics))
    tried, refused = _sorted_rows(case)
    return SettingPart(
        line=line(case.bracket, case.finding, anchor),
        threat=case.setting.threat,
        # Messages of attacks may hold values of records.
        coverage=coverage(case.rows).describe()[: 1 if redact else None],
        notes=notes(case),
        metrics=metrics,
        shares=SHARES,
        attacks=tuple(attack_row(row, metrics, redact=redact) for row in tried),
        inapplicable=tuple(attack_row(row, metrics, redact=redact) for row in refused),
        figures=figures(case) if draw_figures and not short else (),
        gallery=None if redact or short else _gallery(case),
        table=None if short else _table(case),
        authenticity=authenticity_part(case.store, case.setting, redact=redact),
        short=short,
    )


def _sorted_rows(case: ReportedSetting) -> tuple[list[Row], list[Row]]:
    """Return the attacks that apply, strongest first, and those made for other releases.

    If no attack applies, all of them are shown, because the reader must see this.
    """
    judged = by_success(case.rows)
    others = sorted(
        (row for row in case.rows if row not in judged), key=lambda row: (row.baseline, -row.ran)
    )
    order = [*judged, *others]
    refused = [row for row in order if set(row.statuses) == {Status.REFUSED.name}]
    if not any(row not in refused and not row.baseline for row in order):
        return order, []
    return [row for row in order if row not in refused], refused


def notes(case: ReportedSetting) -> tuple[tuple[str, str], ...]:
    """Return the notes on the numbers, as pairs of a name and a sentence; none are empty."""
    setting = case.setting
    unit = f"{setting.data.unit}; an attack's own estimate is in the units of the record." * bool(
        setting.data.unit
    )
    model = setting.model
    utility = f"{utility_text(model.name, model.value, model.chance)} on unused records."
    pairs = (
        ("Interval", _interval_text(case)),
        ("Strongest", SUCCESS_RULE if len(by_success(case.rows)) > 1 else ""),
        ("Distance", unit),
        ("Bound", _bound_text(setting, case.bracket.ceiling_note)),
        ("Guarantee", _guarantee_text(setting)),
        ("Empirical ε", _empirical_text(setting, case.bracket.empirical_epsilon)),
        ("Membership", _membership_text(setting)),
        ("Model", "" if setting.model.value is None else utility),
    )
    return tuple((name, text) for name, text in pairs if text)


def figures(case: ReportedSetting) -> tuple[Drawing, ...]:
    """Return the figures that the setting's records allow."""
    drawn = (_bracket(case), _over_kappa(case), _errors(case), _calibration(case))
    return tuple(figure for figure in drawn if figure is not None)


def _bracket(case: ReportedSetting) -> Drawing | None:
    attack, reached = case.bracket.attack, case.bracket.reached
    if attack is None or reached is None or case.setting.data.candidates:
        # Naming a candidate is right or wrong: there is no closeness to draw it over.
        return None
    asked, level = case.closeness, reached.confidence
    curve = success_curve(case.of(attack), asked=asked, confidence=level)
    blind = success_curve([r for r in case.records if r.baseline], asked=asked, confidence=level)
    return (
        None if curve is None else bracket_figure(attack, curve, blind, case.setting, asked=asked)
    )


def _over_kappa(case: ReportedSetting) -> Drawing | None:
    """Draw γ over κ where there is no one κ to draw the bracket at."""
    ceiling = case.setting.ceiling
    if not ceiling.over_kappa or (ceiling.at is not None and not case.setting.data.candidates):
        return None
    return kappa_figure(case.setting)


def _errors(case: ReportedSetting) -> Drawing | None:
    found = [errors(name, case.of(name)) for name in _strongest_first(case)]
    kept = [one for one in found if one is not None]
    return error_figure(kept, case.setting) if any(not one.baseline for one in kept) else None


def _calibration(case: ReportedSetting) -> Drawing | None:
    truth = read_truth(case.store, case.setting)
    if truth is None:
        return None
    found = []
    for name in _strongest_first(case):
        tried = [r for r in case.of(name) if r.ran and not r.baseline]
        estimated = [r for r in tried if r.error_estimate is not None][:_MOST_ESTIMATES]
        true = true_errors(case.store, estimated, case.setting, truth)
        one = calibration(name, estimated, true)
        found += [] if one is None else [one]
    return calibration_figure(found) if found else None


def _gallery(case: ReportedSetting) -> Gallery | None:
    attack = case.strongest
    return None if attack is None else gallery(case.store, case.of(attack), case.setting)


def _table(case: ReportedSetting) -> TablePart | None:
    attack = case.strongest
    if attack is None or case.setting.data.candidates:
        return None
    blind = [record for record in case.records if record.baseline]
    return table_part(case.store, case.of(attack), blind, case.setting)


def _strongest_first(case: ReportedSetting) -> Sequence[str]:
    names = [row.attack for row in case.rows]
    return sorted(names, key=lambda name: name != case.bracket.attack)


def _interval_text(case: ReportedSetting) -> str:
    if case.bracket.reached is None:
        return ""
    tried = len(by_success(case.rows))
    text = "Clopper–Pearson, 95 %"
    if tried == 1:
        return f"{text}."
    level = f"{100 * case.bracket.reached.confidence:.4g} %"
    return f"{text}; in the bracket {level}, because the strongest of {tried} attacks was selected."


def _membership_text(setting: Setting) -> str:
    if not setting.membership.text:
        return ""
    text = f"{setting.membership.text[:1].upper()}{setting.membership.text[1:]}"
    return f"Which of two records was trained on? {text}."


def _guarantee_text(setting: Setting) -> str:
    """Say what the training guarantees: ε as Opacus reports it, and the ceiling at several κ."""
    ceiling, said = setting.ceiling, []
    if ceiling.epsilon is not None and ceiling.delta is not None:
        said.append(f"ε = {ceiling.epsilon:.4g} at δ = {ceiling.delta:g}.")
    if ceiling.over_kappa:
        rows = "; ".join(f"κ = {p.kappa:g}: {limit_text(p.gamma)}" for p in ceiling.over_kappa)
        said.append(f"Proven limit by κ, the chance of a blind guess: {rows}.")
    return " ".join(said)


def _empirical_text(setting: Setting, by_trials: float | None) -> str:
    """Say what attacks prove of ε, beside what is claimed."""
    said, claimed = [], setting.ceiling.epsilon
    delta = f"at δ = {setting.ceiling.delta or 0.0:g}"
    limits = []
    if by_trials is not None:
        limits.append(by_trials)
        said.append(f"The trials prove ε ≥ {by_trials:.3g} {delta} (95 %).")
    if (run := setting.canaries) is not None:
        limits.append(run.lower)
        said.append(
            f"One training with {run.canaries} canaries proves ε ≥ {run.lower:.3g} {delta} (95 %): "
            f"{run.right} of {run.guesses} guesses were right; ε ≥ {run.gaussian:.3g} if its "
            "mechanism is Gaussian."
        )
    if claimed is not None and limits and max(limits) > claimed:
        said.append(
            f"That contradicts the claimed {claimed:.4g}: the training does not keep the privacy "
            "that it is said to."
        )
    return " ".join(said)


def _bound_text(setting: Setting, note: str) -> str:
    if setting.ceiling.at is None:
        return f"{note[:1].upper()}{note[1:]}." if note else ""
    at = setting.ceiling.at
    if at.gamma >= 1.0:
        return (
            f"Proven limit: none. Nothing is ruled out where a blind guess may have κ = "
            f"{percent(at.kappa)}; {note}."
        )
    return (
        f"Every attack has a success of at most γ = {percent(at.gamma)} where every blind guess "
        f"has at most κ = {percent(at.kappa)} ({setting.ceiling.method} bound); {note}. It binds "
        f"{setting.ceiling.binds}."
    )
