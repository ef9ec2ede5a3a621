"""Table 1: how the error grows with d, m, B and with a defence's strength, both ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Size, Tables
from exhume.studies.claims import Claim, Row
from exhume.studies.liu2024.common import PAPER, GradientSize, minutes, sizes
from exhume.studies.liu2024.two_layer import TWO_LAYER, two_layer
from exhume.studies.run import Reading

_SIGMA = 1e-3
_DROP = 0.75
_CLIP = 0.05
"""A norm that every gradient here is longer than."""


def _noise(size: float) -> Tables:
    return {"name": "noise", "size": size}


def _clip(norm: float) -> Tables:
    return {"name": "clipping", "norm": norm}


def _settings(size: Size) -> Sequence[Tables]:
    assert isinstance(size, GradientSize)
    wide, fine = replace(size, width=4 * size.width), _finer(size)
    drop = {"name": "gradient-dropout", "rate": _DROP}
    pruned = {"name": "pruning", "share": 0.9}
    upper = [
        two_layer(size, "m, d", 1),
        two_layer(wide, "4m, d", 1),
        two_layer(fine, "m, 4d", 1),
        two_layer(size, "B = 4", 4),
        two_layer(size, "clipped", 1, _clip(_CLIP)),
        two_layer(size, "noise .1", 1, _noise(0.1)),
        two_layer(size, "dropout", 1, drop),
    ]
    lower = [
        two_layer(size, "σ", 1, _noise(_SIGMA)),
        two_layer(size, "10σ", 1, _noise(10 * _SIGMA)),
        two_layer(wide, "σ, 4m", 1, _noise(_SIGMA)),
        two_layer(fine, "σ, 4d", 1, _noise(_SIGMA)),
        two_layer(size, "σ, B = 4", 4, _noise(_SIGMA)),
        two_layer(size, "σ, pruned", 1, pruned, _noise(_SIGMA)),
    ]
    return [*upper, *lower, *_clipped(size)]


def _clipped(size: Size) -> list[Tables]:
    """Floors under clipping, which take ten seconds each: not at smoke scale."""
    if size.data != "cifar-10":
        return []
    return [
        two_layer(size, name, 1, _clip(norm), _noise(_SIGMA))
        for name, norm in (("σ, C", _CLIP), ("σ, C/2", _CLIP / 2))
    ]


def _finer(size: GradientSize) -> GradientSize:
    """Return images of four times as many pixels, before as many hidden units."""
    return replace(size, shrink=size.shrink // 2, width=size.width // 4)


def _law(
    label: str, law: str, quantity: str, name: str, base: str, times: float, factor: float
) -> Row:
    """A row of which the paper says how many times the error of ``base`` it is."""
    left, right = Reading(quantity, name), Reading(quantity, base)
    says = f"{times:.3g} times as large"
    claim = Claim(left, "about", right, says, factor=factor, times=times, attacks=("features",))
    return Row(label, law, left, claim)


def _more(label: str, law: str, quantity: str, name: str, base: str) -> Row:
    left, right = Reading(quantity, name), Reading(quantity, base)
    claim = Claim(left, "above", right, "larger", attacks=("features",))
    return Row(label, law, left, claim)


def _rows(size: Size) -> Sequence[Row]:
    root = 1 / math.sqrt(1 - _DROP)
    up, low = "span.mean", "floor"
    batch = Claim(
        *(Reading(up, "B = 4"), "below", Reading(up, "m, d"), "at most B times as large"),
        times=4.0,
        attacks=("features",),
    )
    rows = [
        _law("attack: four times the hidden units", "× 1/2", up, "4m, d", "m, d", 0.5, 1.3),
        _law("attack: four times the values", "× 2", up, "m, 4d", "m, d", 2.0, 1.3),
        Row("attack: batch of 4 against 1", "× 4 at most", Reading(up, "B = 4"), batch),
        _law("attack: clipping", "× 1", up, "clipped", "m, d", 1.0, 1.01),
        _more("attack: noise .1", "(B + σ₀) / B", up, "noise .1", "m, d"),
        _law(f"attack: dropout of {_DROP}", f"× {root:g}", up, "dropout", "m, d", root, 1.3),
        _law("floor: ten times the noise", "× 10", low, "10σ", "σ", 10.0, 1.01),
        _law("floor: four times the hidden units", "× 1/2", low, "σ, 4m", "σ", 0.5, 1.2),
        _law("floor: four times the values", "× 2", low, "σ, 4d", "σ", 2.0, 1.3),
        _law(
            "floor: batch of 4 against 1, mean gradient",
            *("× 4", low, "σ, B = 4", "σ", 4.0, 1.3),
        ),
        _more("floor: pruning .9", "× 1 / √(1 − p̂)", low, "σ, pruned", "σ"),
    ]
    if _clipped(size):
        rows += [
            _law("floor: half the clipping norm", "× 2", low, "σ, C/2", "σ, C", 2.0, 1.01),
            _more("floor: clipping", "× max{1, norm / C}", low, "σ, C", "σ"),
        ]
    return rows


BOUNDS = Part(
    paper=PAPER,
    name="bounds",
    reference="section 3, Table 1",
    title="the scaling laws, measured",
    sizes=sizes(
        replace(TWO_LAYER, shrink=2, batches=32),
        replace(TWO_LAYER, shrink=8, batches=12),
        replace(TWO_LAYER, data="fashion-mnist-small", shrink=4, batches=6),
    ),
    minutes=minutes("2 h", "3 min"),
    settings=_settings,
    rows=_rows,
    attacks=("features",),
    metrics=("span",),
    note=(
        "Upper laws are of the tensor attack's error (a share of the record's length), lower ones "
        "of the Cramér–Rao floor on the root mean squared error of an unbiased attack. The "
        "paper's floor is for a summed gradient; ours is the mean, so noise counts B times. "
        "Dropout is of the gradient's entries."
    ),
)
