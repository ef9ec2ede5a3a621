"""What would lower this: settings with a defence, beside the same setting without one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.audit.summary import Bracket, Summary
from exhume.audit.tradeoff import Tradeoff
from exhume.report.facts import Facts
from exhume.report.words import NOTHING, percent, rate_text, utility_text

_OWN = ("name", "title", "targets", "group", "defence")
"""What tells settings apart that are otherwise the same."""


@dataclass(frozen=True)
class Measured:
    """One setting's line: what attacks reached, what is ruled out, and what it cost."""

    name: str
    title: str
    defended: bool
    reached: str
    ceiling: str
    utility: str
    remark: str


@dataclass(frozen=True)
class Comparison:
    """Settings that differ only in their defences; the undefended one, if measured, is first."""

    lines: tuple[Measured, ...]


def comparisons(
    summary: Summary, facts: Mapping[str, Facts], config: Mapping[str, Any]
) -> tuple[Comparison, ...]:
    """Group settings that differ in nothing but their defences; groups without a defence drop.

    The settings of a grid are a group of their own.
    """
    trained = _trained(summary.tradeoffs)
    groups: dict[str, list[Bracket]] = {}
    keys = {table.get("name"): _without_defences(table) for table in config.get("setting", ())}
    for bracket in summary.brackets:
        name, group = bracket.setting, facts[bracket.setting].group
        groups.setdefault(f"grid {group}" if group else keys.get(name, name), []).append(bracket)
    return tuple(
        Comparison(_lines(group, facts, trained))
        for group in groups.values()
        if any(facts[b.setting].defended for b in group)
    )


def _without_defences(table: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in table.items() if key not in _OWN}
    release = kept.get("release")
    if isinstance(release, Mapping):
        kept["release"] = {key: v for key, v in release.items() if key != "defences"}
    return json.dumps(kept, sort_keys=True)


def _trained(tradeoffs: Sequence[Tradeoff]) -> dict[str, str]:
    """What models reach that were trained with each setting's defence, where some were."""
    return {
        point.setting: utility_text(tradeoff.measure, point.utility.value)
        for tradeoff in reversed(tradeoffs)
        for point in tradeoff.points
        if point.utility is not None and math.isfinite(point.utility.value)
    }


def _lines(
    group: Sequence[Bracket], facts: Mapping[str, Facts], trained: Mapping[str, str]
) -> tuple[Measured, ...]:
    ordered = sorted(group, key=lambda b: facts[b.setting].defended)
    return tuple(_line(b, facts[b.setting], trained.get(b.setting, NOTHING)) for b in ordered)


def _line(bracket: Bracket, facts: Facts, trained: str) -> Measured:
    ceiling = bracket.ceiling
    bounded = ceiling is not None and ceiling < 1.0
    return Measured(
        name=bracket.setting,
        title=bracket.title,
        defended=facts.defended,
        reached="not known" if bracket.reached is None else rate_text(bracket.reached),
        ceiling=percent(ceiling) if ceiling is not None and bounded else "nothing ruled out",
        utility=trained
        if facts.utility is None
        else utility_text(facts.utility_name, facts.utility),
        remark=_remark(bracket, facts, bounded),
    )


def _remark(bracket: Bracket, facts: Facts, bounded: bool) -> str:
    if not facts.defended:
        return "no defence"
    if bracket.reached is None:
        return "no attack really ran against it: no evidence"
    if bounded:
        return "a bound holds for every attack"
    return "seen against these attacks only: a stronger one may do better"
