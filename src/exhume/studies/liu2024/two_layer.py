"""Table 2: the two-layer network of the theory, and its features under defences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from exhume.studies.claims import ClaimRow, versus
from exhume.studies.liu2024.common import (
    GradientPart,
    GradientSize,
    batches,
    data,
    named,
)
from exhume.studies.liu2024.published import DEFENCES, TABLE_2
from exhume.studies.part import Tables, minutes, sizes
from exhume.studies.plots import Lines, Plot, PlotLine
from exhume.studies.reading import StudyReading

_VALUES = {"cifar-10": 3 * 32 * 32, "fashion-mnist-small": 28 * 28}
"""The number of values in an image."""
TWO_LAYER = GradientSize(model="two-layer", width=32, shadow_targets=300)
"""``width`` is the number of hidden units per value: 512 · 32 in appendix F."""


def two_layer(
    size: GradientSize,
    name: str,
    batch: int,
    *defences: Tables,
    fit: bool = False,
    adaptive: bool = True,
    **others: Any,
) -> Tables:
    """Return a batch's gradient of the two-layer network, for the feature attack.

    The images themselves are the features. Values may leave [0, 1], so that reconstructions are not
    clipped: the moments determine directions up to their sign.
    """
    width = size.width * values(size)
    release = {"kind": "gradient", "model": "two-layer", "batch_size": batch, "width": width}
    return {
        "name": name,
        "targets": batch * size.batches,
        "data": data(size),
        "release": {**release, "defences": list(defences)},
        "knowledge": {"labels": True, "value_range": [-10.0, 10.0]},
        "options": {"features": {"fit": fit, "adaptive": adaptive}},
        **others,
    }


def values(size: GradientSize) -> int:
    """Return d, the number of values in a record."""
    return _VALUES[size.data] // size.shrink**2


_LITTLE = 1.2
"""Errors within this factor of each other count as equal."""


_GRID = {name: [DEFENCES[name]] for name in TABLE_2 if name}
_FITTED = ("prune .7", "noise .1")
"""Defences under which a fit continues from the moments."""
_IGNORED = "prune .7"
"""The defence under which a second fit treats zeros as the gradient's own."""


def _settings(size: GradientSize) -> Sequence[Tables]:
    fitted = {name: _GRID[name] for name in _FITTED}
    ignored = {"fit": True, "adaptive": False}
    return [
        *(two_layer(size, f"B={b}", b, grid=_GRID, adaptive=False) for b in batches(size)),
        *(two_layer(size, f"fit, B={b}", b, fit=True, grid=fitted) for b in batches(size)),
        *(
            two_layer(size, f"fit, ignoring, B={b}, {_IGNORED}", b, *_GRID[_IGNORED], **ignored)
            for b in batches(size)
        ),
    ]


def _left(group: str, defence: str = "") -> StudyReading:
    return StudyReading("span.mean", named(group, defence), ended=False)


def _rows(size: GradientSize) -> Sequence[ClaimRow]:
    rows = [_row(b, defence) for defence in TABLE_2 for b in batches(size)]
    few, many = batches(size)[0], batches(size)[-1]
    if few != many:
        rows += [
            versus(
                f"{defence or 'no defence'}: batch of {many} against {few}",
                *(TABLE_2[defence][many], _left(f"B={many}", defence), "above"),
                *(_left(f"B={few}", defence), "grows with the batch"),
                attack="features",
            )
            for defence in ("", "prune .7", "noise .1")
        ]
    rows += [
        versus(
            f"batch of {b}, {defence or 'no defence'}: a fit from there",
            *("–", _left(f"fit, B={b}", defence), "below", _left(f"B={b}", defence)),
            "a smaller error than the paper's attack",
            attack="features",
            check="our own fit",
        )
        for defence in ("", *_FITTED)
        for b in batches(size)
    ]
    return rows + [
        versus(
            f"batch of {b}, {_IGNORED}: a fit that ignores it",
            *("–", _left(f"fit, ignoring, B={b}", _IGNORED), "above"),
            *(_left(f"fit, B={b}", _IGNORED), "a larger error than a fit that excludes zeros"),
            attack="features",
            check="our own fit",
        )
        for b in batches(size)
    ]


def _row(b: int, defence: str) -> ClaimRow:
    """Return Table 2's row: clipping has no effect, strong noise and pruning have one."""
    here, none = _left(f"B={b}", defence), _left(f"B={b}")
    published, without = TABLE_2[defence][b], TABLE_2[""][b]
    right: StudyReading | float
    if not defence:
        relation, right, says, factor = "below", 0.5, "the features' span is recovered", 1.0
    elif published < _LITTLE * without:
        relation, right, says, factor = "about", none, "as without", _LITTLE
    else:
        relation, right, says, factor = "above", none, "a larger error than without", 1 / _LITTLE
    return versus(
        f"batch of {b}, {defence or 'no defence'}",
        *(published, here, relation, right, says),
        factor=factor,
        attack="features",
        check="restatement: only the gradient's length" if defence.startswith("clip") else "",
        cell=(defence or "no defence", f"B = {b}"),
    )


def _plots(size: GradientSize) -> Sequence[Plot]:
    """Table 2 as curves over the batch size."""
    lines = [
        PlotLine(
            defence or "no defence",
            tuple((b, _left(f"B={b}", defence)) for b in batches(size)),
            attack="features",
        )
        for defence in ("", "clip 2", "prune .5", "prune .7", "noise .01", "noise .1")
    ]
    caption = "Residual of a record after the moments, by batch size and defence"
    return [Lines("features", caption, "records B", "share left", tuple(lines), log_x=True)]


FEATURES = GradientPart(
    name="features",
    headlines=("batch of 4, no defence",),
    reference="section 5.2, Table 2",
    title="features under defences",
    sizes=sizes(
        replace(TWO_LAYER, shrink=2, batches=6, values=(1, 2, 4, 8)),
        replace(TWO_LAYER, shrink=8, batches=6, values=(1, 2, 4, 8)),
        replace(TWO_LAYER, data="fashion-mnist-small", shrink=7, batches=2, values=(1, 2)),
    ),
    minutes=minutes("2 h", "3 min"),
    settings=_settings,
    rows=_rows,
    plots=_plots,
    attacks=("features",),
    metrics=("span",),
    note=(
        "The measure is the part of a record of norm 1 outside the span of the recovered "
        "records, as in the paper. The images themselves are the records of the two-layer "
        "network, with 32 hidden units per value as in the paper, where the records are 512 "
        "features of a ResNet. The moments do not adapt to the defence, like the paper's, and "
        "each layer is pruned separately, as in the code that the paper builds on. Pruning "
        "hardly affects the moments: the kept part of a unit's gradient still depends on the "
        "records through w·x alone, so Stein's identity still holds. A fit is more accurate, if "
        "it knows which zeros come from a defence. Local aggregation is omitted, because the "
        "attack reads one gradient."
    ),
)
