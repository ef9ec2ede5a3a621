"""What would lower this: settings with a defence, beside the same setting without one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exhume.report.numbers import NOTHING, limit_text, rate_text, utility_text
from exhume.runlog.setting import Setting
from exhume.runlog.summary import Bracket, Summary
from exhume.runlog.tradeoff import Tradeoff


@dataclass(frozen=True)
class Measured:
    """One setting's line: what attacks reached, the proven limit, and the cost."""

    name: str
    title: str
    defended: bool
    reached: str
    ceiling: str
    utility: str
    remark: str


@dataclass(frozen=True)
class DefenceComparison:
    """Settings that differ only in their defences; the undefended one, if measured, is first."""

    lines: tuple[Measured, ...]


def comparisons(summary: Summary, undefended: Mapping[str, str]) -> tuple[DefenceComparison, ...]:
    """Group settings that differ only in their defences; groups without a defence are omitted.

    ``undefended`` describes each setting, by name, without its defences. A grid is its own group.
    """
    settings, trained = {s.name: s for s in summary.settings}, _trained(summary.tradeoffs)
    groups: dict[str, list[Bracket]] = {}
    for bracket in summary.brackets:
        name, group = bracket.setting, settings[bracket.setting].group
        alike = f"grid {group}" if group else undefended.get(name, name)
        groups.setdefault(alike, []).append(bracket)
    return tuple(
        DefenceComparison(_lines(group, settings, trained))
        for group in groups.values()
        if any(settings[b.setting].defended for b in group)
    )


def _trained(tradeoffs: Sequence[Tradeoff]) -> dict[str, str]:
    """The utility of models trained with each setting's defence, if any were."""
    return {
        point.setting: utility_text(tradeoff.measure, point.utility.value)
        for tradeoff in reversed(tradeoffs)
        for point in tradeoff.points
        if point.utility is not None and math.isfinite(point.utility.value)
    }


def _lines(
    group: Sequence[Bracket], settings: Mapping[str, Setting], trained: Mapping[str, str]
) -> tuple[Measured, ...]:
    ordered = sorted(group, key=lambda b: settings[b.setting].defended)
    return tuple(_line(b, settings[b.setting], trained.get(b.setting, NOTHING)) for b in ordered)


def _line(bracket: Bracket, setting: Setting, trained: str) -> Measured:
    ceiling = bracket.ceiling
    bounded = ceiling is not None and ceiling < 1.0
    return Measured(
        name=bracket.setting,
        title=bracket.title,
        defended=setting.defended,
        reached="not known" if bracket.reached is None else rate_text(bracket.reached),
        ceiling=limit_text(ceiling),
        utility=trained
        if setting.model.value is None
        else utility_text(setting.model.name, setting.model.value, setting.model.chance),
        remark=_remark(bracket, setting, bounded),
    )


def _remark(bracket: Bracket, setting: Setting, bounded: bool) -> str:
    if not setting.defended:
        return "no defence"
    if bracket.reached is None:
        return "no attack really ran: no evidence"
    if bounded:
        return "a bound holds for every attack"
    return "measured against these attacks only: a stronger attack may succeed"
