"""Figures of a paper, declared: what to draw of a run, by the readings that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.studies.run import Reading


@dataclass(frozen=True)
class Line:
    """One curve: a reading at every place, with its interval where there is one."""

    label: str
    points: tuple[tuple[float, Reading], ...]
    dashed: bool = False
    attack: str = ""
    """Whose readings they are, where a reading itself does not say."""


@dataclass(frozen=True)
class Lines:
    """Curves over a common axis. ``name`` is the file's; ``across`` and ``up`` name the axes."""

    name: str
    caption: str
    across: str
    up: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Cloud:
    """A point a target: one metric against another, by attack on one setting."""

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
    """How a metric is spread over the targets, by pairs of a setting and an attack."""

    name: str
    caption: str
    across: str
    metric: str
    groups: tuple[tuple[str, str, str], ...]
    """Label, setting, attack."""


@dataclass(frozen=True)
class HeatMap:
    """One panel: ``cells`` hold a reading a row and column."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Reading, ...], ...]


@dataclass(frozen=True)
class HeatMaps:
    """Panels side by side, in shades of one scale."""

    name: str
    caption: str
    maps: tuple[HeatMap, ...]
    across: str = ""
    down: str = ""


@dataclass(frozen=True)
class Plane:
    """Named points by two readings: what a defence costs against what it protects."""

    name: str
    caption: str
    across: str
    up: str
    points: tuple[tuple[str, Reading, Reading], ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Receiver:
    """ROC curves of settings' judges of candidates: pairs of a label and ``setting:which``.

    Which is ``measured`` (candidates of the release), ``claimed`` (of the adversary's own networks)
    or ``held_out`` (images that are handed to it).
    """

    name: str
    caption: str
    settings: tuple[tuple[str, str], ...]


Plot = Lines | Cloud | Histogram | HeatMaps | Plane | Receiver


def of_attacks(
    names: Sequence[tuple[str, str]], points: Sequence[tuple[float, str]], quantity: str
) -> tuple[Line, ...]:
    """Return a curve an attack (name, label) of a quantity at places with their settings."""
    return tuple(
        Line(label, tuple((x, Reading(quantity, setting, attack)) for x, setting in points))
        for attack, label in names
    )
