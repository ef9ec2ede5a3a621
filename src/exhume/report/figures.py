"""The figures of a setting: the bracket as curves, the errors, and the errors foreseen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exhume.report.curves import CLOSEST, FARTHEST, Calibration, Curve, Errors
from exhume.report.facts import Facts
from exhume.report.theme import (
    ATTACKS,
    BLIND,
    BOUND,
    INK,
    MUTED,
    REACHED,
    Drawing,
    draw,
    drawn_name,
    power,
)
from exhume.report.words import number, percent

_BINS = 36
_MOST_POINTS = 200


def bracket_figure(
    attack: str, reached: Curve, blind: Curve | None, facts: Facts, *, asked: float
) -> Drawing:
    """Success against closeness: what the strongest attack reached, and what no attack beats."""

    def paint(axes: Any) -> None:
        _paint_reached(axes, attack, reached)
        if blind is not None:
            axes.plot(blind.closeness, blind.rate, color=BLIND, label="blind guess", dashes=(3, 2))
        _paint_bound(axes, facts)
        axes.axvline(asked, color=MUTED, linewidth=0.8, zorder=1)
        ticks = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks((), minor=True)
        axes.set_yticks(np.linspace(0, 1, 5), ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set(xlim=(CLOSEST, FARTHEST), ylim=(-0.02, 1.03), ylabel="share of targets")
        axes.set_xlabel("distance ÷ distance of the nearest known record")
        _legend(axes)

    return draw(paint, alt=_bracket_alt(attack, reached, facts, asked), caption=_caption(facts))


def error_figure(found: Sequence[Errors], facts: Facts) -> Drawing:
    """How far the attacks' results are from the targets, beside the nearest known records."""
    marks = [m for m in (facts.nearest_mean, *facts.percentile_means) if m]
    everything = np.concatenate([*(e.distances for e in found), np.array(marks)])
    edges = np.geomspace(everything.min() / 3, everything.max() * 3, _BINS + 1)

    def paint(axes: Any) -> None:
        for one, colour in zip(found, _colours(found), strict=True):
            style = {"histtype": "stepfilled", "edgecolor": colour, "linewidth": 1.2}
            shade = (colour, 0.12 if one.baseline else 0.32)
            name = "blind guess" if one.baseline else drawn_name(one.attack)
            axes.hist(one.distances, bins=edges, facecolor=shade, label=name, **style)
        _paint_oracle(axes, facts)
        _log_axis(axes.xaxis, axes.set_xscale)
        axes.set(xlim=(edges[0], edges[-1]), ylabel="targets", xlabel="distance to the target")
        axes.yaxis.get_major_locator().set_params(integer=True)
        _legend(axes)

    caption = (
        f"Distance of each reconstruction from its target ({facts.unit}). Left of the solid line is"
        " closer than the nearest record the adversary had, on average; dotted lines: 1st, 10th"
        " and 50th percentile of its records."
    )
    return draw(paint, alt=_error_alt(found, facts), caption=caption)


def calibration_figure(found: Sequence[Calibration]) -> Drawing:
    """An attack's own error estimate against the true error: whether the adversary can tell."""
    both = np.concatenate([np.concatenate([c.estimates, c.errors]) for c in found])
    limits = (both.min() / 3, both.max() * 3)

    def paint(axes: Any) -> None:
        axes.plot(limits, limits, color=MUTED, linewidth=0.9, label="estimate = error")
        for one, colour in zip(found, ATTACKS * len(found), strict=False):
            some = slice(None, None, -(-len(one.errors) * len(found) // _MOST_POINTS))
            style = {"s": 13, "alpha": 0.6, "linewidths": 0, "label": drawn_name(one.attack)}
            axes.scatter(one.estimates[some], one.errors[some], color=colour, **style)
        for axis, scale in ((axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)):
            _log_axis(axis, scale)
        axes.set(xlim=limits, ylim=limits, xlabel="the attack's own estimate", ylabel="true error")
        _legend(axes)

    said = "; ".join(
        f"{c.attack}: median estimate {number(float(np.median(c.estimates)))}, median true error "
        f"{number(float(np.median(c.errors)))}"
        for c in found
    )
    caption = (
        "Root-mean-square error in the record's own units, as the attack foresaw it and as it was. "
        "On the line, the adversary knows which of its results to trust."
    )
    return draw(paint, alt=f"Own error estimate against true error. {said}.", caption=caption)


def _paint_reached(axes: Any, attack: str, curve: Curve) -> None:
    band = {"color": REACHED, "alpha": 0.18, "linewidth": 0}
    axes.fill_between(curve.closeness, curve.low, curve.high, **band)
    label = f"{drawn_name(attack)} reached"
    axes.plot(curve.closeness, curve.rate, color=REACHED, label=label, zorder=3)


def _paint_bound(axes: Any, facts: Facts) -> None:
    if not facts.bound:
        return
    at = np.array([p.closeness for p in facts.bound])
    gamma, kappa = (np.array([getattr(p, n) for p in facts.bound]) for n in ("gamma", "kappa"))
    # A ceiling at one closeness holds for every smaller one: steps to the left are sound.
    axes.fill_between(at, gamma, 1.03, step="pre", color=BOUND, alpha=0.12, linewidth=0)
    axes.step(at, gamma, where="pre", color=BOUND, label="no attack beats (γ)")
    style = {"linewidth": 1.0, "linestyle": ":", "label": "no blind guess beats (κ)"}
    axes.step(at, kappa, where="pre", color=BOUND, **style)


def _paint_oracle(axes: Any, facts: Facts) -> None:
    for level, mean in zip(facts.percentile_levels, facts.percentile_means, strict=True):
        axes.axvline(mean, color=MUTED, linewidth=1.0, linestyle=":", gid=f"percentile-{level:g}")
    if facts.nearest_mean:
        label = "nearest known record"
        axes.axvline(facts.nearest_mean, color=INK, linewidth=1.3, label=label)


def _log_axis(axis: Any, set_scale: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    set_scale("log")
    axis.set_major_locator(LogLocator(numticks=7))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _legend(axes: Any) -> None:
    """Above the axes: inside, it would lie on the curves of some run or other."""
    legend = axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.2)
    rows = -(-len(legend.get_texts()) // 2)
    axes.figure.subplots_adjust(top=max(0.97 - 0.06 * rows, 0.5))


def _colours(found: Sequence[Errors]) -> list[str]:
    attacks = [e.attack for e in found if not e.baseline]
    return [BLIND if e.baseline else ATTACKS[attacks.index(e.attack) % 6] for e in found]


def _caption(facts: Facts) -> str:
    text = (
        "The bracket at every closeness. Red: the share of targets that the strongest attack came "
        "at least this close to, with its confidence band. "
    )
    if facts.bound:
        return f"{text}Shaded blue: ruled out for every attack. The vertical line marks success."
    return f"{text}No bound rules anything out above it. The vertical line marks success."


def _bracket_alt(attack: str, reached: Curve, facts: Facts, asked: float) -> str:
    place = int(np.argmin(np.abs(reached.closeness - asked)))
    text = (
        f"Success against closeness. At {asked:g} of the nearest known record's distance "
        f"{attack} reached {percent(float(reached.rate[place]))}, at {CLOSEST:g} of it "
        f"{percent(float(reached.rate[0]))}."
    )
    if facts.bound_at is not None:
        text += f" No attack beats {percent(facts.bound_at.gamma)} at {asked:g}."
    return text


def _error_alt(found: Sequence[Errors], facts: Facts) -> str:
    said = "; ".join(f"{e.attack} {number(float(np.median(e.distances)))}" for e in found)
    return (
        f"Histogram of distances to the target. Medians: {said}. The nearest known record is at "
        f"{number(facts.nearest_mean)} on average."
    )
