"""Section VI-A and its appendices: can a record be rebuilt, how well, and with how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.balle2022.common import (
    CIFAR,
    LAPTOP,
    LAPTOP_CIFAR,
    LAPTOP_MANY,
    LAPTOP_QUICK,
    LEARNED,
    MNIST,
    PAPER,
    SMOKE,
    inverted,
    mse,
    oracle,
    setting,
    success,
)
from exhume.studies.base import Part, Picture, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.plots import Cloud, Histogram, Plot
from exhume.studies.run import Reading

_THREE = ("reconstructor", "ridge", "trajectory-inversion")


def _default(size: Size) -> Sequence[Tables]:
    return [setting(size, "default")]


DEFAULT = Part(
    paper=PAPER,
    name="default",
    reference="section VI-A, Figure 4",
    title="the default attack on MNIST",
    sizes=sizes(MNIST, LAPTOP_MANY, SMOKE),
    minutes=minutes("2 days", "8 min"),
    settings=_default,
    rows=lambda size: [
        success("mean squared error on MNIST", 0.0089, "default"),
        inverted("the same, by inverting the training", "default", published=0.0089),
    ],
    pictures=(
        Picture(
            "MNIST: target, φ (RecoNN), ridge, trajectory inversion, nearest known record",
            ("default",),
            _THREE,
        ),
    ),
)

DEFAULT_CIFAR = Part(
    paper=PAPER,
    name="default-cifar",
    reference="section VI-A, Figure 4",
    title="the default attack on CIFAR-10",
    sizes=sizes(CIFAR, LAPTOP_CIFAR, replace(SMOKE, learning_rate=0.05)),
    minutes=minutes("65 days", "2 min"),
    settings=_default,
    rows=lambda size: [
        success(
            "mean squared error on CIFAR-10",
            0.0049,
            "default",
            needs=Needs("shadow_targets", 10_000, "the paper's network needs as many (section VI)"),
        ),
        inverted("the same, by inverting the training", "default", published=0.0049),
    ],
    pictures=(
        Picture(
            "CIFAR-10: target, φ (RecoNN), ridge, trajectory inversion, nearest known record",
            ("default",),
            _THREE,
        ),
    ),
    note="Below the paper's scale the released network is fully connected, 3072-10-10.",
)


def _oracle(size: Size) -> Sequence[Tables]:
    return [
        setting(replace(size, data=data, fixed_set=fixed, shadow_targets=shadows), data, options={})
        for data, fixed, shadows in _oracle_sets(size)
    ]


def _oracle_sets(size: Size) -> list[tuple[str, int, int]]:
    if size.data != "mnist":
        return [(size.data, size.fixed_set, size.shadow_targets)]
    return [("mnist", size.fixed_set, size.shadow_targets), ("cifar-10", 5000, int(size.values[0]))]


_WHOLE = Needs("pool", 59_000, "the nearest of fewer records is farther away")


def _oracle_rows(size: Size) -> Sequence[Row]:
    published = {"mnist": 0.0232, "cifar-10": 0.0291}
    rows = []
    for name, figure in published.items():
        claim = Claim(
            *(oracle(name), "about", figure, "as published"),
            factor=1.05,
            attacks=("",),
            needs=_WHOLE,
        )
        rows.append(Row(f"nearest known record, {name}", figure, oracle(name), claim))
    percentile = Reading("percentile-1", "cifar-10")
    claim = Claim(
        *(percentile, "about", 0.05, "as published"), factor=1.2, attacks=("",), needs=_WHOLE
    )
    rows.append(Row("1st percentile, cifar-10", "about .05", percentile, claim))
    rows += [_ordered(name) for name, *_ in _oracle_sets(size)]
    return rows


def _ordered(name: str) -> Row:
    blind = Reading("blind", name)
    says = "the nearest record is far closer than a blind guess"
    claim = Claim(oracle(name), "below", blind, says, factor=0.75, attacks=("",))
    return Row(f"nearest known record against a blind guess, {name}", "–", oracle(name), claim)


_FULL = replace(MNIST, epochs=1, targets=1000, values=(54_000,))

ORACLE = Part(
    paper=PAPER,
    name="oracle",
    reference="section V-B d, Figure 3",
    title="how close the adversary was to begin with",
    sizes=sizes(
        _FULL, replace(_FULL, targets=200, values=(16_000,)), replace(SMOKE, epochs=1, targets=40)
    ),
    minutes=minutes("5 min", "3 min"),
    settings=_oracle,
    rows=_oracle_rows,
    attacks=(),
    plots=lambda size: [
        Histogram(
            "nearest",
            "How far the nearest known record is, by target",
            *("mean squared error", "mse"),
            tuple((name, name, "oracle") for name, *_ in _oracle_sets(size)),
        )
    ],
    note=(
        "Nothing is attacked here: models are trained for one epoch, and play no part. Of MNIST "
        "all 70,000 records are used at every scale but smoke, of CIFAR-10 fewer below the paper's."
    ),
)


_BESIDE = {MNIST.fixed_set: CIFAR, LAPTOP.fixed_set: LAPTOP_CIFAR}
"""The size at which CIFAR-10 stands beside MNIST, by MNIST's fixed set."""


def _metrics(size: Size) -> Sequence[Tables]:
    found = [setting(size, "default")]
    beside = _BESIDE.get(size.fixed_set)
    if size.data == "mnist" and beside is not None:
        found.append(setting(beside, "cifar-10", targets=beside.targets))
    return found


def _metric_rows(size: Size) -> Sequence[Row]:
    rows = []
    for name in [str(tables["name"]) for tables in _metrics(size)]:
        words = {"lpips": "strongly correlated", "kl": "correlated"}
        if name != "default":
            words["lpips"] = "weaker than on MNIST"
        for other, word in words.items():
            reading = Reading(f"mse~{other}", name)
            least = 0.5 if word.startswith("strong") else 0.0
            claim = Claim(reading, "above", least, "rank correlation over the targets")
            where = "" if name == "default" else f", {name}"
            rows.append(Row(f"MSE and {other.upper()}{where}", word, reading, claim))
    return rows


def _metric_plots(size: Size) -> Sequence[Plot]:
    figures = {("default", "lpips"): "5a", ("default", "kl"): "5b"}
    return [
        Cloud(
            f"{name}-{other}",
            f"Figure {figures.get((name, other), '19')}: MSE and {other.upper()} of every target"
            + ("" if name == "default" else " of CIFAR-10"),
            *("mean squared error", other.upper(), name, LEARNED, ("mse", other)),
            log_x=True,
            log_y=other == "kl",
        )
        for name in [str(tables["name"]) for tables in _metrics(size)]
        for other in ("lpips", "kl")
    ]


METRICS = Part(
    paper=PAPER,
    name="metrics",
    reference="Figures 5a, 5b and 19",
    title="do the metrics agree?",
    sizes=sizes(
        MNIST,
        replace(LAPTOP, targets=64),
        replace(
            SMOKE, data="fashion-mnist-small", learning_rate=0.05, shadow_targets=300, targets=24
        ),
    ),
    minutes=minutes("67 days", "2 min"),
    settings=_metrics,
    rows=_metric_rows,
    plots=_metric_plots,
    metrics=("mse", "lpips", "kl"),
    note=(
        "KL is between the answers of a public classifier on target and reconstruction: the same "
        "network, trained on the fixed set alone (the paper takes LeNet). LPIPS needs its weights."
    ),
)


def _seeds(size: Size) -> Sequence[Tables]:
    return [
        setting(size, f"seed {int(seed)}", training={"seed": int(seed)}) for seed in size.values
    ]


def _seed_rows(size: Size) -> Sequence[Row]:
    names = [f"seed {int(seed)}" for seed in size.values]
    rows = [success(f"{name}", "close to or below the oracle", name) for name in names]
    for name in names[1:]:
        says = f"about as well as with {names[0]}"
        claim = Claim(mse(name), "about", mse(names[0]), says, factor=1.5)
        rows.append(Row(f"{name} against {names[0]}", "little variance", mse(name), claim))
    return rows


SEEDS = Part(
    paper=PAPER,
    name="seeds",
    reference="appendix G, Figure 17",
    title="other initial parameters",
    sizes=sizes(
        replace(MNIST, values=tuple(range(10))),
        replace(LAPTOP_QUICK, values=(0, 1, 2)),
        replace(SMOKE, values=(0, 1)),
    ),
    minutes=minutes("20 days", "2 min"),
    settings=_seeds,
    rows=_seed_rows,
    plots=lambda size: [
        Histogram(
            "spread",
            "Figure 17: errors of φ (RecoNN) over the targets, by seed",
            *("mean squared error", "mse"),
            tuple((f"seed {int(s)}", f"seed {int(s)}", "reconstructor") for s in size.values),
        )
    ],
)


PARTS = (DEFAULT, DEFAULT_CIFAR, ORACLE, METRICS, SEEDS)
