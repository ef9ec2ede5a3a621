"""Table 1 and Figures 1–9: where the bilevel search and the KKT search end, from three starts."""

from __future__ import annotations

from dataclasses import replace

from exhume.studies.claims import ClaimRow, versus
from exhume.studies.part import Picture, Tables, minutes, sizes
from exhume.studies.reading import StudyReading
from exhume.studies.runkel2024.common import (
    AFFINE,
    AT_THE_TRUTH,
    BUZAGLO,
    FULL,
    LAPTOP,
    SMOKE,
    STARTS,
    TABLE_1,
    WeightsPart,
    bilevel,
    distance,
    hidden,
    kkt,
    nearer,
)

_SHARE = "parameters' squared distance, a share"
_TRAINING = "distance to the nearest training image"


def _read(quantity: str, name: str) -> StudyReading:
    return StudyReading(f"{quantity}.mean", name, ended=False)


def _table_1(kind: str) -> list[ClaimRow]:
    """Table 1: the distance between the release and training on the results."""
    ends = {start: _read("parameters", f"{kind}, {start}") for start in TABLE_1[kind]}
    near = "training on the results ends near the release"
    return [
        *(
            versus(
                f"{kind}, {start} start: {_SHARE}",
                *(figure, ends[start], "below", 0.01, near),
                attack="bilevel",
                check=AT_THE_TRUTH if start == "ground truth" else "",
            )
            for start, figure in TABLE_1[kind].items()
        ),
        versus(
            f"{kind}: parameters from a random start against the truth",
            *(TABLE_1[kind]["random"], ends["random"], "below", ends["ground truth"]),
            "a random start fits the parameters best",
            attack="bilevel",
        ),
    ]


def _figures(kind: str) -> list[ClaimRow]:
    """Figures 1 to 4: the result is nearest to the start."""
    random, truth, partition = (distance(f"{kind}, {start}", "training") for start in TABLE_1[kind])
    return [
        versus(
            f"{kind}, ground truth start: {_TRAINING}",
            *("stays", truth, "below", random, "far nearer than from a random start"),
            attack="bilevel",
            times=0.5,
            check=AT_THE_TRUTH,
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
            f"{kind}, random start: {_TRAINING}",
            *("noise", random, "above", partition, "farther than the partition ends"),
            attack="bilevel",
        ),
    ]


INITIALISATION = WeightsPart(
    name="initialisation",
    headlines=(
        "affine, partition start: distance to the nearest of the partition",
        "hidden, partition start: distance to the nearest of the partition",
    ),
    reference="section 4.3, Table 1, Figures 1–4",
    title="three starts of the bilevel search",
    sizes=sizes(FULL, replace(LAPTOP, releases=3), replace(SMOKE, steps=6)),
    minutes=minutes("months", "8 min"),
    settings=lambda size: [
        bilevel(size, f"{kind}, {start}", network, table)
        for kind, network in (("affine", AFFINE), ("hidden", hidden(size)))
        for start, table in STARTS.items()
    ],
    rows=lambda size: [row for kind in TABLE_1 for row in (*_table_1(kind), *_figures(kind))],
    attacks=("bilevel",),
    metrics=("rmse", "ncc"),
    pictures=(
        Picture(
            "An affine classifier, started at another partition: training image, result, "
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
        "The ground truth start gives the training images to the search. It asks whether the "
        "search ends there, and is not an attack. The paper does not state the number of "
        "training images. Published distances of parameters are absolute; measured ones are "
        "shares of the released parameters' squared length. Distances of images are root mean "
        "squares. Every training within the search starts at the released parameters and runs "
        "to convergence. If it starts at the end of the previous one, it drifts into another "
        "minimum and stays there. If it starts at random parameters, as in the paper, two "
        "trainings of one hidden layer on the same images may end at different parameters. With "
        "one hidden layer, a search may stall, and one stalled run dominates the mean."
    ),
)

_KKT_STARTS: dict[str, Tables] = {
    **STARTS,
    "random": {"noise": 1.0, "deviation": 1.0},
    "tuned": {"noise": 1.0, "deviation": 0.1},
}
_WITHIN = "within the span, "


def _kkt_rows() -> list[ClaimRow]:
    ncc = {start: _read("ncc", start) for start in _KKT_STARTS}
    resembles = "correlation with the training images"
    return [
        nearer(
            "partition start: distance to the nearest of the partition",
            *("its own start", "partition", "shadow", "training"),
            attack="kkt",
        ),
        versus(
            "partition start: residual of stationarity, a share",
            *("converges", _read("residual", "partition"), "below", 0.1),
            "at the wrong images the objective is almost zero",
            attack="kkt",
        ),
        nearer(
            f"ground truth start: {_TRAINING}",
            *("stays", "ground truth", "training", "shadow"),
            attack="kkt",
            check=AT_THE_TRUTH,
        ),
        versus(
            f"tuned random start: {resembles}",
            *("some resemble", ncc["tuned"], "above", ncc["random"], "more than untuned noise"),
            attack="kkt",
        ),
        versus(
            f"untuned random start: {resembles}",
            *("noise", ncc["random"], "below", ncc["ground truth"], "less than from the truth"),
            attack="kkt",
        ),
        versus(
            f"{_WITHIN}partition start: {_TRAINING}",
            *("not in the paper", distance(f"{_WITHIN}partition", "training"), "below"),
            *(distance("partition", "training"), "nearer than the search among all pixels"),
            attack="kkt",
            check="not in the paper",
        ),
    ]


DECORECO = WeightsPart(
    name="decoreco",
    headlines=("partition start: distance to the nearest of the partition",),
    reference="section 4.4, Figures 5–9",
    title="the same starts of the KKT search",
    sizes=sizes(BUZAGLO, replace(LAPTOP, releases=6), SMOKE),
    minutes=minutes("days", "4 min"),
    settings=lambda size: [
        *(kkt(size, name, start) for name, start in _KKT_STARTS.items()),
        *(
            kkt(size, _WITHIN + name, _KKT_STARTS[name], within_span=True)
            for name in ("partition", "tuned")
        ),
    ],
    rows=lambda size: _kkt_rows(),
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
        "Two hidden layers with biases, and a search among all pixels, as in the paper; ours "
        "uses Adam with learning rates chosen by the objective alone. The paper searches for "
        "two candidates per training image; below its scale it is one, so that none is selected "
        "for its similarity. Random starts are Gaussian around the mean value of the "
        "adversary's own images, with deviation 1 (untuned) or .1 (tuned). The search within "
        "the span of the first layer's rows, which contains the training images, is Exhume's "
        "own: a start is first projected on it."
    ),
)
