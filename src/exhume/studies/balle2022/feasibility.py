"""Section VI-A and its appendices: can a record be rebuilt, how well, and with how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from exhume.studies.balle2022.common import (
    CIFAR,
    LAPTOP,
    LAPTOP_CIFAR,
    MNIST,
    PAPER,
    SMOKE,
    inverted,
    minutes,
    mse,
    oracle,
    setting,
    sizes,
    success,
)
from exhume.studies.base import Part, Picture, Size, Tables
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.run import Reading

_THREE = ("reconstructor", "ridge", "trajectory-inversion")


def _default(size: Size) -> Sequence[Tables]:
    return [setting(size, "default")]


DEFAULT = Part(
    paper=PAPER,
    name="default",
    reference="section VI-A, Figure 4",
    title="the default attack on MNIST",
    sizes=sizes(MNIST, LAPTOP, SMOKE),
    minutes=minutes("2 days", "1 min"),
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
        _FULL, replace(_FULL, targets=100, values=(16_000,)), replace(SMOKE, epochs=1, targets=40)
    ),
    minutes=minutes("5 min", "1 min"),
    settings=_oracle,
    rows=_oracle_rows,
    attacks=(),
    note=(
        "Nothing is attacked here: models are trained for one epoch, and play no part. Of MNIST "
        "all 70,000 records are used at every scale but smoke, of CIFAR-10 fewer below the paper's."
    ),
)


def _shadows(size: Size) -> Sequence[Tables]:
    return [setting(size, f"k={int(k)}", shadows=int(k)) for k in size.values]


def _shadow_rows(size: Size) -> Sequence[Row]:
    ks = [int(k) for k in size.values]
    rows = [
        success(f"{k:,} shadow models", "below the oracle from 8K on", f"k={k}") for k in ks[-1:]
    ]
    for fewer, more in pairwise(ks):
        says = "more shadow models, smaller error"
        claim = Claim(mse(f"k={more}"), "below", mse(f"k={fewer}"), says, every=True)
        rows.append(Row(f"{fewer:,} → {more:,} shadow models", "falls", mse(f"k={more}"), claim))
    return rows


SHADOWS = Part(
    paper=PAPER,
    name="shadows",
    reference="section VI-B a, Figure 5c",
    title="how many shadow models it takes",
    sizes=sizes(
        replace(MNIST, values=(100, 1000, 8000, 20_000, 59_000)),
        replace(LAPTOP, values=(50, 150, 500)),
        replace(SMOKE, values=(40, 400)),
    ),
    minutes=minutes("2 days", "1 min"),
    settings=_shadows,
    rows=_shadow_rows,
    attacks=("reconstructor", "ridge"),
)


def _metric_rows(size: Size) -> Sequence[Row]:
    rows = []
    for other, word, least in (("lpips", "strongly correlated", 0.5), ("kl", "correlated", 0.0)):
        reading = Reading(f"mse~{other}", "default")
        says = "rank correlation over the targets"
        claim = Claim(reading, "above", least, says)
        rows.append(Row(f"MSE and {other.upper()}", word, reading, claim))
    return rows


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
    minutes=minutes("2 days", "1 min"),
    settings=_default,
    rows=_metric_rows,
    attacks=("reconstructor", "ridge"),
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
        replace(LAPTOP, values=(0, 1, 2)),
        replace(SMOKE, values=(0, 1)),
    ),
    minutes=minutes("20 days", "3 min"),
    settings=_seeds,
    rows=_seed_rows,
)


def _transfer(size: Size) -> Sequence[Tables]:
    few, many = (int(value) for value in size.values)
    pool = replace(size, shadow_targets=few + many + size.fixed_set)
    moved = setting(pool, "fine-tuned", shadows=few)
    moved["options"]["reconstructor"]["first"] = many
    return [
        setting(pool, "few, from scratch", shadows=few),
        setting(pool, "many, from scratch", shadows=many),
        moved,
    ]


def _transfer_rows(size: Size) -> Sequence[Row]:
    few, many = (f"{int(value):,}" for value in size.values)
    moved, own = mse("fine-tuned"), ("reconstructor",)
    better = Claim(moved, "below", mse("few, from scratch"), "a smaller error", attacks=own)
    near = Claim(
        moved, "about", mse("many, from scratch"), "about the same", factor=1.25, attacks=own
    )
    return [
        Row(f"fine-tuned on {few} against {few} from scratch", "better", moved, better),
        Row(f"fine-tuned on {few} against {many} from scratch", "comparable", moved, near),
    ]


TRANSFER = Part(
    paper=PAPER,
    name="transfer",
    reference="appendix B, Figure 12",
    title="a reconstructor network trained for another fixed set",
    sizes=sizes(
        replace(MNIST, values=(1000, 40_000)),
        replace(LAPTOP, values=(64, 500)),
        replace(SMOKE, values=(64, 1000)),
    ),
    minutes=minutes("3 days", "1 min"),
    settings=_transfer,
    rows=_transfer_rows,
    attacks=("reconstructor",),
    note="Two disjoint fixed sets of the same size; fine-tuning is all that the second one sees.",
)

PARTS = (DEFAULT, DEFAULT_CIFAR, ORACLE, SHADOWS, METRICS, SEEDS, TRANSFER)
