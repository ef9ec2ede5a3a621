"""Sections 4.3 to 5: whether an image that came out can be told from an invention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.plots import Plot, Receiver
from exhume.studies.run import Reading
from exhume.studies.runkel2024.common import (
    DECORECO,
    LAPTOP,
    PAPER,
    WeightsSize,
    alone,
    hidden,
)

_HINT = 0.75
"""An area under the ROC below this is no more than a hint at what is real."""
_QUESTIONS = {"measured": "candidates", "held_out": "given images"}


def _attacks(size: Size) -> tuple[str, ...]:
    assert isinstance(size, WeightsSize)
    return ("kkt", "row-space") if size.kkt_steps else ("row-space",)


def _settings(size: Size) -> Sequence[Tables]:
    assert isinstance(size, WeightsSize)
    options = {
        "kkt": {
            "steps": size.kkt_steps,
            "restarts": size.restarts,
            "excess": size.excess,
            "draws": 0,
        },
        "row-space": {"draws": size.draws},
    }
    return [
        alone(size, attack, hidden(size), None, attacks=[attack], options=options)
        for attack in _attacks(size)
    ]


def _rows(size: Size) -> Sequence[Row]:
    rows = []
    for attack in _attacks(size):
        rows += [_row(attack, which, what) for which, what in _QUESTIONS.items()]
        area = Reading("authenticity.measured.area", attack)
        claim = Claim(area, "below", 0.5, "no better than a coin", attacks=("",))
        rows.append(Row(f"{attack}, candidates: against a coin", "can't be told", area, claim))
    return rows


def _row(attack: str, which: str, what: str) -> Row:
    area = Reading(f"authenticity.{which}.area", attack)
    few = Needs(f"authenticity.{which}.pictures", 20, "the interval of the area is wide")
    claim = Claim(area, "below", _HINT, "no more than a hint", attacks=("",), needs=few)
    return Row(f"{attack}, {what}: area under the ROC", "can't be told", area, claim)


def _plots(size: Size) -> Sequence[Plot]:
    settings = tuple(
        (f"{attack}, {what}", f"{attack}:{which}")
        for attack in _attacks(size)
        for which, what in _QUESTIONS.items()
    )
    caption = "ROC of a judge who lacks the training images: is a candidate real, was an image one?"
    return [Receiver("roc", caption, settings)]


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
        replace(DECORECO, shadow_targets=8000, authenticity=10),
        replace(
            _SMALL, kkt_steps=1000, restarts=2, excess=2, releases=12, authenticity=8, draws=1000
        ),
        replace(
            _SMALL,
            kkt_steps=0,
            records=8,
            width=50,
            epochs=1000,
            releases=2,
            authenticity=3,
            draws=300,
            shadow_targets=100,
        ),
    ),
    minutes=minutes("months", "6 min"),
    settings=_settings,
    rows=_rows,
    plots=_plots,
    attacks=("kkt", "row-space"),
    metrics=("ncc",),
    note=(
        "The adversary trains networks on images of its own, attacks them, and learns there which "
        "candidates to believe; then it judges those of the release. 1 is told apart without "
        "error, .5 a coin. Below the paper's scale the pictures are Fashion-MNIST's, of one hidden "
        "layer. The KKT search is the paper's attack, here within the span of the first layer's "
        "rows, where more comes back; the row space's search uses the black backgrounds."
    ),
)
