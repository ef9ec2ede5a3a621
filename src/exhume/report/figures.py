"""Numbers behind the figures: success against closeness, errors, and errors against estimates.

The figures of a setting: the bracket as curves, the errors, and the errors that attacks expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exhume.metrics import clopper_pearson
from exhume.protocol.arrays import FloatArray
from exhume.report.numbers import number, percent
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
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting

CLOSEST, FARTHEST = 0.02, 2.0
"""The axis of every closeness figure, so that settings can be compared."""
_POINTS = 97
_SMALLEST = 1e-17
"""The place of an error of exactly zero on a logarithmic axis."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Success rates with a pointwise Clopper–Pearson band; all arrays of one length."""

    closeness: FloatArray
    rate: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class AttackErrors:
    """The distances of one attack on the targets where it ran and left a candidate."""

    attack: str
    baseline: bool
    distances: FloatArray


@dataclass(frozen=True, eq=False)
class EstimateCalibration:
    """An attack's own error estimates beside the true errors, both in the record's units."""

    attack: str
    estimates: FloatArray
    errors: FloatArray


def closeness_grid(asked: float) -> FloatArray:
    """Return the points of the axis, the closeness that was asked for among them."""
    grid = np.geomspace(CLOSEST, FARTHEST, _POINTS)
    inside = CLOSEST <= asked <= FARTHEST
    return np.unique(np.append(grid, asked)) if inside else grid


def success_curve(records: Sequence[Outcome], *, asked: float, confidence: float) -> Curve | None:
    """Return the success of one attack at every closeness, over the targets it really ran on.

    Closeness is the distance divided by the distance of the nearest record the adversary had. A
    trial without a candidate is a failure everywhere.
    """
    judged = [r for r in records if r.ran and r.threshold is not None]
    if not judged:
        return None
    ratios = np.array([_ratio(r, asked) for r in judged])
    at = closeness_grid(asked)
    counts = np.searchsorted(np.sort(ratios), at, side="right")
    limits = {int(k): clopper_pearson(int(k), len(ratios), confidence=confidence) for k in counts}
    return Curve(
        at,
        counts / len(ratios),
        np.array([limits[int(k)].low for k in counts]),
        np.array([limits[int(k)].high for k in counts]),
    )


def errors(attack: str, records: Sequence[Outcome]) -> AttackErrors | None:
    """Return the distances of one attack, or None if it returned no candidate."""
    found = [r.distance for r in records if r.ran and r.distance is not None]
    if not found:
        return None
    return AttackErrors(attack, records[0].baseline, np.maximum(found, _SMALLEST))


def calibration(
    attack: str, records: Sequence[Outcome], true: Sequence[float | None]
) -> EstimateCalibration | None:
    """Pair an attack's estimates with the true errors where both are known."""
    pairs = [
        (r.error_estimate, error)
        for r, error in zip(records, true, strict=True)
        if r.error_estimate is not None
        and error is not None
        and np.isfinite([r.error_estimate, error]).all()
    ]
    if not pairs:
        return None
    estimates, found = np.maximum(np.array(pairs, dtype=np.float64).T, _SMALLEST)
    return EstimateCalibration(attack, estimates, found)


def _ratio(record: Outcome, asked: float) -> float:
    """Relative distance; rounding must not contradict the recorded success."""
    assert record.threshold is not None
    if record.distance is None:
        return np.inf
    if record.threshold == 0.0:
        return 0.0 if record.success else np.inf
    ratio = asked * record.distance / record.threshold
    return min(ratio, asked) if record.success else max(ratio, np.nextafter(asked, np.inf))


_BINS = 36
_MOST_POINTS = 200


def bracket_figure(
    attack: str, reached: Curve, blind: Curve | None, setting: Setting, *, asked: float
) -> Drawing:
    """Success against closeness: the strongest attack, and the limit for every attack."""

    def paint(axes: Any) -> None:
        _paint_reached(axes, attack, reached)
        if blind is not None:
            axes.plot(blind.closeness, blind.rate, color=BLIND, label="blind guess", dashes=(3, 2))
        _paint_bound(axes, setting)
        axes.axvline(asked, color=MUTED, linewidth=0.8, zorder=1)
        ticks = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks((), minor=True)
        axes.set_yticks(np.linspace(0, 1, 5), ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.set(xlim=(CLOSEST, FARTHEST), ylim=(-0.02, 1.03), ylabel="share of targets")
        axes.set_xlabel("distance ÷ distance of the nearest known record")
        _legend(axes)

    return draw(paint, alt=_bracket_alt(attack, reached, setting, asked), caption=_caption(setting))


def error_figure(found: Sequence[AttackErrors], setting: Setting) -> Drawing:
    """How far the attacks' results are from the targets, beside the nearest known records."""
    marks = [m for m in (setting.nearest.mean, *setting.nearest.means) if m]
    everything = np.concatenate([*(e.distances for e in found), np.array(marks)])
    edges = np.geomspace(everything.min() / 3, everything.max() * 3, _BINS + 1)

    def paint(axes: Any) -> None:
        for one, colour in zip(found, _colours(found), strict=True):
            style = {"histtype": "stepfilled", "edgecolor": colour, "linewidth": 1.2}
            shade = (colour, 0.12 if one.baseline else 0.32)
            name = "blind guess" if one.baseline else drawn_name(one.attack)
            axes.hist(one.distances, bins=edges, facecolor=shade, label=name, **style)
        _paint_oracle(axes, setting)
        _log_axis(axes.xaxis, axes.set_xscale)
        axes.set(xlim=(edges[0], edges[-1]), ylabel="targets", xlabel="distance to the target")
        axes.yaxis.get_major_locator().set_params(integer=True)
        _legend(axes)

    caption = (
        f"Distance of each reconstruction from its target ({setting.data.unit}). Left of the "
        "solid line, reconstructions are closer than the nearest record the adversary had, on "
        "average. Dotted lines: 1st, 10th and 50th percentile of its records."
    )
    return draw(paint, alt=_error_alt(found, setting), caption=caption)


def calibration_figure(found: Sequence[EstimateCalibration]) -> Drawing:
    """An attack's own error estimate against the true error."""
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
        "Root-mean-square error in the units of the record: the attack's own estimate against "
        "the true error. On the line, the adversary knows which of its results to trust."
    )
    return draw(paint, alt=f"Own error estimate against true error. {said}.", caption=caption)


def kappa_figure(setting: Setting) -> Drawing:
    """The limit for every attack over the chance of a blind guess."""
    points = setting.ceiling.over_kappa
    kappa, gamma = (np.array([getattr(p, name) for p in points]) for name in ("kappa", "gamma"))

    def paint(axes: Any) -> None:
        axes.fill_between(kappa, gamma, 1.5, color=BOUND, alpha=0.12, linewidth=0)
        axes.plot(kappa, gamma, color=BOUND, marker="o", label="limit for every attack (γ)")
        style = {"linewidth": 1.0, "linestyle": ":", "label": "a blind guess (κ)"}
        axes.plot(kappa, kappa, color=BOUND, **style)
        at = setting.ceiling.at
        if at is not None:
            axes.axvline(at.kappa, color=INK, linewidth=1.3, label="κ of this audit")
        axes.set_ylim(float(kappa.min()), 1.5)
        axes.set_xlabel("chance of a blind guess (κ)")
        axes.set_ylabel("success")
        _log_axis(axes.xaxis, axes.set_xscale)
        _log_axis(axes.yaxis, axes.set_yscale)
        _legend(axes)

    said = "; ".join(f"κ {p.kappa:g}: {p.gamma:.3g}" for p in points)
    return draw(
        paint,
        alt=f"Limit for every attack over the chance of a blind guess. {said}.",
        caption=(
            "The limit for every attack, over the chance of a blind guess. Choose κ by what the "
            "adversary knows: 1/K where the record is one of K on a list."
        ),
    )


def _paint_reached(axes: Any, attack: str, curve: Curve) -> None:
    band = {"color": REACHED, "alpha": 0.18, "linewidth": 0}
    axes.fill_between(curve.closeness, curve.low, curve.high, **band)
    label = f"{drawn_name(attack)} reached"
    axes.plot(curve.closeness, curve.rate, color=REACHED, label=label, zorder=3)


def _paint_bound(axes: Any, setting: Setting) -> None:
    if not setting.ceiling.points:
        return
    at = np.array([p.closeness for p in setting.ceiling.points])
    gamma, kappa = (
        np.array([getattr(p, n) for p in setting.ceiling.points]) for n in ("gamma", "kappa")
    )
    # A ceiling at one closeness holds for every smaller one: steps to the left are valid.
    axes.fill_between(at, gamma, 1.03, step="pre", color=BOUND, alpha=0.12, linewidth=0)
    axes.step(at, gamma, where="pre", color=BOUND, label="limit for every attack (γ)")
    style = {"linewidth": 1.0, "linestyle": ":", "label": "limit for every blind guess (κ)"}
    axes.step(at, kappa, where="pre", color=BOUND, **style)


def _paint_oracle(axes: Any, setting: Setting) -> None:
    for level, mean in zip(setting.nearest.levels, setting.nearest.means, strict=True):
        axes.axvline(mean, color=MUTED, linewidth=1.0, linestyle=":", gid=f"percentile-{level:g}")
    if setting.nearest.mean:
        label = "nearest known record"
        axes.axvline(setting.nearest.mean, color=INK, linewidth=1.3, label=label)


def _log_axis(axis: Any, set_scale: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    set_scale("log")
    axis.set_major_locator(LogLocator(numticks=7))
    axis.set_major_formatter(FuncFormatter(power))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _legend(axes: Any) -> None:
    """Above the axes: inside, the legend would cover the curves of some runs."""
    legend = axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.2)
    rows = -(-len(legend.get_texts()) // 2)
    axes.figure.subplots_adjust(top=max(0.97 - 0.06 * rows, 0.5))


def _colours(found: Sequence[AttackErrors]) -> list[str]:
    attacks = [e.attack for e in found if not e.baseline]
    return [BLIND if e.baseline else ATTACKS[attacks.index(e.attack) % 6] for e in found]


def _caption(setting: Setting) -> str:
    text = (
        "The bracket at every closeness. Red: the share of targets that the strongest attack came "
        "at least this close to, with its confidence band. "
    )
    if setting.ceiling.points:
        return f"{text}Blue shading: ruled out for every attack. The vertical line marks success."
    return f"{text}No bound rules out anything above it. The vertical line marks success."


def _bracket_alt(attack: str, reached: Curve, setting: Setting, asked: float) -> str:
    place = int(np.argmin(np.abs(reached.closeness - asked)))
    text = (
        f"Success against closeness. At {asked:g} of the nearest known record's distance "
        f"{attack} reached {percent(float(reached.rate[place]))}, at {CLOSEST:g} of it "
        f"{percent(float(reached.rate[0]))}."
    )
    if setting.ceiling.at is not None:
        text += f" The limit for every attack is {percent(setting.ceiling.at.gamma)} at {asked:g}."
    return text


def _error_alt(found: Sequence[AttackErrors], setting: Setting) -> str:
    said = "; ".join(f"{e.attack} {number(float(np.median(e.distances)))}" for e in found)
    return (
        f"Histogram of distances to the target. Medians: {said}. The nearest known record is at "
        f"{number(setting.nearest.mean)} on average."
    )
