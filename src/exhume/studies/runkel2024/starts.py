"""Table 1 and Figures 1–12: what comes out depends on where the search begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Chart, Part, Picture, Size, Tables
from exhume.studies.claims import Row
from exhume.studies.run import Reading
from exhume.studies.runkel2024.common import (
    AFFINE,
    FULL,
    LAPTOP,
    PAPER,
    SMOKE,
    STARTS,
    WeightsSize,
    alone,
    distance,
    hidden,
    minutes,
    nearer,
    sizes,
    versus,
)

_TABLE_1 = {
    "affine": {"random": 1.1214e-3, "ground truth": 1.3888e-3, "partition": 2.9749e-3},
    "hidden": {"random": 6.1157e-5, "ground truth": 1.7055e-3, "partition": 6.3629e-3},
}
"""Squared distance of the parameters at the end, by network and start."""


def _bilevel(size: Size, name: str, network: Tables, start: Tables) -> Tables:
    assert isinstance(size, WeightsSize)
    options = {"bilevel": {"steps": size.steps}}
    return alone(size, name, network, start, attacks=["bilevel"], options=options)


def _initialisation(size: Size) -> Sequence[Tables]:
    networks = {"affine": AFFINE, "hidden": hidden(size)}
    return [
        _bilevel(size, f"{kind}, {start}", network, table)
        for kind, network in networks.items()
        for start, table in STARTS.items()
    ]


def _initialisation_rows(size: Size) -> Sequence[Row]:
    rows = []
    for kind, figures in _TABLE_1.items():
        truth = distance(f"{kind}, ground truth", "training")
        for start, figure in figures.items():
            name = f"{kind}, {start}"
            moved = Reading("parameters.mean", name, ended=False)
            label = f"{name} start: parameters' squared distance, a share"
            says = "training on what came out ends near the release"
            rows.append(versus(label, figure, moved, "below", 0.01, says, attack="bilevel"))
        rows += [
            versus(
                f"{kind}, ground truth start: distance to the nearest training image",
                *("stays", truth, "below", distance(f"{kind}, random", "training")),
                *("far nearer than from a random start",),
                attack="bilevel",
                times=0.5,
            ),
            nearer(
                f"{kind}, partition start: distance to the nearest of the partition",
                *("its own start", f"{kind}, partition"),
                attack="bilevel",
                training=False,
            ),
            versus(
                f"{kind}, random start: distance to the nearest training image",
                *("noise", distance(f"{kind}, random", "training"), "above"),
                *(distance(f"{kind}, partition", "training"), "farther than the partition ends"),
                attack="bilevel",
            ),
        ]
        smaller = Reading("parameters.mean", f"{kind}, random", ended=False)
        other = Reading("parameters.mean", f"{kind}, ground truth", ended=False)
        label = f"{kind}: parameters from a random start against the truth"
        says = "a random start fits the parameters best"
        rows.append(
            versus(label, figures["random"], smaller, "below", other, says, attack="bilevel")
        )
    return rows


INITIALISATION = Part(
    paper=PAPER,
    name="initialisation",
    reference="section 4.3, Table 1, Figures 1–4",
    title="three starts of the bilevel search",
    sizes=sizes(FULL, LAPTOP, SMOKE),
    minutes=minutes("months", "4 min"),
    settings=_initialisation,
    rows=_initialisation_rows,
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
        "parameters' squared length. Distances of images are root mean squares."
    ),
)


def _kkt(size: Size, name: str, start: Tables | None) -> Tables:
    assert isinstance(size, WeightsSize)
    options = {"steps": size.steps, "restarts": size.restarts, "draws": 0, "excess": 1}
    return alone(*(size, name, hidden(size), start), attacks=["kkt"], options={"kkt": options})


def _decoreco(size: Size) -> Sequence[Tables]:
    starts = {**STARTS, "tuned": None}
    return [_kkt(size, start, table) for start, table in starts.items()]


def _decoreco_rows(size: Size) -> Sequence[Row]:
    ncc = {start: Reading("ncc.mean", start, ended=False) for start in (*STARTS, "tuned")}
    return [
        nearer(
            "partition start: distance to the nearest of the partition",
            *("its own start", "partition"),
            attack="kkt",
            training=False,
        ),
        nearer(
            "ground truth start: distance to the nearest training image",
            *("stays", "ground truth"),
            attack="kkt",
            training=True,
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
    ]


DECORECO = Part(
    paper=PAPER,
    name="decoreco",
    reference="section 4.4, Figures 5–9",
    title="the same starts of the KKT search",
    sizes=sizes(FULL, LAPTOP, SMOKE),
    minutes=minutes("months", "3 min"),
    settings=_decoreco,
    rows=_decoreco_rows,
    attacks=("kkt",),
    metrics=("rmse", "ncc"),
    pictures=(
        Picture(
            "Started at another partition: training image, the nearest candidate, nearest image "
            "that the adversary had",
            ("partition",),
            ("kkt",),
        ),
    ),
    note=(
        "One candidate is searched for each training image, so that none is chosen for its "
        "likeness; the paper searches for two. The tuned start is "
        "the attack's own, Gaussian of deviation .1 around the centre. The paper's network has "
        "two hidden layers, this one has one. Ours searches within the span of the first layer's "
        "rows, where the training images lie: a start is first projected on it, which the paper "
        "does not do, and what is its own of another partition is lost."
    ),
)


def _shares(size: Size) -> list[tuple[float, float]]:
    return [(first, second) for second in size.values for first in size.values]


def _mixed(kind: str, first: float, second: float) -> str:
    return f"{kind} λ₁={first:g} λ₂={second:g}"


def _landscape(size: Size) -> Sequence[Tables]:
    found = []
    for first, second in _shares(size):
        start = {"truth": float(first), "noise": 1.0 - second}
        found.append(_bilevel(size, _mixed("bilevel", first, second), AFFINE, start))
        found.append(_kkt(size, _mixed("kkt", first, second), start))
    return found


def _landscape_rows(size: Size) -> Sequence[Row]:
    rows, low, high = [], size.values[0], size.values[-1]
    for kind in ("bilevel", "kkt"):
        for first, second in ((low, low), (high, low), (low, high), (high, high)):
            name = _mixed(kind, first, second)
            here = replace(distance(name, "training"), attack=kind)
            if (first, second) == (high, high):
                other, relation = _mixed(kind, high, low), "below"
                says = "the truth's own start is nearest to the truth"
            else:
                other, relation = _mixed(kind, high, high), "above"
                says = "farther than from the truth"
            label = f"{name}: distance to the nearest training image"
            there = distance(other, "training")
            rows.append(versus(label, "Fig. 10", here, relation, there, says, attack=kind))
        name = _mixed(kind, low, high)
        label = f"{name}: distance to the nearest of the partition"
        row = nearer(label, "Fig. 11", name, attack=kind, training=False)
        rows.append(replace(row, measured=replace(row.measured, attack=kind)))
    exact, smooth = (distance(_mixed(k, high, high), "training") for k in ("bilevel", "kkt"))
    left, right = replace(exact, attack="bilevel"), replace(smooth, attack="kkt")
    label = "from the truth: bilevel against kkt, distance to the nearest training image"
    says = "the bilevel search stays nearer"
    rows.append(versus(label, "much smaller", left, "below", right, says, attack=""))
    return rows


def _heat(size: Size) -> Sequence[Chart]:
    """Figure 10: distances to the nearest training image and to the nearest of the partition."""
    charts = []
    for kind in ("bilevel", "kkt"):
        for what, words in (("training", "training image"), ("shadow", "image of the partition")):
            cells = tuple(
                tuple(
                    replace(distance(_mixed(kind, first, second), what), attack=kind)
                    for first in size.values
                )
                for second in size.values
            )
            charts.append(
                Chart(
                    f"Figure 10, {kind}: median distance to the nearest {words}",
                    tuple(f"λ₂ = {second:g}" for second in size.values),
                    tuple(f"λ₁ = {first:g}" for first in size.values),
                    cells,
                )
            )
    return charts


LANDSCAPE = Part(
    paper=PAPER,
    name="landscape",
    reference="section 4.5, Figures 10–12",
    title="mixtures of the three starts",
    sizes=sizes(FULL, replace(LAPTOP, steps=60), replace(SMOKE, steps=30)),
    minutes=minutes("years", "5 min"),
    settings=_landscape,
    rows=_landscape_rows,
    charts=_heat,
    attacks=("bilevel", "kkt"),
    metrics=("rmse",),
    note=(
        "A start is λ₂ (λ₁ · training images + (1 − λ₁) · another partition) + (1 − λ₂) · noise. "
        "The bilevel search is of an affine classifier, the KKT search of one hidden layer, within "
        "the span of its rows (see decoreco). The paper has 5 × 5 mixtures; below its scale there "
        "are fewer."
    ),
)
