"""Sections VI-D and VII: differential privacy, measured beside the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from exhume.studies.balle2022.common import (
    CIFAR,
    LAPTOP,
    LAPTOP_CIFAR,
    MNIST,
    PAPER,
    SLOW,
    curves,
    failure,
    setting,
    success,
)
from exhume.studies.base import Part, Picture, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.plots import Line, Lines, Plot
from exhume.studies.run import Reading


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


def _private(size: Size) -> Sequence[Tables]:
    clip = 10.0 if size.data == "cifar-10" else 1.0
    found = [setting(size, "not private")]
    for epsilon in size.values:
        clipping = {"norm": clip, "noise_multiplier": noise_multiplier(epsilon, size.epochs)}
        found.append(setting(size, f"ε={epsilon:g}", training={"clipping": clipping}))
    return found


def _private_rows(size: Size) -> Sequence[Row]:
    published = 0.0049 if size.data == "cifar-10" else 0.0089
    rows = [success("without privacy", published, "not private")]
    for epsilon in size.values:
        name = f"ε={epsilon:g}"
        rows.append(failure(f"ε = {epsilon:g}", "mitigated", name, works_on="not private"))
    reading = Reading("utility", f"ε={max(size.values):g}")
    says = "accuracy on other records, against that without privacy"
    needs = Needs("fixed_set", 5000, "noise weighs more among fewer records")
    plain = Reading("utility", "not private")
    claim = Claim(reading, "above", plain, says, factor=1.05, attacks=("",), needs=needs)
    rows.append(
        Row(f"test accuracy at ε = {max(size.values):g}", "negligible loss", reading, claim)
    )
    return rows


def _private_plots(size: Size) -> Sequence[Plot]:
    figure = "15" if size.data == "cifar-10" else "9"
    points = [(epsilon, f"ε={epsilon:g}") for epsilon in size.values]
    accuracy = Line("accuracy", tuple((e, Reading("utility", name)) for e, name in points))
    plain = tuple((e, Reading("utility", "not private")) for e in size.values)
    return [
        curves("error", f"Figure {figure}: error under DP-GD", "ε", points, log_x=True),
        Lines(
            "accuracy",
            f"Figure {figure}: accuracy on other records under DP-GD",
            *("ε", "accuracy", (accuracy, Line("without privacy", plain, dashed=True))),
            log_x=True,
        ),
    ]


_EPSILONS = (1, 10, 100, 1000, 10_000)
_DP = {
    "paper": replace(MNIST, values=_EPSILONS),
    "laptop": replace(LAPTOP, shadow_targets=150, targets=24, epochs=20, values=_EPSILONS),
    "smoke": replace(SLOW, values=(10,), epochs=10),
}

DP = Part(
    paper=PAPER,
    name="dp",
    reference="section VI-D, Figures 9 and 10",
    title="training with differential privacy",
    sizes=sizes(_DP["paper"], _DP["laptop"], _DP["smoke"]),
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
        "DP-GD: gradients clipped to norm 1, noise for δ = 1e-5 that the adversary does not know, "
        "so that trajectory inversion has nothing to repeat."
    ),
)

DP_CIFAR = Part(
    paper=PAPER,
    name="dp-cifar",
    reference="appendix E, Figure 15",
    title="training with differential privacy on CIFAR-10",
    sizes=sizes(
        replace(CIFAR, values=_EPSILONS),
        replace(
            LAPTOP_CIFAR,
            shadow_targets=120,
            targets=16,
            phi_epochs=4,
            retries=1,
            values=(1, 100, 10_000),
        ),
        replace(SLOW, values=(10,), epochs=10, learning_rate=0.05),
    ),
    minutes=minutes("a year", "8 min"),
    settings=_private,
    rows=_private_rows,
    plots=_private_plots,
    note=(
        "Gradients clipped to norm 10, noise for δ = 1e-5. Below the paper's scale the network is "
        "fully connected, 3072-10-10, and so few shadow models teach the learned attacks little "
        "without privacy either. Trajectory inversion rebuilds the records without privacy, and "
        "has nothing to repeat under it."
    ),
)


def _rero_rows(size: Size) -> Sequence[Row]:
    rows = []
    for epsilon in size.values:
        name = f"ε={epsilon:g}"
        reached, ceiling = Reading("success", name), Reading("ceiling", name)
        claim = Claim(
            reached,
            "below",
            ceiling,
            "measured success below the exact bound",
            every=True,
            factor=1.0 + 1e-9,
        )
        rows.append(Row(f"ε = {epsilon:g}: share of targets rebuilt", "–", reached, claim))
        theorem = Reading("theorem_2", name)
        claim = Claim(
            ceiling,
            "below",
            theorem,
            "the exact bound is no larger",
            factor=1.0 + 1e-9,
            attacks=("",),
        )
        rows.append(Row(f"ε = {epsilon:g}: Theorem 2", "a bound", theorem, claim))
        kappa = Reading("kappa", name)
        claim = Claim(
            kappa,
            "below",
            ceiling,
            "a blind guess is below the bound",
            factor=1.0 + 1e-9,
            attacks=("",),
        )
        rows.append(Row(f"ε = {epsilon:g}: κ of the prior", "–", kappa, claim))
    return rows


RERO = Part(
    paper=PAPER,
    name="rero",
    reference="section VII, Theorem 2",
    title="reconstruction robustness: measured success beside the bounds",
    sizes=sizes(
        replace(_DP["paper"], values=(0.5, 1, 2, 5, 10)),
        replace(_DP["laptop"], values=(1, 10, 100)),
        replace(_DP["smoke"], values=(1,)),
    ),
    minutes=minutes("60 days", "1 min"),
    settings=lambda size: _private(size)[1:],
    rows=_rero_rows,
    plots=lambda size: [
        Lines(
            "bracket",
            "Measured success between a blind guess and the bounds",
            *("ε", "share of targets"),
            tuple(
                Line(label, tuple((e, Reading(what, f"ε={e:g}")) for e in size.values), attack=own)
                for label, what, own in (
                    ("φ (RecoNN) reached", "success", "reconstructor"),
                    ("ridge reached", "success", "ridge"),
                    ("no attack beats", "ceiling", ""),
                    ("Theorem 2", "theorem_2", ""),
                    ("κ", "kappa", ""),
                )
            ),
            log_x=True,
        )
    ],
    closeness=0.5,
    note=(
        "Success is coming within half the distance of the nearest known record; κ is bounded from "
        "records like the targets."
    ),
)

PARTS = (DP, DP_CIFAR, RERO)
