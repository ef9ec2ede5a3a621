"""What a defence costs: the victim is really trained with it, from several seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Run:
    """One training with the defence in the loop, from one seed.

    Losses are means over the training and the test records, ``accuracy`` the share of test records
    classified rightly (None in a regression); all None where the training ``diverged``.
    ``epsilon`` at ``delta`` is what the whole training guarantees a record, None for nothing.
    """

    seed: int
    training_loss: float | None
    test_loss: float | None
    accuracy: float | None
    diverged: bool = False
    rounds: int = 0
    seconds: float = 0.0
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with Student's 95 % interval; without one where there is one seed."""

    mean: float
    low: float | None = None
    high: float | None = None


def mean_interval(values: Sequence[float], *, confidence: float = 0.95) -> Mean:
    """Return the mean of a few values with Student's interval.

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (2.0, -0.484, 4.484)
    """
    if not values:
        return Mean(math.nan)
    mean = float(np.mean(values))
    if len(values) == 1:
        return Mean(mean)
    from scipy.stats import t

    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(t.ppf((1 + confidence) / 2, len(values) - 1)) * error
    return Mean(mean, mean - half, mean + half)


def runs_of(fact: Mapping[str, Any]) -> tuple[Run, ...]:
    """Return the trainings among a setting's facts, in the order of their seeds."""
    return tuple(Run(**plain) for plain in fact.get("trainings", ()))
