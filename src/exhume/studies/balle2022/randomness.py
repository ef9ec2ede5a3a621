"""Randomness that the adversary does not know, and differential privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from exhume.studies.balle2022.common import (
    LAPTOP,
    MNIST,
    PAPER,
    SLOW,
    failure,
    minutes,
    setting,
    sizes,
    success,
)
from exhume.studies.balle2022.released import worse
from exhume.studies.base import Embedding, Part, Picture, Size, Tables
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.run import Reading

_LEARNED = ("reconstructor", "ridge")
_TABLE_III = {
    (0.01, 0.0): (0.0041, 0.0693),
    (0.01, 0.9): (0.0049, 0.0691),
    (0.2, 0.0): (0.0063, 0.0692),
    (0.2, 0.9): (0.0089, 0.0695),
}
"""(learning rate, momentum): error with known and with random initial parameters."""


def _init_cells(size: Size) -> list[tuple[str, float, float]]:
    return [
        (f"{rate:g}, {momentum:g}", rate, momentum)
        for rate in size.values
        for momentum in sorted({0.0, size.momentum})
    ]


def _init(size: Size) -> Sequence[Tables]:
    found = []
    for name, rate, momentum in _init_cells(size):
        training = {"learning_rate": rate, "momentum": momentum}
        found.append(setting(size, f"known {name}", training=training))
        unknown = {"initial": False}
        found.append(setting(size, f"random {name}", training=training, knowledge=unknown))
    return found


def _init_rows(size: Size) -> Sequence[Row]:
    rows = []
    for name, rate, momentum in _init_cells(size):
        known, unknown = _TABLE_III.get((rate, momentum), ("–", "–"))
        label = f"learning rate {rate:g}, momentum {momentum:g}"
        rows.append(success(f"{label}, initial parameters known", known, f"known {name}"))
        rows.append(failure(f"{label}, random", unknown, f"random {name}"))
    name = _init_cells(size)[-1][0]
    rows += [_membership("known", name, "above", 0.95, "separable", "tells the target apart")]
    rows += [
        _membership("random", name, "below", 0.6, "nearly overlap", "can't tell the target apart")
    ]
    return rows


def _membership(
    start: str, name: str, relation: str, limit: float, published: str, says: str
) -> Row:
    reading = Reading("membership_auc", f"{start} {name}")
    needs = Needs("fixed_set", 10_000, "one record weighs more among fewer")
    claim = Claim(reading, relation, limit, f"membership {says}: AUC", attacks=("",), needs=needs)
    return Row(f"membership inference, {start} initial parameters", published, reading, claim)


INIT = Part(
    paper=PAPER,
    name="init",
    reference="appendix A, Table III, Figure 11",
    title="initial parameters known or not",
    sizes=sizes(
        replace(MNIST, values=(0.01, 0.2), membership=1000),
        replace(
            LAPTOP,
            shadow_targets=200,
            targets=8,
            epochs=50,
            momentum=0.0,
            values=(0.01, 0.2),
            membership=40,
        ),
        replace(SLOW, epochs=20, momentum=0.0, values=(0.2,), membership=12),
    ),
    minutes=minutes("20 days", "8 min"),
    settings=_init,
    rows=_init_rows,
    note=(
        "Membership: which of two records was trained on, by training again where the start is "
        "known and by 64 shadow models a candidate where it is not (the paper looks at losses)."
    ),
)


def _batches(size: Size) -> Sequence[Tables]:
    found = []
    for rate in (0.01, 0.2):
        for known in (True, False):
            name = f"rate {rate:g}, order {'known' if known else 'unknown'}"
            training = {
                "learning_rate": rate,
                "momentum": 0.0,
                "batch_size": int(size.values[0]),
            }
            found.append(setting(size, name, training=training, knowledge={"order": known}))
    return found


def _batch_rows(size: Size) -> Sequence[Row]:
    return [
        success("learning rate .01, order known", "succeeds", "rate 0.01, order known"),
        success("learning rate .01, order unknown", "succeeds", "rate 0.01, order unknown"),
        success("learning rate .2, order known", "succeeds", "rate 0.2, order known"),
        worse(
            "learning rate .2, order unknown against known",
            "much harder",
            "rate 0.2, order unknown",
            "rate 0.2, order known",
        ),
        worse(
            "order unknown, learning rate .2 against .01",
            "harder",
            "rate 0.2, order unknown",
            "rate 0.01, order unknown",
        ),
    ]


MINIBATCH = Part(
    paper=PAPER,
    name="minibatch",
    reference="section VI-B d, Figures 7, 8 and 23",
    title="mini-batches, in a known order or not",
    sizes=sizes(
        replace(MNIST, values=(1024,)),
        replace(LAPTOP, shadow_targets=150, targets=16, epochs=20, values=(64,)),
        replace(SLOW, values=(16,)),
    ),
    minutes=minutes("15 days", "3 min"),
    settings=_batches,
    rows=_batch_rows,
    embedding=Embedding(
        "t-SNE of 120 released models, coloured by their targets' labels (Figure 8)",
        tuple(f"rate {rate}, order {o}" for rate in ("0.01", "0.2") for o in ("known", "unknown")),
        120,
    ),
    note="Other batch sizes and momenta of the figures: --set values=64 and so on.",
)


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
    found = [setting(size, "not private")]
    for epsilon in size.values:
        clipping = {"norm": 1.0, "noise_multiplier": noise_multiplier(epsilon, size.epochs)}
        found.append(setting(size, f"ε={epsilon:g}", training={"clipping": clipping}))
    return found


def _private_rows(size: Size) -> Sequence[Row]:
    rows = [success("without privacy", 0.0089, "not private")]
    for epsilon in size.values:
        rows.append(failure(f"ε = {epsilon:g}", "mitigated", f"ε={epsilon:g}"))
    largest = f"ε={max(size.values):g}"
    reading = Reading("utility", largest)
    says = "accuracy on other records, against that without privacy"
    needs = Needs("fixed_set", 10_000, "noise weighs more among fewer records")
    plain = Reading("utility", "not private")
    claim = Claim(reading, "above", plain, says, factor=1.05, attacks=("",), needs=needs)
    rows.append(
        Row(f"test accuracy at ε = {max(size.values):g}", "negligible loss", reading, claim)
    )
    return rows


_DP = {
    "paper": replace(MNIST, values=(1, 10, 100, 1000, 10_000)),
    "laptop": replace(LAPTOP, shadow_targets=150, targets=16, epochs=20, values=(10, 1000)),
    "smoke": replace(SLOW, values=(10,), epochs=10),
}

DP = Part(
    paper=PAPER,
    name="dp",
    reference="section VI-D, Figures 9 and 10",
    title="training with differential privacy",
    sizes=sizes(_DP["paper"], _DP["laptop"], _DP["smoke"]),
    minutes=minutes("60 days", "5 min"),
    settings=_private,
    rows=_private_rows,
    pictures=(Picture("target, φ, ridge under DP-GD, nearest known record", ("ε=10",), _LEARNED),),
    note="DP-GD: gradients clipped to norm 1, noise for δ = 1e-5 that the adversary does not know.",
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
        replace(_DP["laptop"], values=(1, 10)),
        replace(_DP["smoke"], values=(1,)),
    ),
    minutes=minutes("60 days", "4 min"),
    settings=lambda size: _private(size)[1:],
    rows=_rero_rows,
    attacks=_LEARNED,
    closeness=0.5,
    note=(
        "Success is coming within half the distance of the nearest known record; κ is bounded from "
        "records like the targets."
    ),
)

PARTS = (INIT, MINIBATCH, DP, RERO)
