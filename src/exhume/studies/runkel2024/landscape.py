"""Figures 10–12: mixtures of the three starts, and the set to which a search ends nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.claims import ClaimRow, versus
from exhume.studies.part import Tables, minutes, sizes
from exhume.studies.plots import HeatMaps, HeatPanel, Lines, Plot, PlotLine
from exhume.studies.reading import StudyReading
from exhume.studies.runkel2024.common import (
    AFFINE,
    AT_THE_TRUTH,
    BUZAGLO,
    LAPTOP,
    SMOKE,
    WeightsPart,
    WeightsSize,
    bilevel,
    distance,
    kkt,
    nearer,
)

_KINDS = ("bilevel", "kkt")
_SETS = {
    "training": "training image",
    "shadow": "image of the partition",
    "noise": "noise image",
}
_CURVES = {"training": "to training image", "shadow": "to partition", "noise": "to noise"}


def _name(kind: str, first: float, second: float) -> str:
    return f"{kind} λ₁={first:g} λ₂={second:g}"


def _settings(size: WeightsSize) -> Sequence[Tables]:
    found = []
    for second in size.values:
        for first in size.values:
            start = {"truth": float(first), "noise": 1.0 - second}
            found.append(bilevel(size, _name("bilevel", first, second), AFFINE, start))
            found.append(kkt(size, _name("kkt", first, second), start))
    return found


def _distance(kind: str, first: float, second: float, what: str = "training") -> StudyReading:
    return distance(_name(kind, first, second), what, kind)


def _rows(size: WeightsSize) -> Sequence[ClaimRow]:
    rows = [
        row for kind in _KINDS for row in (*_from_partition(kind, size), *_from_noise(kind, size))
    ]
    return [*rows, *_against(size)]


def _from_partition(kind: str, size: WeightsSize) -> list[ClaimRow]:
    """Figure 11: λ₂ = 1, from the partition's images to the training images."""
    rows, high = [], size.values[-1]
    for first in size.values:
        if first == 0.5:
            continue
        what, than = ("shadow", "training") if first < 0.5 else ("training", "shadow")
        name = _name(kind, first, high)
        label = f"{name}: distance to the nearest {_SETS[what]}"
        check = AT_THE_TRUTH if first == 1 else ""
        rows.append(nearer(label, "Fig. 11", name, what, than, attack=kind, check=check))
    return rows


def _from_noise(kind: str, size: WeightsSize) -> list[ClaimRow]:
    """Figure 12: λ₁ = 1, from noise to the training images."""
    low, high = size.values[0], size.values[-1]
    noise = _name(kind, high, low)
    label = f"{noise}: distance to the nearest noise image"
    rows = [nearer(label, "Fig. 12", noise, "noise", "training", attack=kind)]
    for second, before in zip(size.values[1:], size.values[:-1], strict=True):
        here, there = _distance(kind, high, second), _distance(kind, high, before)
        label = f"{_name(kind, high, second)}: distance to the nearest training image, Fig. 12"
        says = f"nearer than with λ₂={before:g}"
        rows.append(versus(label, "Fig. 12", here, "below", there, says, attack=kind))
    return rows


def _against(size: WeightsSize) -> list[ClaimRow]:
    """Figure 10: the two formulations against each other."""
    low, high = size.values[0], size.values[-1]
    here, there = (_distance(kind, high, high) for kind in _KINDS)
    far, farther = (_distance(kind, high, low) for kind in _KINDS)
    return [
        versus(
            "from the truth: bilevel against kkt, distance to the nearest training image",
            *("much smaller", here, "below", there, "the bilevel search stays nearer"),
            attack="bilevel",
            check=AT_THE_TRUTH,
        ),
        versus(
            "from noise: bilevel against kkt, distance to the nearest training image",
            *("increases quicker", far, "above", farther, "the bilevel search ends farther"),
            attack="bilevel",
        ),
    ]


def _plots(size: WeightsSize) -> Sequence[Plot]:
    """Figures 10 to 12: heat maps, and the curves along two of their edges."""
    return [*(_heat(kind, size) for kind in _KINDS), *_curves(size)]


def _heat(kind: str, size: WeightsSize) -> HeatMaps:
    shares = tuple(f"{share:g}" for share in size.values)
    maps = tuple(
        HeatPanel(
            f"nearest {words}",
            *(shares, shares),
            tuple(
                tuple(_distance(kind, first, second, what) for first in size.values)
                for second in size.values
            ),
        )
        for what, words in _SETS.items()
    )
    caption = (
        f"Figure 10, {kind}: mean distance of the results to the nearest image of each set; λ₁ "
        "from left to right, λ₂ from top to bottom"
    )
    return HeatMaps(f"figure-10-{kind}", caption, maps, across="λ₁", down="λ₂")


def _curves(size: WeightsSize) -> list[Lines]:
    found, high = [], size.values[-1]
    for kind in _KINDS:
        across = {
            "figure-11": ("λ₁", "from another partition (0) to the training images (1)", "shadow"),
            "figure-12": ("λ₂", "from noise (0) to the training images (1)", "noise"),
        }
        for name, (axis, words, other) in across.items():
            lines = tuple(
                PlotLine(
                    _CURVES[what],
                    tuple(
                        (share, _distance(kind, *_mixed(axis, share, high), what))
                        for share in size.values
                    ),
                    attack=kind,
                )
                for what in ("training", other)
            )
            caption = f"{name.capitalize().replace('-', ' ')}, {kind}: starts {words}"
            found.append(Lines(f"{name}-{kind}", caption, axis, "mean distance", lines))
    return found


def _mixed(axis: str, share: float, high: float) -> tuple[float, float]:
    """Return λ₁ and λ₂ if one of them takes all its shares, and the other is 1."""
    return (share, high) if axis == "λ₁" else (high, share)


LANDSCAPE = WeightsPart(
    name="landscape",
    reference="section 4.5, Figures 10–12",
    title="mixtures of the three starts",
    sizes=sizes(BUZAGLO, replace(LAPTOP, releases=4), replace(SMOKE, steps=15, kkt_steps=30)),
    minutes=minutes("years", "10 min"),
    settings=_settings,
    rows=_rows,
    plots=_plots,
    attacks=_KINDS,
    methods=_KINDS,
    metrics=("rmse",),
    note=(
        "A start is λ₂ (λ₁ · training images + (1 − λ₁) · another partition) + (1 − λ₂) · "
        "noise, with uniform noise. The bilevel search is on an affine classifier; the KKT "
        "search is on two hidden layers among all pixels (see decoreco). Distances are root "
        "mean squares to the nearest image of the set, averaged over all results."
    ),
)
