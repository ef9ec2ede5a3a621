"""Sections III and VI-A with their appendices: which records can be rebuilt, and how well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.balle2022 import published
from exhume.studies.balle2022.common import (
    CIFAR,
    INVERTED,
    LAPTOP,
    LAPTOP_CIFAR,
    LAPTOP_MANY,
    LEARNED,
    MNIST,
    MNIST_BOTH,
    SMOKE,
    InformedPart,
    InformedSize,
    default,
    inverted,
    oracle,
    setting,
    spread,
    success,
)
from exhume.studies.claims import Claim, ClaimRow, Needs, versus
from exhume.studies.part import Picture, Tables, minutes, sizes
from exhume.studies.plots import Cloud
from exhume.studies.reading import StudyReading

_FAMILIES = {
    "linear": ("diabetes", 0.0),
    "ridge": ("diabetes", 1.0),
    "logistic": ("breast-cancer", 1.0),
    "multinomial": ("wine", 1.0),
    "poisson": ("diabetes-counts", 1.0),
}
"""Every family with a table to train it on, and the strength of its penalty."""
_TABLES = InformedSize(data="", fixed_set=0, targets=40)

GLM = InformedPart(
    name="glm",
    headlines=("logistic regression, error of a value, in standard deviations",),
    reference="section III, Theorem 1",
    title="closed-form reconstruction from linear models",
    sizes=sizes(_TABLES, _TABLES, replace(_TABLES, targets=6)),
    minutes=minutes("under 1 min", "under 1 min"),
    settings=lambda size: [
        {
            "name": model,
            "data": {"name": data, "units": "fixed-set"},
            "release": {"model": model, "penalty": {"strength": strength}},
        }
        for model, (data, strength) in _FAMILIES.items()
    ],
    rows=lambda size: [
        ClaimRow(
            f"{model} regression, error of a value, in standard deviations",
            "exact",
            Claim(
                *(StudyReading("rmse.q95", model), "below", 1e-3),
                "the record is rebuilt, for 95 % of the targets",
            ),
            shows=StudyReading("rmse.median", model),
        )
        for model in _FAMILIES
    ],
    attacks=("glm",),
    metrics=("rmse",),
    note=(
        "The paper gives a proof and no figure. Its printed formula for the label is wrong; the "
        "attack solves the corrected one. Half of each table is the fixed set."
    ),
)


def _pictures(data: str) -> tuple[Picture, ...]:
    caption = f"{data}: target, φ (RecoNN), ridge, trajectory inversion, nearest known record"
    attacks = ("reconstructor", "ridge", "trajectory-inversion")
    return (Picture(caption, ("default",), attacks, beside=INVERTED),)


DEFAULT = InformedPart(
    name="default",
    headlines=("mean squared error on MNIST",),
    reference="section VI-A, Figure 4",
    title="the default attack on MNIST",
    sizes=sizes(MNIST_BOTH, LAPTOP_MANY, SMOKE),
    minutes=minutes("5 hours", "8 min"),
    settings=default,
    rows=lambda size: [
        success(size, "mean squared error on MNIST", published.MNIST_ERROR, "default"),
        inverted(
            *("the same, by inverting the training", INVERTED if size.inverted else "default"),
            published=published.MNIST_ERROR,
        ),
    ],
    pictures=_pictures("MNIST"),
)
DEFAULT_CIFAR = InformedPart(
    name="default-cifar",
    headlines=("mean squared error on CIFAR-10",),
    reference="section VI-A, Figure 4",
    title="the default attack on CIFAR-10",
    sizes=sizes(CIFAR, LAPTOP_CIFAR, replace(SMOKE, learning_rate=0.05)),
    minutes=minutes("65 days", "2 min"),
    settings=default,
    rows=lambda size: [
        success(
            size,
            *("mean squared error on CIFAR-10", published.CIFAR_ERROR, "default"),
            needs=Needs("shadow_targets", 10_000, "the paper's network needs as many (section VI)"),
        ),
        inverted("the same, by inverting the training", "default", published=published.CIFAR_ERROR),
    ],
    pictures=_pictures("CIFAR-10"),
    note="Below the paper's scale the released network is fully connected, 3072-10-10.",
)


def _nearest(size: InformedSize) -> dict[str, dict[str, int]]:
    """Return the data sets in which the nearest record is searched for, with their records."""
    own = {"fixed_set": size.fixed_set, "shadow_targets": size.shadow_targets}
    if size.data != "mnist":
        return {size.data: own}
    return {"mnist": own, "cifar-10": {"fixed_set": 5000, "shadow_targets": int(size.values[0])}}


def _nearest_rows(size: InformedSize) -> Sequence[ClaimRow]:
    whole = Needs("pool", 59_000, "the nearest of fewer records is farther away")
    percentile = StudyReading("percentile-1", "cifar-10")
    return [
        *(
            versus(
                *(f"nearest known record, {name}", figure, oracle(name), "about", figure),
                "as published",
                factor=1.05,
                needs=whole,
            )
            for name, figure in published.NEAREST.items()
        ),
        versus(
            *("1st percentile, cifar-10", "about .05", percentile, "about", 0.05, "as published"),
            factor=1.2,
            needs=whole,
        ),
        *(
            versus(
                f"nearest known record against a blind guess, {name}",
                *("–", oracle(name), "below", StudyReading("blind", name)),
                "the nearest record is far closer than a blind guess",
                factor=0.75,
                check="not in the paper",
            )
            for name in _nearest(size)
        ),
    ]


_FULL = replace(MNIST, epochs=1, values=(54_000,))
ORACLE = InformedPart(
    name="oracle",
    reference="section V-B d, Figure 3",
    title="how close the adversary's own records are",
    sizes=sizes(
        _FULL,
        replace(_FULL, targets=200, values=(16_000,)),
        replace(SMOKE, shadow_targets=1000, epochs=1, targets=40),
    ),
    minutes=minutes("5 min", "3 min"),
    settings=lambda size: [
        setting(replace(size, data=name), name, data=records, options={})
        for name, records in _nearest(size).items()
    ],
    rows=_nearest_rows,
    attacks=(),
    plots=lambda size: [
        spread(
            *("Distance of the nearest known record, by target", "oracle", *_nearest(size)),
            name="nearest",
        )
    ],
    note=(
        "Nothing is attacked here: models are trained for one epoch and not used. All 70,000 "
        "records of MNIST are used at every scale except smoke; fewer of CIFAR-10 below the "
        "paper's scale."
    ),
)

_BESIDE = {MNIST.fixed_set: CIFAR, LAPTOP.fixed_set: LAPTOP_CIFAR}
"""The size of the CIFAR-10 settings, by MNIST's fixed set."""


def _metrics(size: InformedSize) -> Sequence[Tables]:
    beside = _BESIDE.get(size.fixed_set) if size.data == "mnist" else None
    others = [] if beside is None else [setting(beside, "cifar-10", targets=beside.targets)]
    return [setting(size, "default"), *others]


def _pairs(size: InformedSize) -> list[tuple[str, str]]:
    """Return every setting with the metrics that are compared with the squared error."""
    names = [str(tables["name"]) for tables in _metrics(size)]
    return [(name, other) for name in names for other in ("lpips", "kl")]


_WORDS = {
    ("default", "lpips"): ("strongly correlated", 0.5, "5a"),
    ("cifar-10", "lpips"): ("weaker than on MNIST", 0.0, "19"),
    ("default", "kl"): ("correlated", 0.0, "5b"),
    ("cifar-10", "kl"): ("correlated", 0.0, "19"),
}
"""The paper's statement on a rank correlation, its minimum for that, and its figure."""

METRICS = InformedPart(
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
    rows=lambda size: [
        ClaimRow(
            f"MSE and {other.upper()}" + ("" if name == "default" else f", {name}"),
            _WORDS[name, other][0],
            Claim(
                *(StudyReading(f"mse~{other}", name), "above", _WORDS[name, other][1]),
                "rank correlation over the targets",
            ),
        )
        for name, other in _pairs(size)
    ],
    plots=lambda size: [
        Cloud(
            f"{name}-{other}",
            f"Figure {_WORDS[name, other][2]}: MSE and {other.upper()} of every target"
            + ("" if name == "default" else " of CIFAR-10"),
            *("mean squared error", other.upper(), name, LEARNED, ("mse", other)),
            log_x=True,
            log_y=other == "kl",
        )
        for name, other in _pairs(size)
    ],
    metrics=("mse", "lpips", "kl"),
    note=(
        "KL is between the answers of a public classifier on target and reconstruction: the same "
        "network, trained on the fixed set alone (the paper takes LeNet). LPIPS needs its weights."
    ),
)

EASY_HARD = InformedPart(
    name="easy-hard",
    reference="appendix D, Figure 14",
    title="the easiest and the hardest targets",
    sizes=sizes(CIFAR, LAPTOP_CIFAR, replace(SMOKE, targets=24)),
    minutes=minutes("65 days", "1 min"),
    settings=default,
    rows=lambda size: [
        ClaimRow(
            *("easiest against hardest targets", "–"),
            Claim(
                StudyReading("mse.q05", "default"),
                *("below", StudyReading("mse.q95", "default")),
                "the easiest twentieth has less than half of the hardest twentieth's error",
                factor=0.5,
            ),
        ),
        ClaimRow(
            *("plain backgrounds are easy", "by eye"),
            Claim(
                *(StudyReading("mse~roughness", "default"), "above", 0.0),
                "rank correlation of the error with the roughness of the target",
            ),
        ),
    ],
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

GRADIENT_NORM = InformedPart(
    name="gradient-norm",
    reference="appendix L, Figure 21",
    title="are memorised targets easier?",
    sizes=sizes(
        MNIST,
        replace(LAPTOP, targets=64),
        replace(SMOKE, targets=40, shadow_targets=1000, phi_epochs=60),
    ),
    minutes=minutes("2 days", "1 min"),
    settings=default,
    rows=lambda size: [
        ClaimRow(
            *("error and gradient norm", "weakly correlated"),
            Claim(
                *(StudyReading("mse~gradient-norm", "default"), "above", 0.0),
                "rank correlation with the summed norm of the target's gradient, not negative",
            ),
        )
    ],
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
