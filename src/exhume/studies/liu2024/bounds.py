"""Table 1: how the error grows with d, m, B and with a defence's strength, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exhume.studies.claims import ClaimRow, versus
from exhume.studies.liu2024.common import GradientPart, GradientSize
from exhume.studies.liu2024.published import defence
from exhume.studies.liu2024.two_layer import TWO_LAYER, two_layer, values
from exhume.studies.part import Tables, minutes, sizes
from exhume.studies.plots import Lines, Plot, PlotLine
from exhume.studies.reading import StudyReading

_SIGMA = 1e-3
_CLIP = 0.05
"""A norm that every gradient here is longer than."""
_SILENT = 0.5
"""The share of inactive ReLUs on one record: pruning as many gave p̂ from 0 to .006 on three
records.
"""
_CHECKS = {
    "clipped": "restatement: only the gradient's length",
    "drop 0.75, ignored": "not in the paper",
}
"""Settings whose rows are no evidence for the paper, with the reason."""
_ATTACK, _FLOOR = "span.mean", "floor"
_Points = tuple[tuple[float, Tables], ...]


@dataclass(frozen=True)
class _ScalingLaw:
    """A quantity along one axis, and Table 1's statement about it.

    ``points`` are pairs of a place and a setting; between the ends the error must follow the power
    ``slope`` of the place, to within ``tolerance`` of the slope. The ``relation`` below is for an
    upper bound: the error may grow less.
    """

    quantity: str
    axis: str
    law: str
    slope: float
    points: _Points
    tolerance: float = 0.1
    relation: str = "about"

    @property
    def who(self) -> str:
        return "attack" if self.quantity == _ATTACK else "floor"

    def reading(self, place: int) -> StudyReading:
        return StudyReading(self.quantity, self.points[place][1]["name"])

    def row(self) -> ClaimRow:
        """The far end against the near one."""
        begin, end = self.points[0][0], self.points[-1][0]
        stretch = end / begin
        factor = round(max(stretch, 1 / stretch) ** self.tolerance, 2)
        how = {"about": f"within {self.tolerance:g}", "below": "at most"}
        says = f"slope {self.slope:g} {how[self.relation]}"
        return versus(
            f"{self.who}: {self.axis} from {begin:g} to {end:g}",
            *(self.law, self.reading(-1), self.relation, self.reading(0), says),
            factor=factor if self.relation == "about" else 1.0,
            times=stretch**self.slope,
            attack="features",
        )

    def line(self) -> PlotLine:
        """Readings over the strength relative to the first point."""
        begin = self.points[0][0]
        found = tuple((x / begin, self.reading(i)) for i, (x, _) in enumerate(self.points))
        return PlotLine(self.axis, found, attack="features")


def _whole(size: GradientSize) -> bool:
    """Return whether all points are run; at smoke scale only the ends are."""
    return size.data == "cifar-10"


def _wider(size: GradientSize, times: float) -> GradientSize:
    return replace(size, width=int(size.width * times))


def _finer(size: GradientSize, times: int) -> GradientSize:
    """Return images of ``times``² as many pixels (a power of 2), before as many hidden units."""
    return replace(size, shrink=size.shrink // times, width=size.width // times**2)


def _coarser(size: GradientSize, times: int) -> GradientSize:
    return replace(size, shrink=size.shrink * times, width=size.width * times**2)


def _scaled(size: GradientSize, before: str, *defences: Tables) -> dict[str, _Points]:
    """Return the points along m, d and B, each with the same defences; they share one."""
    counts = (1, 2, 4, 8) if _whole(size) else (1, 4)
    batches = tuple((b, two_layer(size, f"{before}B = {b}", b, *defences)) for b in counts)
    shared, units = batches[0][1], size.width * values(size)
    widths = tuple(
        (t * units, two_layer(_wider(size, t), f"{before}m × {t:g}", 1, *defences))
        for t in size.values
        if t != 1
    )
    others = [_finer(size, 2), *([_coarser(size, 2)] if _whole(size) else [])]
    inputs = tuple(
        (values(one), two_layer(one, f"{before}d = {values(one)}", 1, *defences)) for one in others
    )
    return {
        "m": _sorted((units, shared), *widths),
        "d": _sorted((values(size), shared), *inputs),
        "B": batches,
    }


def _sorted(*points: tuple[float, Tables]) -> _Points:
    return tuple(sorted(points, key=lambda point: point[0]))


def _upper(size: GradientSize) -> list[_ScalingLaw]:
    scaled = _scaled(size, "")
    none = scaled["B"][0][1]
    rates = (0.3, 0.5, 0.75) if _whole(size) else (0.75,)
    kept = (
        (1.0, none),
        *(
            (1 - p, two_layer(size, f"drop {p:g}", 1, defence("gradient-dropout", p)))
            for p in rates
        ),
    )
    sizes = (0.03, 0.1, 0.3) if _whole(size) else (0.1, 0.3)
    noisy = tuple((s, two_layer(size, f"noise {s:g}", 1, defence("noise", s))) for s in sizes)
    return [
        _ScalingLaw(_ATTACK, "hidden units m", "m^−1/2", -0.5, scaled["m"]),
        _ScalingLaw(_ATTACK, "values d", "d^1/2", 0.5, scaled["d"], tolerance=0.15),
        _ScalingLaw(_ATTACK, "records B", "B at most", 1.0, scaled["B"], relation="below"),
        _ScalingLaw(_ATTACK, "share sent (dropout)", "(1 − p)^−1/2", -0.5, kept, tolerance=0.2),
        _ScalingLaw(_ATTACK, "noise σ₀", "B + σ₀ at most", 1.0, noisy, relation="below"),
    ]


def _lower(size: GradientSize) -> list[_ScalingLaw]:
    scaled = _scaled(size, "σ, ", defence("noise", _SIGMA))
    noise = defence("noise", _SIGMA)
    times = (0.1, 1.0, 10.0) if _whole(size) else (1.0, 10.0)
    noisy = tuple(
        (t * _SIGMA, two_layer(size, f"{t:g}σ", 1, defence("noise", t * _SIGMA))) for t in times
    )
    none = scaled["B"][0][1]
    curves = [
        _ScalingLaw(_FLOOR, "noise σ", "σ", 1.0, noisy, tolerance=0.01),
        _ScalingLaw(_FLOOR, "hidden units m", "m^−1/2", -0.5, scaled["m"]),
        _ScalingLaw(_FLOOR, "values d", "d^1/2", 0.5, scaled["d"], tolerance=0.15),
        _ScalingLaw(_FLOOR, "records B", "B, of a mean gradient", 1.0, scaled["B"], tolerance=0.15),
    ]
    if _whole(size):
        rates = (0.3, 0.5, 0.75)
        dropped = tuple(
            (1 - p, two_layer(size, f"σ, drop {p:g}", 1, defence("gradient-dropout", p), noise))
            for p in rates
        )
        norms = (_CLIP, _CLIP / 2, _CLIP / 4)
        cut = tuple(
            (c, two_layer(size, f"σ, C = {c:g}", 1, defence("clipping", c), noise)) for c in norms
        )
        law = "(1 − p)^1/2, scaled up"
        curves += [
            _ScalingLaw(_FLOOR, "share sent (dropout)", law, 0.5, ((1.0, none), *dropped)),
            _ScalingLaw(_FLOOR, "clipping norm C", "1/C", -1.0, cut, tolerance=0.01),
        ]
    return curves


def _pruned(size: GradientSize, before: str, *noise: Tables) -> _Points:
    shares = (0.5, 0.9, 0.99) if _whole(size) else (0.9,)
    return tuple(
        (p, two_layer(size, f"{before}prune {p:g}", 1, defence("pruning", p), *noise))
        for p in shares
    )


def _settings(size: GradientSize) -> Sequence[Tables]:
    curves = [*_upper(size), *_lower(size)]
    every = [table for curve in curves for _, table in curve.points]
    every += [table for _, table in _pruned(size, "")]
    every += [table for _, table in _pruned(size, "σ, ", defence("noise", _SIGMA))]
    every += [
        two_layer(size, "clipped", 1, defence("clipping", _CLIP)),
        two_layer(size, "drop 0.75, ignored", 1, defence("gradient-dropout", 0.75), adaptive=False),
    ]
    return list({table["name"]: table for table in every}.values())


def _rows(size: GradientSize) -> Sequence[ClaimRow]:
    none, noised = StudyReading(_ATTACK, "B = 1"), StudyReading(_FLOOR, "σ, B = 1")
    beside = [
        ("noise .3", "larger", "noise 0.3", "above", none, "larger than without", 1.0),
        ("clipping", "× 1", "clipped", "about", none, "as without", 1.01),
        (
            *("dropout of .75, ignored", "–", "drop 0.75, ignored", "above"),
            *(
                StudyReading(_ATTACK, "drop 0.75"),
                "a larger error than with dropped entries excluded",
            ),
            1.0,
        ),
    ]
    says = "as without: the kept entries still depend on w·x alone"
    for p, table in _pruned(size, ""):
        beside.append((f"pruning {p:g}", "unknown", table["name"], "about", none, says, 1.3))
    rows = [curve.row() for curve in _upper(size)]
    for label, law, name, relation, right, says, factor in beside:
        here = StudyReading(_ATTACK, name)
        label, attack = f"attack: {label}", "features"
        check = _CHECKS.get(name, "")
        compared = (label, law, here, relation, right, says)
        rows.append(versus(*compared, factor=factor, attack=attack, check=check))
    rows += [curve.row() for curve in _lower(size)]
    for p, table in _pruned(size, "σ, "):
        relation, says, factor = "above", "larger than without", 1.0
        if p <= _SILENT:
            relation, says = "about", "as without: half of the units are inactive anyway"
            factor = 1.01
        here, law = StudyReading(_FLOOR, table["name"]), "(1 − p̂)^−1/2"
        label, attack = f"floor: pruning {p:g}", "features"
        row = versus(label, law, here, relation, noised, says, factor=factor, attack=attack)
        rows.append(row)
    return rows


def _plots(size: GradientSize) -> Sequence[Plot]:
    across = "how many times the first"
    return [
        Lines(
            *("attack", "Residual of a record after the moments, along each axis of Table 1"),
            *(across, "share of the record left"),
            tuple(curve.line() for curve in _upper(size)),
            *(True, True),
        ),
        Lines(
            *("floor", "The Cramér–Rao floor along each axis of Table 1"),
            *(across, "RMSE of an unbiased attack, at least"),
            tuple(curve.line() for curve in _lower(size)),
            *(True, True),
        ),
    ]


BOUNDS = GradientPart(
    name="bounds",
    headlines=("attack: records B from 1 to 8",),
    reference="section 3, Table 1",
    title="the scaling laws, measured",
    sizes=sizes(
        replace(TWO_LAYER, shrink=2, batches=32, values=(0.25, 1, 4)),
        replace(TWO_LAYER, shrink=8, batches=12, values=(0.25, 1, 4, 16)),
        replace(TWO_LAYER, data="fashion-mnist-small", shrink=4, batches=6, values=(1, 4)),
    ),
    minutes=minutes("2 h", "3 min"),
    settings=_settings,
    rows=_rows,
    plots=_plots,
    attacks=("features",),
    metrics=("span",),
    note=(
        "Upper laws are for the tensor attack's error (as a share of the record's length); "
        "lower laws are for the Cramér–Rao floor on the root mean squared error of an unbiased "
        "attack. A slope is the slope of the logarithms between the ends of a curve. The "
        "paper's floor is for a summed gradient; ours is for the mean, so noise counts B times. "
        "The floor grows faster than that, which is possible for a lower bound, but not for a "
        "tight one. Dropout removes entries of the gradient and scales up the others, so later "
        "noise matters less. Its law holds for an attack that excludes the dropped entries; an "
        "attack that treats them as zeros adds the whole entry as noise, including its mean and "
        "first order."
    ),
)
