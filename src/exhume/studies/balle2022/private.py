"""Sections VI-D and VII: differential privacy, measured and compared with the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from exhume.studies.balle2022 import published
from exhume.studies.balle2022.common import (
    CIFAR,
    LAPTOP,
    LAPTOP_CIFAR,
    MNIST,
    SLOW,
    InformedPart,
    InformedSize,
    curves,
    failure,
    setting,
    success,
)
from exhume.studies.claims import Claim, ClaimRow, Needs, versus
from exhume.studies.part import Picture, Tables, minutes, sizes
from exhume.studies.plots import Lines, Plot, PlotLine
from exhume.studies.reading import StudyReading


@lru_cache(maxsize=64)
def noise_multiplier(epsilon: float, steps: int, delta: float = 1e-5) -> float:
    """Return the noise multiplier of full-batch DP-GD that is (epsilon, delta)-DP, by bisection.

    >>> round(noise_multiplier(1.0, 1), 3)
    3.731
    """
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(shift: float) -> float:
        high = norm.cdf(shift / 2 - epsilon / shift)
        low = norm.logcdf(-shift / 2 - epsilon / shift) + epsilon
        return float(high - math.exp(max(low, -700.0)) - delta)

    shift = brentq(excess, 1e-6, 10.0 * (epsilon + 1.0) ** 0.5 + epsilon)
    return float(steps**0.5 / shift)


def _private(size: InformedSize) -> Sequence[Tables]:
    clip = 10.0 if size.data == "cifar-10" else 1.0
    noise = {epsilon: noise_multiplier(epsilon, size.epochs) for epsilon in size.values}
    return [
        setting(size, "not private"),
        *(
            setting(
                *(size, f"ε={epsilon:g}"),
                training={"clipping": {"norm": clip, "noise_multiplier": multiplier}},
            )
            for epsilon, multiplier in noise.items()
        ),
    ]


def _private_rows(size: InformedSize) -> Sequence[ClaimRow]:
    figure = published.CIFAR_ERROR if size.data == "cifar-10" else published.MNIST_ERROR
    most = max(size.values)
    plain, private = (StudyReading("utility", name) for name in ("not private", f"ε={most:g}"))
    return [
        success(size, "without privacy", figure, "not private"),
        *(
            failure(size, f"ε = {epsilon:g}", "mitigated", f"ε={epsilon:g}", works_on="not private")
            for epsilon in size.values
        ),
        versus(
            *(f"test accuracy at ε = {most:g}", "negligible loss", private, "above", plain),
            "accuracy on other records, against that without privacy",
            factor=1.05,
            needs=Needs("fixed_set", 5000, "noise has more influence among fewer records"),
        ),
    ]


def _private_plots(size: InformedSize) -> Sequence[Plot]:
    figure = "15" if size.data == "cifar-10" else "9"
    points = [(epsilon, f"ε={epsilon:g}") for epsilon in size.values]
    accuracy = PlotLine("accuracy", tuple((e, StudyReading("utility", name)) for e, name in points))
    plain = tuple((e, StudyReading("utility", "not private")) for e in size.values)
    return [
        curves("error", f"Figure {figure}: error under DP-GD", "ε", points),
        Lines(
            "accuracy",
            f"Figure {figure}: accuracy on other records under DP-GD",
            *("ε", "accuracy", (accuracy, PlotLine("without privacy", plain, dashed=True))),
            log_x=True,
        ),
    ]


_EPSILONS = (1, 10, 100, 1000, 10_000)
_PAPER = replace(MNIST, values=_EPSILONS)
_LAPTOP = replace(LAPTOP, shadow_targets=150, targets=24, epochs=20, values=_EPSILONS)
_SMOKE = replace(SLOW, values=(10,), epochs=10)

DP = InformedPart(
    name="dp",
    headlines=("ε = 1000",),
    reference="section VI-D, Figures 9 and 10",
    title="training with differential privacy",
    sizes=sizes(_PAPER, _LAPTOP, _SMOKE),
    minutes=minutes("60 days", "3 min"),
    settings=_private,
    rows=_private_rows,
    plots=_private_plots,
    pictures=(
        Picture(
            "Figure 10, ε = 10: target, φ, ridge, nearest known record",
            ("ε=10",),
            ("reconstructor", "ridge"),
        ),
    ),
    note=(
        "DP-GD: gradients are clipped to norm 1, with noise for δ = 1e-5. The adversary does "
        "not know the noise, so trajectory inversion cannot repeat the training."
    ),
)
DP_CIFAR = InformedPart(
    name="dp-cifar",
    reference="appendix E, Figure 15",
    title="training with differential privacy on CIFAR-10",
    sizes=sizes(
        replace(CIFAR, values=_EPSILONS),
        replace(
            *(LAPTOP_CIFAR,),
            shadow_targets=120,
            targets=16,
            phi_epochs=4,
            retries=1,
            values=(1, 100, 10_000),
        ),
        replace(_SMOKE, learning_rate=0.05),
    ),
    minutes=minutes("a year", "8 min"),
    settings=_private,
    rows=_private_rows,
    plots=_private_plots,
    note=(
        "Gradients are clipped to norm 10, with noise for δ = 1e-5. Below the paper's scale the "
        "network is fully connected, 3072-10-10, and there are too few shadow models for the "
        "learned attacks, even without privacy. Without privacy, trajectory inversion rebuilds "
        "the records; with it, the attack cannot repeat the training."
    ),
)

_ROUNDING = 1.0 + 1e-9


def _bound_rows(epsilon: float) -> list[ClaimRow]:
    name, label = f"ε={epsilon:g}", f"ε = {epsilon:g}"
    reached, ceiling, theorem, kappa = (
        StudyReading(what, name) for what in ("success", "ceiling", "theorem_2", "kappa")
    )
    says = "measured success below the exact bound"
    measured = Claim(reached, "below", ceiling, says, factor=_ROUNDING)
    says = "the exact bound is no larger"
    exact = Claim(ceiling, "below", theorem, says, factor=_ROUNDING, attack="")
    says, proven = "a blind guess is below the bound", "proven inequality"
    return [
        ClaimRow(f"{label}: share of targets rebuilt", "–", measured),
        ClaimRow(f"{label}: Theorem 2", "a bound", exact, shows=theorem, check=proven),
        versus(
            f"{label}: κ of the prior",
            *("–", kappa, "below", ceiling, says),
            factor=_ROUNDING,
            check=proven,
        ),
    ]


_BRACKET = (
    ("φ (RecoNN) reached", "success", "reconstructor"),
    ("ridge reached", "success", "ridge"),
    ("limit for every attack", "ceiling", ""),
    ("Theorem 2", "theorem_2", ""),
    ("κ", "kappa", ""),
)
RERO = InformedPart(
    name="rero",
    reference="section VII, Theorem 2",
    title="reconstruction robustness: measured success and bounds",
    sizes=sizes(
        replace(_PAPER, values=(0.5, 1, 2, 5, 10)),
        replace(_LAPTOP, values=(1, 10, 100)),
        replace(_SMOKE, values=(1,)),
    ),
    minutes=minutes("60 days", "1 min"),
    settings=lambda size: _private(size)[1:],
    rows=lambda size: [row for epsilon in size.values for row in _bound_rows(epsilon)],
    plots=lambda size: [
        Lines(
            "bracket",
            "Measured success between a blind guess and the bounds",
            *("ε", "share of targets"),
            tuple(
                PlotLine(
                    label,
                    tuple((e, StudyReading(what, f"ε={e:g}")) for e in size.values),
                    attack=attack,
                )
                for label, what, attack in _BRACKET
            ),
            log_x=True,
        )
    ],
    closeness=0.5,
    note=(
        "A reconstruction succeeds if it is within half the distance of the nearest known "
        "record. The bound on κ comes from records like the targets."
    ),
)
