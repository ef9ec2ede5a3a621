"""Sections 4.3 and 5: whether an image that came out can be told from an invention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Size, Tables
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.run import Reading
from exhume.studies.runkel2024.common import (
    FULL,
    LAPTOP,
    PAPER,
    WeightsSize,
    alone,
    hidden,
    minutes,
    sizes,
)

_ATTACKS = ("kkt", "row-space")
_HINT = 0.75
"""An area under the ROC below this is no more than a hint at what is real."""


def _settings(size: Size) -> Sequence[Tables]:
    assert isinstance(size, WeightsSize)
    options = {
        "kkt": {"steps": size.steps, "restarts": size.restarts, "draws": 0},
        "row-space": {"draws": size.draws},
    }
    return [
        alone(size, attack, hidden(size), None, attacks=[attack], options=options)
        for attack in (_ATTACKS if size.steps else _ATTACKS[1:])
    ]


def _area(attack: str, which: str, *, end: str = "area") -> Reading:
    return Reading(f"authenticity.{which}.{end}", attack)


def _rows(size: Size) -> Sequence[Row]:
    assert isinstance(size, WeightsSize)
    rows = []
    for attack in _ATTACKS if size.steps else _ATTACKS[1:]:
        says = "with 95 % confidence no more than a hint"
        for which, what in (("measured", "candidates"), ("held_out", "given images")):
            few = Needs(f"authenticity.{which}.pictures", 20, "the interval of the area is wide")
            high = _area(attack, which, end="high")
            claim = Claim(high, "below", _HINT, says, attacks=("",), needs=few)
            label = f"{attack}, {what}: area under the ROC"
            rows.append(Row(label, "can't be told", _area(attack, which), claim))
    return rows


_SMALL = replace(
    LAPTOP,
    data="fashion-mnist-small",
    records=16,
    width=100,
    learning_rate=0.2,
    weight_decay=3e-3,
    epochs=3000,
    shrink=1,
)
"""Pictures with black backgrounds, of which some do come back."""

AUTHENTICITY = Part(
    paper=PAPER,
    name="authenticity",
    reference="sections 4.3, 4.4 and 5",
    title="can a real one be told from an invention?",
    sizes=sizes(
        replace(FULL, shadow_targets=8000, authenticity=10),
        replace(_SMALL, steps=0, releases=4, authenticity=5, draws=1000),
        replace(
            _SMALL,
            steps=0,
            records=8,
            width=50,
            epochs=1000,
            releases=3,
            authenticity=3,
            draws=400,
            shadow_targets=100,
        ),
    ),
    minutes=minutes("months", "5 min"),
    settings=_settings,
    rows=_rows,
    attacks=_ATTACKS,
    metrics=("ncc",),
    note=(
        "The adversary trains networks on images of its own, attacks them, and learns there which "
        "candidates to believe; then it judges those of the release. 1 is told apart without "
        "error, .5 a coin. Below the paper's scale the pictures are Fashion-MNIST's, whose black "
        "backgrounds the search of the row space uses; the paper's attack is the KKT search, which "
        "is run at its scale (--set steps=250 runs it below)."
    ),
)
