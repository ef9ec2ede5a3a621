"""Declared figures of a paper: what to draw of a run, by its readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.studies.reading import StudyReading


@dataclass(frozen=True)
class PlotLine:
    """One curve: a reading at every place, with its interval if there is one."""

    label: str
    points: tuple[tuple[float, StudyReading], ...]
    dashed: bool = False
    attack: str = ""
    """The attack of readings that do not name one."""


@dataclass(frozen=True)
class Lines:
    """Curves over a common axis. ``name`` is the file's; ``across`` and ``up`` name the axes."""

    name: str
    caption: str
    across: str
    up: str
    lines: tuple[PlotLine, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Cloud:
    """One point per target: one metric against another, by attack on one setting."""

    name: str
    caption: str
    across: str
    up: str
    setting: str
    attacks: tuple[tuple[str, str], ...]
    """Pairs of an attack and its label."""
    metrics: tuple[str, str]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Histogram:
    """The distribution of a metric over the targets, by pairs of a setting and an attack."""

    name: str
    caption: str
    across: str
    metric: str
    groups: tuple[tuple[str, str, str], ...]
    """Label, setting, attack."""


@dataclass(frozen=True)
class HeatPanel:
    """One panel: ``cells`` hold one reading per row and column."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[StudyReading, ...], ...]


@dataclass(frozen=True)
class HeatMaps:
    """Panels side by side, in shades of one scale."""

    name: str
    caption: str
    maps: tuple[HeatPanel, ...]
    across: str = ""
    down: str = ""


@dataclass(frozen=True)
class Plane:
    """Named points by two readings: the cost of a defence against its protection."""

    name: str
    caption: str
    across: str
    up: str
    points: tuple[tuple[str, StudyReading, StudyReading], ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Receiver:
    """ROC curves of settings' judges of candidates: pairs of a label and ``setting:which``.

    Which is ``measured`` (candidates of the release), ``claimed`` (of the adversary's own networks)
    or ``held_out`` (images that are given to it).
    """

    name: str
    caption: str
    settings: tuple[tuple[str, str], ...]


Plot = Lines | Cloud | Histogram | HeatMaps | Plane | Receiver


def of_attacks(
    names: Sequence[tuple[str, str]], points: Sequence[tuple[float, str]], quantity: str
) -> tuple[PlotLine, ...]:
    """Return one curve per attack (name, label) of a quantity at places with their settings."""
    return tuple(
        PlotLine(
            label, tuple((x, StudyReading(quantity, setting, attack)) for x, setting in points)
        )
        for attack, label in names
    )
