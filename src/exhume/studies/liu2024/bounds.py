"""Table 1: how the error grows with d, m, B and with a defence's strength, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Row
from exhume.studies.liu2024.common import PAPER, GradientSize
from exhume.studies.liu2024.two_layer import TWO_LAYER, two_layer, values
from exhume.studies.plots import Line, Lines, Plot
from exhume.studies.run import Reading

_SIGMA = 1e-3
_CLIP = 0.05
"""A norm that every gradient here is longer than."""
_SILENT = 0.5
"""The share of ReLUs silent on one record: p̂ of pruning as many was 0 to .006 on three records."""
_ATTACK, _FLOOR = "span.mean", "floor"
_Points = tuple[tuple[float, Tables], ...]


@dataclass(frozen=True)
class _Curve:
    """A quantity along one axis, and what Table 1 says of it.

    ``points`` are pairs of a place and a setting; between the ends the error must go with the power
    ``slope`` of the place, to within ``tolerance`` of the slope. A ``relation`` of below is that
    of an upper bound: the error may grow less.
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

    def reading(self, place: int) -> Reading:
        return Reading(self.quantity, self.points[place][1]["name"])

    def row(self) -> Row:
        """The far end against the near one."""
        begin, end = self.points[0][0], self.points[-1][0]
        stretch = end / begin
        factor = round(max(stretch, 1 / stretch) ** self.tolerance, 2)
        how = {"about": f"within {self.tolerance:g}", "below": "at most"}
        says = f"slope {self.slope:g} {how[self.relation]}"
        claim = Claim(
            *(self.reading(-1), self.relation, self.reading(0), says),
            factor=factor if self.relation == "about" else 1.0,
            times=stretch**self.slope,
            attacks=("features",),
        )
        label = f"{self.who}: {self.axis} from {begin:g} to {end:g}"
        return Row(label, self.law, self.reading(-1), claim)

    def line(self) -> Line:
        """Readings over the strength relative to the first point."""
        begin = self.points[0][0]
        found = tuple((x / begin, self.reading(i)) for i, (x, _) in enumerate(self.points))
        return Line(self.axis, found, attack="features")


def _noise(size: float) -> Tables:
    return {"name": "noise", "size": size}


def _drop(rate: float) -> Tables:
    return {"name": "gradient-dropout", "rate": rate}


def _prune(share: float) -> Tables:
    return {"name": "pruning", "share": share}


def _clip(norm: float) -> Tables:
    return {"name": "clipping", "norm": norm}


def _whole(size: Size) -> bool:
    """Tell whether all points are run; at smoke scale the ends are."""
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


def _upper(size: GradientSize) -> list[_Curve]:
    scaled = _scaled(size, "")
    none = scaled["B"][0][1]
    rates = (0.3, 0.5, 0.75) if _whole(size) else (0.75,)
    kept = ((1.0, none), *((1 - p, two_layer(size, f"drop {p:g}", 1, _drop(p))) for p in rates))
    sizes = (0.03, 0.1, 0.3) if _whole(size) else (0.1, 0.3)
    noisy = tuple((s, two_layer(size, f"noise {s:g}", 1, _noise(s))) for s in sizes)
    return [
        _Curve(_ATTACK, "hidden units m", "m^−1/2", -0.5, scaled["m"]),
        _Curve(_ATTACK, "values d", "d^1/2", 0.5, scaled["d"], tolerance=0.15),
        _Curve(_ATTACK, "records B", "B at most", 1.0, scaled["B"], relation="below"),
        _Curve(_ATTACK, "share sent (dropout)", "(1 − p)^−1/2", -0.5, kept, tolerance=0.2),
        _Curve(_ATTACK, "noise σ₀", "B + σ₀ at most", 1.0, noisy, relation="below"),
    ]


def _lower(size: GradientSize) -> list[_Curve]:
    scaled = _scaled(size, "σ, ", _noise(_SIGMA))
    noise = _noise(_SIGMA)
    times = (0.1, 1.0, 10.0) if _whole(size) else (1.0, 10.0)
    noisy = tuple((t * _SIGMA, two_layer(size, f"{t:g}σ", 1, _noise(t * _SIGMA))) for t in times)
    none = scaled["B"][0][1]
    curves = [
        _Curve(_FLOOR, "noise σ", "σ", 1.0, noisy, tolerance=0.01),
        _Curve(_FLOOR, "hidden units m", "m^−1/2", -0.5, scaled["m"]),
        _Curve(_FLOOR, "values d", "d^1/2", 0.5, scaled["d"], tolerance=0.15),
        _Curve(_FLOOR, "records B", "B, of a mean gradient", 1.0, scaled["B"], tolerance=0.15),
    ]
    if _whole(size):
        rates = (0.3, 0.5, 0.75)
        dropped = tuple(
            (1 - p, two_layer(size, f"σ, drop {p:g}", 1, _drop(p), noise)) for p in rates
        )
        norms = (_CLIP, _CLIP / 2, _CLIP / 4)
        cut = tuple((c, two_layer(size, f"σ, C = {c:g}", 1, _clip(c), noise)) for c in norms)
        law = "(1 − p)^1/2, scaled up"
        curves += [
            _Curve(_FLOOR, "share sent (dropout)", law, 0.5, ((1.0, none), *dropped)),
            _Curve(_FLOOR, "clipping norm C", "1/C", -1.0, cut, tolerance=0.01),
        ]
    return curves


def _pruned(size: GradientSize, before: str, *noise: Tables) -> _Points:
    shares = (0.5, 0.9, 0.99) if _whole(size) else (0.9,)
    return tuple((p, two_layer(size, f"{before}prune {p:g}", 1, _prune(p), *noise)) for p in shares)


def _settings(size: Size) -> Sequence[Tables]:
    assert isinstance(size, GradientSize)
    curves = [*_upper(size), *_lower(size)]
    every = [table for curve in curves for _, table in curve.points]
    every += [table for _, table in _pruned(size, "")]
    every += [table for _, table in _pruned(size, "σ, ", _noise(_SIGMA))]
    every += [
        two_layer(size, "clipped", 1, _clip(_CLIP)),
        two_layer(size, "drop 0.75, ignored", 1, _drop(0.75), adaptive=False),
    ]
    return list({table["name"]: table for table in every}.values())


def _versus(
    label: str, law: str, left: Reading, relation: str, right: Reading, says: str, factor: float
) -> Row:
    claim = Claim(left, relation, right, says, factor=factor, attacks=("features",))
    return Row(label, law, left, claim)


def _rows(size: Size) -> Sequence[Row]:
    assert isinstance(size, GradientSize)
    none, noised = Reading(_ATTACK, "B = 1"), Reading(_FLOOR, "σ, B = 1")
    rows = [curve.row() for curve in _upper(size)]
    rows += [
        _versus(
            *("attack: noise .3", "larger", Reading(_ATTACK, "noise 0.3"), "above", none),
            *("larger than without", 1.0),
        ),
        _versus(
            *("attack: clipping", "× 1", Reading(_ATTACK, "clipped"), "about", none),
            *("as without", 1.01),
        ),
        _versus(
            "attack: dropout of .75, ignored",
            *("–", Reading(_ATTACK, "drop 0.75, ignored"), "above", Reading(_ATTACK, "drop 0.75")),
            *("more is left than by one that leaves holes out", 1.0),
        ),
    ]
    for p, table in _pruned(size, ""):
        here = Reading(_ATTACK, table["name"])
        says = "as without: what is left still depends on w·x alone"
        rows.append(_versus(f"attack: pruning {p:g}", "unknown", here, "about", none, says, 1.3))
    rows += [curve.row() for curve in _lower(size)]
    for p, table in _pruned(size, "σ, "):
        here = Reading(_FLOOR, table["name"])
        label, law = f"floor: pruning {p:g}", "(1 − p̂)^−1/2"
        if p > _SILENT:
            rows.append(_versus(label, law, here, "above", noised, "larger than without", 1.0))
        else:
            says = "as without: half of the units are silent anyway"
            rows.append(_versus(label, law, here, "about", noised, says, 1.01))
    return rows


def _plots(size: Size) -> Sequence[Plot]:
    assert isinstance(size, GradientSize)
    across = "how many times the first"
    return [
        Lines(
            *("attack", "What the moments leave of a record, along each axis of Table 1"),
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


BOUNDS = Part(
    paper=PAPER,
    name="bounds",
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
        "Upper laws are of the tensor attack's error (a share of the record's length), lower ones "
        "of the Cramér–Rao floor on the root mean squared error of an unbiased attack; a slope is "
        "that of the logarithms between the ends of a curve. The paper's floor is for a summed "
        "gradient; ours is the mean, so noise counts B times; the floor grows faster than "
        "that, which a lower bound allows and a tight one does not. Dropout is of the gradient's "
        "entries, and scales up those it sends: noise that is added afterwards weighs less. Its "
        "law holds for an attack that leaves the holes out; taken for zeros, they bring in the "
        "whole entry as noise, its mean and first order too."
    ),
)
