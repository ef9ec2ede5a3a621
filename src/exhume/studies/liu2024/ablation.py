"""Table 6 and Figure 4: what gradient reweighting and feature matching bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Row
from exhume.studies.liu2024.common import (
    LAPTOP,
    PAPER,
    RESNET,
    SMOKE,
    batches,
    gradient,
    matching,
    versus,
)
from exhume.studies.plots import Plane, Plot
from exhume.studies.run import Reading

_TABLE_6 = {
    4: (21.25, 22.41, 23.59),
    8: (20.71, 23.21, 23.37),
    16: (17.68, 20.01, 21.90),
    32: (15.05, 19.84, 20.69),
}
"""PSNR by batch size: without both, without feature matching, all."""
_BARE, _NO_FEATURES, _ALL = "without GR and FM", "without FM", "all parts"
_SWITCHES: dict[str, dict[str, Any]] = {
    _BARE: {"reweighting": False, "feature_matching": False},
    _NO_FEATURES: {"feature_matching": False},
    _ALL: {},
}
_FIGURE_4: dict[str, Tables] = {
    "noise .01": {"name": "noise", "size": 0.01},
    "clipping 4": {"name": "clipping", "norm": 4.0},
}


def _settings(size: Size) -> Sequence[Tables]:
    return [
        gradient(size, f"B={b}, {name}", b, options=matching(size, "liu", **switches))
        for b in batches(size)
        for name, switches in _SWITCHES.items()
    ] + _defended(size)


def _defended(size: Size) -> list[Tables]:
    """Figure 4: with and without feature matching; not at smoke scale."""
    if size.data != "cifar-10":
        return []
    b = batches(size)[0]
    found = []
    for defence, table in _FIGURE_4.items():
        for name in (_NO_FEATURES, _ALL):
            options = matching(size, "liu", **_SWITCHES[name])
            release = {"defences": [table]}
            title = f"{defence}, {name}"
            found.append(gradient(size, title, b, options=options, release=release))
    return found


def _psnr(name: str) -> Reading:
    return Reading("psnr.mean", name, ended=False)


def _rows(size: Size) -> Sequence[Row]:
    rows = []
    for b in batches(size):
        bare, partly, whole = (_psnr(f"B={b}, {name}") for name in _SWITCHES)
        first, second, third = _TABLE_6.get(b, ("–", "–", "–"))
        label = f"PSNR, batch of {b}"
        rows += [
            versus(f"{label}: {_BARE}", first, bare, "below", partly, "reweighting helps"),
            versus(f"{label}: {_NO_FEATURES}", second, partly, "below", whole, "features help"),
            versus(f"{label}: {_ALL}", third, whole, "above", bare, "both together help"),
        ]
    for defence in _FIGURE_4 if _defended(size) else ():
        without, full = (_psnr(f"{defence}, {n}") for n in (_NO_FEATURES, _ALL))
        says = "feature matching helps under this defence"
        label = f"PSNR under {defence}, batch of {batches(size)[0]}: {_ALL}"
        rows.append(versus(label, "above", full, "above", without, says))
    return [_of_the_attack(row) for row in rows]


def _of_the_attack(row: Row) -> Row:
    """Every figure here is of the one attack."""
    return replace(row, claim=replace(row.claim, attacks=("liu",)))


def _plots(size: Size) -> Sequence[Plot]:
    """Figure 4: with feature matching against without, by defence."""
    groups = [*(f"B={b}" for b in batches(size)), *(_FIGURE_4 if _defended(size) else ())]
    points = tuple(
        (group, *(replace(_psnr(f"{group}, {n}"), attack="liu") for n in (_NO_FEATURES, _ALL)))
        for group in groups
    )
    caption = "Figure 4: PSNR with feature matching against without"
    across, up = "PSNR without feature matching", "PSNR with it"
    return [Plane("features", caption, across, up, points)]


ABLATION = Part(
    paper=PAPER,
    name="ablation",
    reference="appendix I, Table 6, Figure 4",
    title="what reweighting and features bring",
    sizes=sizes(
        replace(RESNET, values=(4, 8, 16, 32)),
        replace(LAPTOP, values=(4,)),
        SMOKE,
    ),
    minutes=minutes("months", "6 min"),
    settings=_settings,
    rows=_rows,
    plots=_plots,
    attacks=("liu",),
    metrics=(),
    note=(
        "GR is gradient reweighting, FM feature matching. The adversary knows the defences of "
        "Figure 4 and simulates them. Below the paper's scale the ResNet-18 has a quarter of the "
        "width, images half the side, and five batches of 100 steps stand for 10,000."
    ),
)
