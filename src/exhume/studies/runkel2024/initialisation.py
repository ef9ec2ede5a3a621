"""Table 1 and Figures 1–4: where the bilevel search ends, from three starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Picture, Size, Tables, minutes, sizes
from exhume.studies.claims import Row
from exhume.studies.run import Reading
from exhume.studies.runkel2024.common import (
    AFFINE,
    FULL,
    LAPTOP,
    PAPER,
    SMOKE,
    STARTS,
    bilevel,
    distance,
    hidden,
    nearer,
    versus,
)

_TABLE_1 = {
    "affine": {"random": 1.1214e-3, "ground truth": 1.3888e-3, "partition": 2.9749e-3},
    "hidden": {"random": 6.1157e-5, "ground truth": 1.7055e-3, "partition": 6.3629e-3},
}
"""Squared distance of the parameters at the end, by network and start."""


def _settings(size: Size) -> Sequence[Tables]:
    networks = {"affine": AFFINE, "hidden": hidden(size)}
    return [
        bilevel(size, f"{kind}, {start}", network, table)
        for kind, network in networks.items()
        for start, table in STARTS.items()
    ]


def _parameters(kind: str, start: str) -> Reading:
    return Reading("parameters.mean", f"{kind}, {start}", ended=False)


def _rows(size: Size) -> Sequence[Row]:
    return [row for kind in _TABLE_1 for row in (*_table(kind), *_figures(kind))]


def _table(kind: str) -> list[Row]:
    """Table 1: how far training on what came out ends from the release."""
    near = "training on what came out ends near the release"
    rows = [
        versus(
            f"{kind}, {start} start: parameters' squared distance, a share",
            *(figure, _parameters(kind, start), "below", 0.01, near),
            attack="bilevel",
        )
        for start, figure in _TABLE_1[kind].items()
    ]
    random, truth = (_parameters(kind, start) for start in ("random", "ground truth"))
    return [
        *rows,
        versus(
            f"{kind}: parameters from a random start against the truth",
            *(_TABLE_1[kind]["random"], random, "below", truth),
            "a random start fits the parameters best",
            attack="bilevel",
        ),
    ]


def _figures(kind: str) -> list[Row]:
    """Figures 1 to 4: what came out is nearest to where it began."""
    random, truth, partition = (
        distance(f"{kind}, {start}", "training")
        for start in ("random", "ground truth", "partition")
    )
    return [
        versus(
            f"{kind}, ground truth start: distance to the nearest training image",
            *("stays", truth, "below", random, "far nearer than from a random start"),
            attack="bilevel",
            times=0.5,
        ),
        nearer(
            f"{kind}, partition start: distance to the nearest of the partition",
            *("its own start", f"{kind}, partition", "shadow", "training"),
            attack="bilevel",
        ),
        nearer(
            f"{kind}, random start: distance to the nearest of its noise",
            *("noise", f"{kind}, random", "noise", "training"),
            attack="bilevel",
        ),
        versus(
            f"{kind}, random start: distance to the nearest training image",
            *("noise", random, "above", partition, "farther than the partition ends"),
            attack="bilevel",
        ),
    ]


INITIALISATION = Part(
    paper=PAPER,
    name="initialisation",
    reference="section 4.3, Table 1, Figures 1–4",
    title="three starts of the bilevel search",
    sizes=sizes(FULL, replace(LAPTOP, releases=3), replace(SMOKE, steps=6)),
    minutes=minutes("months", "8 min"),
    settings=_settings,
    rows=_rows,
    attacks=("bilevel",),
    metrics=("rmse", "ncc"),
    pictures=(
        Picture(
            "An affine classifier, started at another partition: training image, what came out, "
            "nearest image that the adversary had",
            ("affine, partition",),
            ("bilevel",),
        ),
        Picture(
            "The same, started at the training images",
            ("affine, ground truth",),
            ("bilevel",),
        ),
    ),
    note=(
        "The ground truth start hands the training images to the search: it asks whether they are "
        "where it ends, and is no attack. The paper does not say how many images it trains on. "
        "Published distances of parameters are absolute, measured ones shares of the released "
        "parameters' squared length. Distances of images are root mean squares. Every training "
        "within the search begins at the released parameters and is run to its end. Begun at the "
        "end of the one before it, it drifts into another minimum and stays there; begun at "
        "parameters drawn at random, as in the paper, two trainings of one hidden layer on the "
        "very same images need not end at the same parameters. With one hidden layer a search "
        "may get stuck, and one network that it does it on decides the mean."
    ),
)
