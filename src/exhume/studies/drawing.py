"""The declared figures of a part, drawn from its stored figures alone: the same bytes each time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.report.theme import ATTACKS, BOUND, INK, drawn_name, paint_roc, power, svg
from exhume.runlog.authenticity import RocCurve
from exhume.studies.plots import (
    Cloud,
    HeatMaps,
    HeatPanel,
    Histogram,
    Lines,
    Plane,
    Plot,
    PlotLine,
    Receiver,
)
from exhume.studies.reading import StudyRun, shown

_SIZE = (4.8, 3.4)
_BINS = 24
_SHADES = "YlGnBu"
_COLOURS = (*ATTACKS[:4], BOUND, *ATTACKS[4:])


def figure_file(paper: str, part: str, plot: Plot) -> str:
    """Return the name of a figure's file."""
    return f"{paper}-{part}-{plot.name}.svg"


def draw_plots(run: StudyRun, plots: Sequence[Plot], figures: Path) -> list[Path]:
    """Write every figure for which a run has the numbers."""
    written = []
    for plot in plots:
        drawn = painted(plot, run)
        if drawn is not None:
            path = figures / figure_file(run.paper, run.part, plot)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(drawn, encoding="utf-8")
            written.append(path)
    return written


def painted(plot: Plot, run: StudyRun) -> str | None:
    """Return a figure as SVG, None where the run has no number of it."""
    paint: Callable[[Any], None] | None
    size = _SIZE
    match plot:
        case Lines():
            paint = _lines(plot, run)
        case Cloud():
            paint = _cloud(plot, run)
        case Histogram():
            paint = _histogram(plot, run)
        case Plane():
            paint, size = _plane(plot, run), (6.4, 4.2)
        case Receiver():
            paint = _receiver(plot, run)
        case HeatMaps():
            rows = len(plot.maps[0].rows)
            size = (2.6 * len(plot.maps) + 0.3, 0.34 * rows + 1.2)
            paint = _heat_maps(plot, run)
    return None if paint is None else svg(paint, size=size, background="white")


def _on_axes(paint: Callable[[Any], None], legend: int) -> Callable[[Any], None]:
    """Return the painter of one pair of axes, with space above for ``legend`` names."""

    def on_figure(figure: Any) -> None:
        axes = figure.add_subplot()
        rows = -(-legend // 2)
        figure.subplots_adjust(left=0.16, right=0.96, bottom=0.15, top=0.97 - 0.062 * rows)
        paint(axes)
        if legend:
            axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.2)

    return on_figure


def _axes(axes: Any, plot: Lines | Cloud | Plane) -> None:
    axes.set_xlabel(plot.across)
    axes.set_ylabel(plot.up)
    for log, axis, scale in (
        (plot.log_x, axes.xaxis, axes.set_xscale),
        (plot.log_y, axes.yaxis, axes.set_yscale),
    ):
        if log:
            _log(axis, scale)


def _log(axis: Any, set_scale: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    set_scale("log")
    limits = axis.get_view_interval()
    decades = math.log10(max(limits) / max(min(limits), 1e-300))
    axis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=9))
    axis.set_major_formatter(FuncFormatter(power if decades > 2 else lambda v, _: shown(v)))
    axis.set_minor_formatter(NullFormatter())


def _lines(plot: Lines, run: StudyRun) -> Callable[[Any], None] | None:
    curves = [(line, _curve(line, run)) for line in plot.lines]
    there = [(line, curve) for line, curve in curves if len(curve)]
    if not there:
        return None

    def paint(axes: Any) -> None:
        own = iter(_COLOURS * 2)
        for line, curve in there:
            colour = INK if line.dashed else next(own)
            dashes = {"dashes": (4, 2), "linewidth": 1.2} if line.dashed else {"marker": "o"}
            label = drawn_name(line.label)
            axes.plot(curve[:, 0], curve[:, 1], color=colour, ms=4, label=label, **dashes)
            if not line.dashed and np.isfinite(curve[:, 2:]).all():
                band = {"color": colour, "alpha": 0.14, "linewidth": 0}
                axes.fill_between(curve[:, 0], curve[:, 2], curve[:, 3], **band)
        if not plot.log_y:
            axes.set_ylim(bottom=0)
        _axes(axes, plot)
        places = sorted({float(x) for _, curve in there for x in curve[:, 0]})
        if plot.log_x and len(places) <= 7:
            axes.set_xticks(places, [f"{place:,g}" for place in places])
            axes.set_xticks((), minor=True)

    return _on_axes(paint, len(there))


def _curve(line: PlotLine, run: StudyRun) -> FloatArray:
    """Return rows of place, figure, and the ends of its interval (NaN where there is none)."""
    found = []
    for place, reading in line.points:
        value, reach = run.read(reading, line.attack), run.interval(reading, line.attack)
        if value is not None and math.isfinite(value):
            known = reach is not None and reach.half != 0
            ends = (reach.low, reach.high) if reach and known else (math.nan, math.nan)
            found.append((place, value, *ends))
    return np.array(found, dtype=np.float64).reshape(-1, 4)


def _cloud(plot: Cloud, run: StudyRun) -> Callable[[Any], None] | None:
    found = [
        (label, points)
        for attack, label in plot.attacks
        if len(points := _points(run, plot.setting, attack, plot.metrics))
    ]
    if not found:
        return None

    def paint(axes: Any) -> None:
        for (label, points), colour in zip(found, _COLOURS, strict=False):
            style = {"s": 14, "alpha": 0.65, "linewidths": 0, "label": drawn_name(label)}
            axes.scatter(points[:, 0], points[:, 1], color=colour, **style)
        _axes(axes, plot)

    return _on_axes(paint, len(found))


def _points(run: StudyRun, setting: str, attack: str, metrics: tuple[str, str]) -> FloatArray:
    scores = run.scores.get(setting, {}).get(attack, {})
    pairs = zip(*(scores.get(metric, ()) for metric in metrics), strict=False)
    found = [pair for pair in pairs if None not in pair]
    return np.array(found, dtype=np.float64).reshape(-1, 2)


def _histogram(plot: Histogram, run: StudyRun) -> Callable[[Any], None] | None:
    found = []
    for label, setting, attack in plot.groups:
        values = run.scores.get(setting, {}).get(attack, {}).get(plot.metric, ())
        numbers = np.array([v for v in values if v is not None], dtype=np.float64)
        if len(numbers):
            found.append((label, numbers))
    if not found:
        return None
    everything = np.concatenate([numbers for _, numbers in found])
    least = everything[everything > 0].min() if (everything > 0).any() else 1e-3
    edges = np.geomspace(least / 1.3, everything.max() * 1.3, _BINS + 1)

    def paint(axes: Any) -> None:
        for (label, numbers), colour in zip(found, _COLOURS, strict=False):
            style = {"histtype": "stepfilled", "edgecolor": colour, "facecolor": (colour, 0.25)}
            axes.hist(numbers, bins=edges, label=drawn_name(label), linewidth=1.2, **style)
        axes.set(xlabel=plot.across, ylabel="targets")
        _log(axes.xaxis, axes.set_xscale)

    return _on_axes(paint, len(found))


def _plane(plot: Plane, run: StudyRun) -> Callable[[Any], None] | None:
    found = []
    for label, across, up in plot.points:
        x, y = run.read(across), run.read(up)
        if x is not None and y is not None and math.isfinite(x) and math.isfinite(y):
            found.append((label, x, y))
    if not found:
        return None

    def paint(axes: Any) -> None:
        for label, x, y in found:
            axes.plot(x, y, "o", ms=5, color=_family_colour(label, [f[0] for f in found]))
        _axes(axes, plot)
        axes.margins(0.09)
        _name_points(axes, found)

    return _on_axes(paint, 0)


def _family_colour(label: str, labels: Sequence[str]) -> str:
    """Return one colour per first word: "prune .3" and "prune .9" belong to one family."""
    families = list(dict.fromkeys(one.split(" ")[0] for one in labels))
    return _COLOURS[families.index(label.split(" ")[0]) % len(_COLOURS)]


def _name_points(axes: Any, found: Sequence[tuple[str, float, float]]) -> None:
    from exhume.report.label_places import Box, placed

    axes.figure.canvas.draw()
    scale = 72.0 / axes.figure.dpi
    at = [tuple(axes.transData.transform((x, y)) * scale) for _, x, y in found]
    window = axes.get_window_extent()
    frame = Box(*(edge * scale for edge in (window.x0, window.y0, window.x1, window.y1)))
    sizes = [(4.2 * len(label), 9.0) for label, _, _ in found]
    for (label, _, _), place in zip(found, placed(at, sizes, frame), strict=True):
        axes.annotate(
            label,
            (place.box.left / scale, place.box.bottom / scale),
            xycoords="figure pixels",
            fontsize=7.5,
            color=INK,
        )


def _receiver(plot: Receiver, run: StudyRun) -> Callable[[Any], None] | None:
    found: list[tuple[str, str, Sequence[float], Sequence[float]]] = []
    judged = {one.name: one.authenticity for one in run.summary.settings}
    for label, setting in plot.settings:
        name, _, which = setting.partition(":")
        curve: RocCurve | None = getattr(judged.get(name), which or "measured", None)
        if curve is not None and curve.area is not None:
            colour = _COLOURS[len(found) % len(_COLOURS)]
            found.append((f"{label}: {curve.area:.2f}", colour, curve.false_rate, curve.true_rate))
    if not found:
        return None
    return _on_axes(lambda axes: paint_roc(axes, found), 1 + len(found))


def _heat_maps(plot: HeatMaps, run: StudyRun) -> Callable[[Any], None] | None:
    tables = [_table(one, run) for one in plot.maps]
    numbers = np.concatenate([table.ravel() for table in tables])
    if not np.isfinite(numbers).any():
        return None
    high = float(np.nanmax(numbers)) or 1.0

    def paint(figure: Any) -> None:
        panels = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, one, table in zip(panels, plot.maps, tables, strict=True):
            axes.imshow(table, cmap=_SHADES, vmin=0.0, vmax=high, aspect="auto")
            axes.set_xticks(range(len(one.columns)), one.columns)
            axes.set_yticks(range(len(one.rows)), one.rows)
            axes.grid(visible=False)
            axes.set_title(one.title, fontsize=8.5)
            axes.set_xlabel(plot.across)
            for (row, column), value in np.ndenumerate(table):
                ink = "white" if value > 0.6 * high else INK
                text = "–" if math.isnan(value) else shown(float(value))
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
        panels[0].set_ylabel(plot.down)
        figure.subplots_adjust(left=0.09, right=0.985, bottom=0.2, top=0.88, wspace=0.32)

    return paint


def _table(one: HeatPanel, run: StudyRun) -> FloatArray:
    found = [[_or_nan(run.read(cell)) for cell in row] for row in one.cells]
    return np.array(found, dtype=np.float64)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
