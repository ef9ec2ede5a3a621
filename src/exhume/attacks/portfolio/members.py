"""Who takes part, and what each makes of its part of the budget."""

from __future__ import annotations

from dataclasses import replace

from exhume.attacks.analytic import Cocktail, FirstLayer, Imprint, Sparsity
from exhume.attacks.base import Attack
from exhume.attacks.features import Features
from exhume.attacks.matching import (
    DLG,
    IDLG,
    BatchNormMatching,
    Geiping,
    GenerativePrior,
    LiuMatching,
)

ROUND = 25
"""Evaluations that a round of L-BFGS takes, about."""
LEAST = 8
"""Steps below which a schedule makes no sense."""


def direct_members() -> tuple[Attack, ...]:
    """Return the attacks that solve for the batch, the cheapest first."""
    return FirstLayer(), Imprint(), Sparsity(), Features(), Cocktail()


def matching_members(*, labels_known: bool) -> tuple[Attack, ...]:
    """Return the attacks that search for the batch; iDLG is DLG where labels are known."""
    first: tuple[Attack, ...] = (DLG(),) if labels_known else (IDLG(), DLG())
    return (*first, Geiping(), BatchNormMatching(), LiuMatching(), GenerativePrior())


def within(attack: Attack, evaluations: int, *, smooth: bool) -> Attack:
    """Return the attack with settings that take about as many evaluations.

    Gauss–Newton is left out where a network has kinks: it is for smooth ones.
    """
    steps = max(LEAST, evaluations)
    match attack:
        case DLG():
            jacobians = attack.jacobians if smooth else 0
            rounds = min(attack.steps, max(1, evaluations // ROUND))
            return replace(attack, steps=rounds, starts=1, jacobians=jacobians)
        case GenerativePrior():
            half = max(LEAST, steps // 2)
            return replace(attack, steps=half, training_steps=half, restarts=1)
        case Geiping() | BatchNormMatching() | LiuMatching():
            return replace(attack, steps=steps, restarts=1)
        case _:
            return attack
