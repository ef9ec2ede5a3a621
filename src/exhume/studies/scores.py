"""Every target's scores of a run: what intervals are computed and points are drawn from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exhume.arrays import FloatArray
from exhume.audit.record import Record
from exhume.audit.store import Store
from exhume.report.evidence import read_truth
from exhume.report.facts import read_facts

Scores = Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]]
"""By setting, attack and metric: a number a target, None where the attack left nothing."""
ORACLE = "oracle"
"""Stands where an attack's name would: the nearest record that the adversary had."""


def collect(folder: Path) -> Scores:
    """Return the scores that a run folder holds, rounded to five digits."""
    with Store.open(folder) as store:
        records = store.records()
        found: dict[str, dict[str, dict[str, list[float | None]]]] = {}
        for name, plain in store.facts().items():
            mine = [r for r in records if r.trial.setting == name]
            attacks = dict.fromkeys(r.trial.attack for r in mine)
            targets = int(plain["targets"])
            found[name] = {
                attack: _by_metric([r for r in mine if r.trial.attack == attack], targets)
                for attack in attacks
            }
            nearest = _nearest(store, plain)
            if nearest is not None:
                found[name][ORACLE] = {"mse": [_rounded(value) for value in nearest]}
    return found


def _nearest(store: Store, facts: Mapping[str, Any]) -> FloatArray | None:
    """Return the squared errors of the nearest known records, where that is how they were chosen.

    Tables are compared in standard deviations, which is another distance.
    """
    truth, mean = read_truth(store, read_facts(facts)), facts.get("nearest_mse")
    if truth is None or mean is None:
        return None
    squares = np.square(np.asarray(truth.targets - truth.nearest, dtype=np.float64))
    found = squares.reshape(len(squares), -1).mean(axis=1)
    return found if np.isclose(found.mean(), mean, rtol=1e-3) else None


def _by_metric(records: Sequence[Record], targets: int) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {
        name: [None] * targets for name in dict.fromkeys(n for r in records for n in r.scores)
    }
    for record in records:
        for name, value in record.scores.items():
            found[name][record.trial.target] = _rounded(value)
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
