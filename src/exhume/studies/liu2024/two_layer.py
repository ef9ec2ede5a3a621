"""Table 2: the two-layer network of the theory, and its features under defences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Row
from exhume.studies.liu2024.common import (
    PAPER,
    GradientSize,
    batches,
    data,
    versus,
)
from exhume.studies.plots import Line, Lines, Plot
from exhume.studies.run import Reading

_VALUES = {"cifar-10": 3 * 32 * 32, "fashion-mnist-small": 28 * 28}
"""How many values an image has."""
TWO_LAYER = GradientSize(model="two-layer", width=32, shadow_targets=300)
"""``width`` is how many hidden units there are for each value: 512 · 32 in appendix F."""


def two_layer(
    size: Size,
    name: str,
    batch: int,
    *defences: Tables,
    fit: bool = False,
    adaptive: bool = True,
    **others: Any,
) -> Tables:
    """Return a batch's gradient of the two-layer network, for the feature attack.

    The images themselves stand for features. Values may leave [0, 1], so that nothing of what came
    out is cut off: the moments tell directions, whatever their sign.
    """
    assert isinstance(size, GradientSize)
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


def values(size: Size) -> int:
    """Return d, how many values a record has."""
    assert isinstance(size, GradientSize)
    return _VALUES[size.data] // size.shrink**2


_TABLE_2: dict[str, dict[int, float]] = {
    "": {1: 0.171, 2: 0.171, 4: 0.174, 8: 0.175},
    "prune .3": {1: 0.173, 2: 0.171, 4: 0.186, 8: 0.188},
    "prune .5": {1: 0.173, 2: 0.218, 4: 0.277, 8: 0.266},
    "prune .7": {1: 0.248, 2: 0.443, 4: 0.483, 8: 0.425},
    "clip 2": {1: 0.173, 2: 0.169, 4: 0.174, 8: 0.179},
    "clip 4": {1: 0.173, 2: 0.169, 4: 0.175, 8: 0.179},
    "clip 8": {1: 0.173, 2: 0.170, 4: 0.177, 8: 0.179},
    "noise .001": {1: 0.172, 2: 0.166, 4: 0.190, 8: 0.198},
    "noise .01": {1: 0.174, 2: 0.252, 4: 0.252, 8: 0.499},
    "noise .1": {1: 0.259, 2: 0.850, 4: 0.714, 8: 0.953},
}
"""The feature reconstruction error by defence and batch size."""
_LITTLE = 1.2
"""Errors within this factor of each other count as alike."""


def _grid() -> dict[str, list[Tables]]:
    pruned = {f"prune .{n}": [{"name": "pruning", "share": n / 10}] for n in (3, 5, 7)}
    clipped = {f"clip {n}": [{"name": "clipping", "norm": float(n)}] for n in (2, 4, 8)}
    sizes = {".001": 0.001, ".01": 0.01, ".1": 0.1}
    noisy = {f"noise {text}": [{"name": "noise", "size": s}] for text, s in sizes.items()}
    return {**pruned, **clipped, **noisy}


_FITTED = ("prune .7", "noise .1")
"""Defences under which a fit goes on from the moments."""
_IGNORED = "prune .7"
"""The one under which a fit is also made that takes zeros for zeros."""


def _feature_settings(size: Size) -> Sequence[Tables]:
    grid = _grid()
    fitted = {name: grid[name] for name in _FITTED}
    return [
        *(two_layer(size, f"B={b}", b, grid=grid, adaptive=False) for b in batches(size)),
        *(two_layer(size, f"fit, B={b}", b, fit=True, grid=fitted) for b in batches(size)),
        *(_ignoring(size, b, grid[_IGNORED]) for b in batches(size)),
    ]


def _ignoring(size: Size, b: int, defences: list[Tables]) -> Tables:
    name = f"fit, ignoring, B={b}, {_IGNORED}"
    return two_layer(size, name, b, *defences, fit=True, adaptive=False)


def _named(name: str, defence: str) -> str:
    return f"{name}, {defence}" if defence else name


def _left(name: str) -> Reading:
    return Reading("span.mean", name, ended=False)


def _feature_rows(size: Size) -> Sequence[Row]:
    rows = [
        _feature_row(b, defence, figures)
        for defence, figures in _TABLE_2.items()
        for b in batches(size)
    ]
    few, many = batches(size)[0], batches(size)[-1]
    if few != many:
        for defence in ("", "prune .7", "noise .1"):
            figures = _TABLE_2[defence]
            left, right = (_left(_named(f"B={b}", defence)) for b in (many, few))
            label = f"{defence or 'no defence'}: batch of {many} against {few}"
            rows.append(versus(label, figures[many], left, "above", right, "grows with the batch"))
    rows += [_fit_row(b, defence) for defence in ("", *_FITTED) for b in batches(size)]
    rows += [_ignoring_row(b) for b in batches(size)]
    return [replace(row, claim=replace(row.claim, attacks=("features",))) for row in rows]


def _feature_row(b: int, defence: str, figures: dict[int, float]) -> Row:
    """What the paper says of a defence: clipping does nothing, strong noise and pruning do."""
    here, none = _left(_named(f"B={b}", defence)), _left(f"B={b}")
    label, published = f"batch of {b}, {defence or 'no defence'}", figures[b]
    if not defence:
        return versus(label, published, here, "below", 0.5, "the features' span comes out")
    if figures[b] < _LITTLE * _TABLE_2[""][b]:
        return versus(label, published, here, "about", none, "as without", factor=_LITTLE)
    says = "more is left than without"
    return versus(label, published, here, "above", none, says, factor=1 / _LITTLE)


def _fit_row(b: int, defence: str) -> Row:
    here, there = (_left(_named(f"{how}B={b}", defence)) for how in ("fit, ", ""))
    says = "less is left than by the paper's attack"
    label = f"batch of {b}, {defence or 'no defence'}: a fit from there"
    return versus(label, "–", here, "below", there, says)


def _ignoring_row(b: int) -> Row:
    here, there = (_left(f"{how}B={b}, {_IGNORED}") for how in ("fit, ignoring, ", "fit, "))
    says = "more is left than by a fit that leaves zeros out"
    label = f"batch of {b}, {_IGNORED}: a fit that ignores it"
    return versus(label, "–", here, "above", there, says)


def _plots(size: Size) -> Sequence[Plot]:
    """Table 2 as curves over the batch size."""
    lines = [
        Line(
            defence or "no defence",
            tuple((b, _left(_named(f"B={b}", defence))) for b in batches(size)),
            attack="features",
        )
        for defence in ("", "clip 2", "prune .5", "prune .7", "noise .01", "noise .1")
    ]
    caption = "What the moments leave of a record, by batch size and defence"
    return [Lines("features", caption, "records B", "share left", tuple(lines), log_x=True)]


FEATURES = Part(
    paper=PAPER,
    name="features",
    reference="section 5.2, Table 2",
    title="features under defences",
    sizes=sizes(
        replace(TWO_LAYER, shrink=2, batches=6, values=(1, 2, 4, 8)),
        replace(TWO_LAYER, shrink=8, batches=6, values=(1, 2, 4, 8)),
        replace(TWO_LAYER, data="fashion-mnist-small", shrink=7, batches=2, values=(1, 2)),
    ),
    minutes=minutes("2 h", "3 min"),
    settings=_feature_settings,
    rows=_feature_rows,
    plots=_plots,
    attacks=("features",),
    metrics=("span",),
    note=(
        "Measured is what the span of the recovered records leaves of a record of norm 1, as in "
        "the paper. The images themselves are the two-layer network's records, with 32 hidden "
        "units for each value as in the paper, whose records are a ResNet's 512 features. The "
        "moments take the release as it is, as the paper's do, and each layer is pruned by "
        "itself, as in the code that the paper builds on. Pruning hardly hurts them: what it "
        "leaves of a unit's gradient still depends on the records through w·x alone, so Stein's "
        "identity holds as before. A fit goes further, if it knows which zeros are a defence's. "
        "Local aggregation is left out: the attack reads one gradient."
    ),
)
