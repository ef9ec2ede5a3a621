"""The trade-off as a picture: the utility lost against the error of the strongest attack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exhume.report.label_places import Box, placed
from exhume.report.numbers import short
from exhume.report.theme import ATTACKS, BLIND, BOUND, INK, MUTED, Drawing, draw, drawn_name
from exhume.runlog.tradeoff import Measure, Point, Tradeoff

_SIZE = (7.6, 4.9)
_LETTER = 4.35
"""The average width of a label's letter, in points."""
_LINE = 9.5
_HALF_BAR = 0.8
_ACCURACY = Measure.ACCURACY.value
_FRONT, _OTHER = ATTACKS[2], ATTACKS[1]


def label_of(point: Point) -> str:
    """Return a point's defence as the page calls it."""
    return point.defence or "no defence"


def tradeoff_figure(tradeoff: Tradeoff, *, alt: str, caption: str) -> Drawing:
    """Draw a trade-off with measured utility: its front, the guess and the floors."""
    shown = [p for p in tradeoff.points if p.utility is not None]
    finite = [p for p in shown if p.utility is not None and math.isfinite(p.utility.mean)]

    def paint(axes: Any) -> None:
        _limits(axes, tradeoff, finite, len(finite) < len(shown))
        _marks_for_legend(axes, "s", shown)
        _paint_front(axes, finite)
        at = [_paint_point(axes, point) for point in shown]
        _paint_floors(axes, finite)
        if tradeoff.blind is not None:
            axes.axhline(tradeoff.blind, color=BLIND, dashes=(4, 2), label="blind guess")
        axes.set_xlabel(_cost_label(tradeoff.measure))
        if tradeoff.measure == _ACCURACY:
            axes.xaxis.set_major_formatter(lambda share, _: f"{100 * share:g}")
        axes.set_ylabel("error under the strongest attack")
        _legend(axes)
        _paint_labels(axes, shown, at)

    return draw(paint, alt=alt, caption=caption, size=_SIZE)


def strength_figure(tradeoff: Tradeoff, *, alt: str, caption: str) -> Drawing:
    """Draw the strength of each defence, if its cost was not measured."""
    ordered = sorted(tradeoff.points, key=lambda p: (p.defence != "", p.strength.mean))
    size = (_SIZE[0], 1.1 + 0.24 * len(ordered))

    def paint(axes: Any) -> None:
        _marks_for_legend(axes, "o", ordered)
        for place, point in enumerate(ordered):
            colour, face = _colours(point)
            strength = point.strength
            _bars(axes, strength.mean, place, (strength.low, strength.high), colour, across=True)
            axes.plot(strength.mean, place, "o", color=colour, mfc=face, ms=5.5, zorder=4)
        axes.set_xlim(0, _reach(tradeoff))
        ends = [v for p in ordered for v in (p.strength.mean, p.strength.high) if v is not None]
        axes.set_xlim(0, max([*ends, tradeoff.blind or 0.0]) * 1.06 or 1.0)
        _floor_ticks(axes, [(p.floor, i) for i, p in enumerate(ordered)], across=True)
        if tradeoff.blind is not None:
            axes.axvline(tradeoff.blind, color=BLIND, dashes=(4, 2), label="blind guess")
        axes.set_yticks(range(len(ordered)), [drawn_name(label_of(p)) for p in ordered])
        axes.set(ylim=(-0.7, len(ordered) - 0.3), xlabel="error under the strongest attack")
        axes.grid(axis="y", visible=False)
        _legend(axes, left=0.24)

    return draw(paint, alt=alt, caption=caption, size=size)


def _limits(axes: Any, tradeoff: Tradeoff, finite: Sequence[Point], diverged: bool) -> None:
    losses = [u for p in finite if (u := p.utility) is not None]
    sides = [v for u in losses for v in (u.mean, u.low, u.high) if v is not None]
    low, high = min([0.0, *sides]), max([0.0, *sides])
    room = (high - low or 1.0) * 0.08
    # A training that diverged is drawn beyond all others, because its loss is not a number.
    axes.set_xlim(low - room, high + room * (3 if diverged else 1))
    axes.set_ylim(0, _reach(tradeoff))


def _reach(tradeoff: Tradeoff) -> float:
    """The end of an axis of errors: beyond all measured errors, but not up to every floor."""
    errors = [p.strength.mean for p in tradeoff.points] + [tradeoff.blind or 0.0]
    errors += [p.strength.high or 0.0 for p in tradeoff.points]
    return max(errors) * 1.12 or 1.0


def _paint_front(axes: Any, points: Sequence[Point]) -> None:
    front = sorted(
        (p.utility.mean, p.strength.mean) for p in points if p.on_front and p.utility is not None
    )
    if len(front) > 1:
        losses, errors = zip(*front, strict=True)
        style = {"color": _FRONT, "linewidth": 1.4, "label": "Pareto front", "zorder": 2}
        axes.step(losses, errors, where="post", **style)


def _paint_point(axes: Any, point: Point) -> tuple[float, float]:
    assert point.utility is not None
    colour, face = _colours(point)
    loss, strength = point.utility, point.strength
    diverged = not math.isfinite(loss.mean)
    left, right = axes.get_xlim()
    x = right - 0.04 * (right - left) if diverged else loss.mean
    _bars(axes, strength.mean, x, (strength.low, strength.high), colour, across=False)
    if not diverged:
        _bars(axes, loss.mean, strength.mean, (loss.low, loss.high), colour, across=True)
    mark = ">" if diverged else "s" if not point.defence else "o"
    axes.plot(x, strength.mean, mark, color=colour, mfc=face, ms=6, zorder=4, clip_on=False)
    return x, strength.mean


def _colours(point: Point) -> tuple[str, str]:
    """A point's colour and filling; hollow if no attack ran, because then nothing is known."""
    colour = INK if not point.defence else _FRONT if point.on_front else _OTHER
    return (MUTED, "none") if not point.strength.answered else (colour, colour)


def _bars(
    axes: Any,
    middle: float,
    at: float,
    ends: tuple[float | None, float | None],
    colour: str,
    *,
    across: bool,
) -> None:
    low, high = ends
    if low is None or high is None or colour == MUTED:
        return
    spread = [[middle - low], [high - middle]]
    where = {"x": [middle], "y": [at], "xerr": spread}
    if not across:
        where = {"x": [at], "y": [middle], "yerr": spread}
    axes.errorbar(**where, fmt="none", ecolor=colour, elinewidth=0.9, capsize=2, alpha=0.55)


def _paint_floors(axes: Any, points: Sequence[Point]) -> None:
    """Floors as ticks below their points, and theoretical rates relative to no defence."""
    at = [(p.floor, p.utility.mean) for p in points if p.utility is not None]
    _floor_ticks(axes, at, across=False)
    base = next((p for p in points if not p.defence), None)
    rates = [
        (p.utility.mean, p.rate * base.strength.mean)
        for p in points
        if base is not None and p.defence and p.rate is not None and p.utility is not None
    ]
    _theory(axes, [(error, loss) for loss, error in rates], "D", "rate of Liu et al.", across=False)


def _floor_ticks(axes: Any, at: Sequence[tuple[float | None, float]], *, across: bool) -> None:
    known = [(floor, place) for floor, place in at if floor is not None]
    _theory(axes, known, "|" if across else "_", "floor of the bound attacks", across=across)


def _theory(
    axes: Any, at: Sequence[tuple[float, float]], mark: str, name: str, *, across: bool
) -> None:
    """Mark theoretical errors; those outside the picture are carets at its edge."""
    limit = (axes.get_xlim if across else axes.get_ylim)()[1]
    style = {"color": BOUND, "mfc": "none", "linestyle": "none", "zorder": 3, "clip_on": False}
    size = {"ms": 5.5} if mark == "D" else {"ms": 11, "mew": 2}
    inside = [(error, place) for error, place in at if error <= limit]
    beyond = [(limit, place) for error, place in at if error > limit]
    for some, drawn, label, own in (
        (inside, mark, name, size),
        (beyond, ">" if across else "^", f"{name}, beyond", {"ms": 5.5}),
    ):
        if some:
            errors, places = zip(*some, strict=True)
            where = (errors, places) if across else (places, errors)
            axes.plot(*where, marker=drawn, label=label, **style, **own)


def _marks_for_legend(axes: Any, undefended: str, points: Sequence[Point]) -> None:
    marks = [(undefended, INK, INK, "no defence"), ("o", _OTHER, _OTHER, "a defence")]
    if not all(point.strength.answered for point in points):
        marks.append(("o", MUTED, "none", "no attack finished"))
    for mark, colour, face, name in marks:
        axes.plot([], [], mark, color=colour, mfc=face, ms=5.5, label=name)


def _paint_labels(axes: Any, shown: Sequence[Point], at: Sequence[tuple[float, float]]) -> None:
    scale = axes.figure.dpi / 72
    points = [(float(x), float(y)) for x, y in axes.transData.transform(list(at)) / scale]
    frame = Box(*(float(v) for v in axes.transAxes.transform([(0, 0), (1, 1)]).ravel() / scale))
    names = [drawn_name(label_of(point)) for point in shown]
    sizes = [(_LETTER * len(name) + 2, _LINE) for name in names]
    line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
    labels = placed(points, sizes, frame, _bar_boxes(axes, shown, at))
    for name, xy, (x, y), label in zip(names, at, points, labels, strict=True):
        box = label.box
        # Relative to its point, so that its place does not depend on the resolution.
        offset = ((box.left + box.right) / 2 - x, (box.bottom + box.top) / 2 - y)
        axes.annotate(
            name,
            xy=xy,
            xytext=offset,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            color=INK,
            arrowprops=line if label.far else None,
            zorder=5,
            annotation_clip=False,
        )


def _bar_boxes(axes: Any, shown: Sequence[Point], at: Sequence[tuple[float, float]]) -> list[Box]:
    """The places of intervals, in points of the drawing: labels should not cover them."""
    shape = np.array([[-_HALF_BAR, -_HALF_BAR], [_HALF_BAR, _HALF_BAR]])
    found = []
    for point, (x, y) in zip(shown, at, strict=True):
        low, high, loss = point.strength.low, point.strength.high, point.utility
        ends = [] if low is None or high is None else [((x, low), (x, high))]
        if loss is not None and loss.low is not None and loss.high is not None:
            ends.append(((loss.low, y), (loss.high, y)))
        for pair in ends:
            corners = axes.transData.transform(pair) * 72 / axes.figure.dpi + shape
            found.append(Box(*(float(v) for v in corners.ravel())))
    return found


def _legend(axes: Any, left: float = 0.1) -> None:
    legend = axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, borderaxespad=0.2)
    rows = -(-len(legend.get_texts()) // 4)
    height = axes.figure.get_figheight()
    axes.figure.subplots_adjust(
        left=left, right=0.975, bottom=0.52 / height, top=1 - (0.08 + 0.19 * rows) / height
    )


def _cost_label(measure: str) -> str:
    if measure == _ACCURACY:
        return "accuracy lost (percentage points)"
    return f"{measure} added"


def spread_text(mean: float, low: float | None, high: float | None) -> str:
    """Return a number with its interval, if it has one.

    >>> spread_text(0.31, 0.28, 0.334), spread_text(0.31, None, None)
    ('0.310 [0.280–0.334]', '0.310')
    """
    if low is None or high is None:
        return short(mean)
    return f"{short(mean)} [{short(low)}–{short(high)}]"
