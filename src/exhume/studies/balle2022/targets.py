"""Appendices C, D, L and M: which targets are hard, and what a late start changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.balle2022.common import (
    CIFAR,
    LAPTOP,
    LAPTOP_CIFAR,
    LAPTOP_QUICK,
    LEARNED,
    MNIST,
    PAPER,
    SMOKE,
    setting,
    success,
)
from exhume.studies.balle2022.released import worse
from exhume.studies.base import Part, Picture, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Row
from exhume.studies.plots import Cloud, Histogram
from exhume.studies.run import Reading


def _warm(size: Size) -> Sequence[Tables]:
    return [
        setting(size, "from scratch"),
        setting(size, "near convergence", data={"before": int(size.values[0])}),
    ]


WARM_START = Part(
    paper=PAPER,
    name="warmstart",
    reference="appendix C, Figure 13",
    title="the adversary first sees a model near convergence",
    sizes=sizes(
        replace(MNIST, shadow_targets=49_000, values=(10_000,)),
        replace(LAPTOP, values=(1000,)),
        replace(SMOKE, values=(200,)),
    ),
    minutes=minutes("4 days", "2 min"),
    settings=_warm,
    rows=lambda size: [
        success("initial parameters known", "–", "from scratch"),
        worse("near convergence, against that", "harder", "near convergence", "from scratch"),
    ],
    plots=lambda size: [
        Histogram(
            "spread",
            "Figure 13: errors of φ (RecoNN) over the targets, by where training starts",
            *("mean squared error", "mse"),
            (
                ("from scratch", "from scratch", "reconstructor"),
                ("near convergence", "near convergence", "reconstructor"),
                ("nearest known record", "from scratch", "oracle"),
            ),
        )
    ],
    note="Training starts where the same training ended on other records, which everybody has.",
)


def _default(size: Size) -> Sequence[Tables]:
    return [setting(size, "default")]


def _easy_rows(size: Size) -> Sequence[Row]:
    easy, hard = Reading("mse.q05", "default"), Reading("mse.q95", "default")
    says = "the easiest twentieth has less than half of the hardest twentieth's error"
    claim = Claim(easy, "below", hard, says, factor=0.5)
    rows = [Row("easiest against hardest targets", "–", easy, claim)]
    rough = Reading("mse~roughness", "default")
    says = "rank correlation of the error with how rough the target is"
    claim = Claim(rough, "above", 0.0, says)
    rows.append(Row("plain backgrounds are easy", "by eye", rough, claim))
    return rows


EASY_HARD = Part(
    paper=PAPER,
    name="easy-hard",
    reference="appendix D, Figure 14",
    title="the easiest and the hardest targets",
    sizes=sizes(CIFAR, LAPTOP_CIFAR, replace(SMOKE, targets=24)),
    minutes=minutes("65 days", "1 min"),
    settings=_default,
    rows=_easy_rows,
    influence=True,
    pictures=(
        Picture(
            "CIFAR-10, the six easiest and the six hardest of φ (RecoNN): target, φ, ridge, "
            "nearest known record",
            ("default",),
            ("reconstructor", "ridge"),
            order="extremes",
        ),
    ),
    note="Roughness is the mean absolute difference of neighbouring pixels.",
)


def _norm_rows(size: Size) -> Sequence[Row]:
    reading = Reading("mse~gradient-norm", "default")
    says = "rank correlation with the summed norm of the target's gradient, not negative"
    claim = Claim(reading, "above", 0.0, says)
    return [Row("error and gradient norm", "weakly correlated", reading, claim)]


GRADIENT_NORM = Part(
    paper=PAPER,
    name="gradient-norm",
    reference="appendix L, Figure 21",
    title="are memorised targets easier?",
    sizes=sizes(MNIST, replace(LAPTOP, targets=64), replace(SMOKE, targets=40)),
    minutes=minutes("2 days", "1 min"),
    settings=_default,
    rows=_norm_rows,
    plots=lambda size: [
        Cloud(
            "cloud",
            "Figure 21: error and summed gradient norm of every target",
            *("summed norm of the target's gradient", "mean squared error", "default", LEARNED),
            ("gradient-norm", "mse"),
            log_x=True,
            log_y=True,
        )
    ],
    influence=True,
)


def _dead(size: Size) -> Sequence[Tables]:
    return [
        setting(size, name, release={"activation": activation})
        for name, activation in (("ELU", "elu"), ("ReLU", "relu"))
    ]


def _dead_rows(size: Size) -> Sequence[Row]:
    elu, relu = Reading("dead-gradients.mean", "ELU"), Reading("dead-gradients.mean", "ReLU")
    says = "a larger share of parameters that the target leaves alone"
    return [
        Row("parameters without a gradient", "over .60", relu, Claim(relu, "above", elu, says)),
        worse("error with ReLU, against ELU", 0.0324, "ReLU", "ELU"),
    ]


DEAD_GRADIENTS = Part(
    paper=PAPER,
    name="dead-gradients",
    reference="appendix M, Figure 22",
    title="what ReLU hides",
    sizes=sizes(CIFAR, LAPTOP_QUICK, SMOKE),
    minutes=minutes("130 days", "2 min"),
    settings=_dead,
    rows=_dead_rows,
    influence=True,
    note=(
        "The share counts weights at pixels that are black in the target too, whatever the "
        "activation. Below the paper's scale the data are MNIST, not CIFAR-10."
    ),
)

PARTS = (WARM_START, EASY_HARD, GRADIENT_NORM, DEAD_GRADIENTS)
