"""Figures 5–9: where the KKT search (DecoReco) ends, from the same starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Picture, Size, Tables, minutes, sizes
from exhume.studies.claims import Row
from exhume.studies.run import Reading
from exhume.studies.runkel2024.common import (
    DECORECO as FULL,
)
from exhume.studies.runkel2024.common import (
    LAPTOP,
    PAPER,
    SMOKE,
    STARTS,
    distance,
    kkt,
    nearer,
    versus,
)

_STARTS: dict[str, Tables] = {
    **STARTS,
    "random": {"noise": 1.0, "deviation": 1.0},
    "tuned": {"noise": 1.0, "deviation": 0.1},
}
_WITHIN = "within the span, "


def _settings(size: Size) -> Sequence[Tables]:
    among_pixels = [kkt(size, name, start) for name, start in _STARTS.items()]
    within = [
        kkt(size, _WITHIN + name, _STARTS[name], within_span=True)
        for name in ("partition", "tuned")
    ]
    return [*among_pixels, *within]


def _read(quantity: str, start: str) -> Reading:
    return Reading(f"{quantity}.mean", start, ended=False)


def _rows(size: Size) -> Sequence[Row]:
    ncc = {start: _read("ncc", start) for start in _STARTS}
    return [
        nearer(
            "partition start: distance to the nearest of the partition",
            *("its own start", "partition", "shadow", "training"),
            attack="kkt",
        ),
        versus(
            "partition start: what is left of stationarity, a share",
            *("converges", _read("residual", "partition"), "below", 0.1),
            "at the wrong images the objective is almost met",
            attack="kkt",
        ),
        nearer(
            "ground truth start: distance to the nearest training image",
            *("stays", "ground truth", "training", "shadow"),
            attack="kkt",
        ),
        versus(
            "tuned random start: correlation with the training images",
            *("some resemble", ncc["tuned"], "above", ncc["random"], "more than untuned noise"),
            attack="kkt",
        ),
        versus(
            "untuned random start: correlation with the training images",
            *("noise", ncc["random"], "below", ncc["ground truth"], "less than from the truth"),
            attack="kkt",
        ),
        *_own_rows(),
    ]


def _own_rows() -> list[Row]:
    """What a search within the span of the first layer's rows makes of the same starts."""
    return [
        versus(
            f"{_WITHIN}partition start: distance to the nearest training image",
            *("not in the paper", distance(f"{_WITHIN}partition", "training"), "below"),
            *(distance("partition", "training"), "nearer than the search among all pixels"),
            attack="kkt",
        ),
    ]


DECORECO = Part(
    paper=PAPER,
    name="decoreco",
    reference="section 4.4, Figures 5–9",
    title="the same starts of the KKT search",
    sizes=sizes(FULL, replace(LAPTOP, releases=6), SMOKE),
    minutes=minutes("days", "4 min"),
    settings=_settings,
    rows=_rows,
    attacks=("kkt",),
    metrics=("rmse", "ncc"),
    pictures=(
        Picture(
            "Started at another partition: training image, the nearest candidate, nearest image "
            "that the adversary had",
            ("partition",),
            ("kkt",),
        ),
        Picture("Started at tuned noise, the same", ("tuned",), ("kkt",)),
    ),
    note=(
        "Two hidden layers with biases, and a search among all pixels, as in the paper; ours takes "
        "Adam's steps with rates that were chosen by the objective alone. The paper searches for "
        "two candidates a training image; below its scale it is one, so that none is chosen for "
        "its likeness. Random starts are Gaussian around the mean value of the adversary's own "
        "images: of deviation 1 untuned, .1 tuned. The search within the span of the first layer's "
        "rows, where the training images lie, is Exhume's own: a start is first projected on it."
    ),
)
