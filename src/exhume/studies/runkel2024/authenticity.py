"""Sections 4.3 to 5: whether real candidates can be distinguished from inventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.claims import ClaimRow, Needs, versus
from exhume.studies.part import Tables, minutes, sizes
from exhume.studies.plots import Plot, Receiver
from exhume.studies.reading import StudyReading
from exhume.studies.runkel2024.common import (
    BUZAGLO,
    LAPTOP,
    WeightsPart,
    WeightsSize,
    alone,
    hidden,
)

_HINT = 0.75
"""An area under the ROC curve below this is only weak evidence of what is real."""
_QUESTIONS = {"measured": "candidates", "held_out": "given images"}


def _attacks(size: WeightsSize) -> tuple[str, ...]:
    return ("kkt", "row-space") if size.kkt_steps else ("row-space",)


def _settings(size: WeightsSize) -> Sequence[Tables]:
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


def _rows(size: WeightsSize) -> Sequence[ClaimRow]:
    rows, told = [], "undecided"
    for attack in _attacks(size):
        areas = {which: StudyReading(f"authenticity.{which}.area", attack) for which in _QUESTIONS}
        rows += [
            versus(
                f"{attack}, {what}: area under the ROC",
                *(told, areas[which], "below", _HINT, "weak evidence at most"),
                needs=Needs(
                    f"authenticity.{which}.pictures", 20, "the interval of the area is wide"
                ),
            )
            for which, what in _QUESTIONS.items()
        ]
        label, says = f"{attack}, candidates: against a coin", "no better than a coin"
        rows.append(versus(label, told, areas["measured"], "below", 0.5, says))
    return rows


def _plots(size: WeightsSize) -> Sequence[Plot]:
    settings = tuple(
        (f"{attack}, {what}", f"{attack}:{which}")
        for attack in _attacks(size)
        for which, what in _QUESTIONS.items()
    )
    caption = (
        "ROC of a judge without the training images: is a candidate real, was an image trained on?"
    )
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
"""Pictures with black backgrounds, of which some are rebuilt."""

AUTHENTICITY = WeightsPart(
    name="authenticity",
    headlines=("kkt, candidates: area under the ROC",),
    reference="sections 4.3, 4.4 and 5",
    title="are real candidates distinguishable from inventions?",
    sizes=sizes(
        replace(BUZAGLO, shadow_targets=8000, authenticity=10),
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
    methods=("kkt",),
    metrics=("ncc",),
    note=(
        "The adversary trains networks on images of its own, attacks them, and learns from them "
        "which candidates to believe; then it judges those of the release. An area of 1 means "
        "separation without error, .5 means chance. Below the paper's scale the pictures are "
        "Fashion-MNIST's, and the networks have one hidden layer. The KKT search is the paper's "
        "attack, here within the span of the first layer's rows, where more pictures are "
        "rebuilt. The row-space search uses the black backgrounds."
    ),
)
