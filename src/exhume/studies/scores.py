"""Every target's scores of a run: the basis of intervals and of points in figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.runlog.artefacts import read_truth
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting
from exhume.runlog.store import Store

Scores = Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]]
"""By setting, attack and metric: one number per target, None if the attack returned nothing."""
ORACLE = "oracle"
"""Used in place of an attack's name: the nearest record that the adversary had."""


def collect(folder: Path) -> Scores:
    """Return the scores that a run folder holds, rounded to five digits."""
    with Store.open(folder) as store:
        run = store.run()
        found: dict[str, dict[str, dict[str, list[float | None]]]] = {}
        for setting in run.settings:
            name, targets = setting.name, setting.data.targets
            mine = run.of(name)
            attacks = dict.fromkeys(r.trial.attack for r in mine)
            found[name] = {
                attack: _by_metric([r for r in mine if r.trial.attack == attack], targets)
                for attack in attacks
            }
            nearest = _nearest(store, setting)
            if nearest is not None:
                found[name][ORACLE] = {"mse": [_rounded(value) for value in nearest]}
    return found


def _nearest(store: Store, setting: Setting) -> FloatArray | None:
    """Return the squared errors of the nearest known records, if this distance selected them.

    Tables are compared in standard deviations, which is another distance.
    """
    truth, mean = read_truth(store, setting), setting.nearest.mean_square
    if truth is None or mean is None:
        return None
    squares = np.square(np.asarray(truth.targets - truth.nearest, dtype=np.float64))
    found = squares.reshape(len(squares), -1).mean(axis=1)
    return found if np.isclose(found.mean(), mean, rtol=1e-3) else None


def _by_metric(records: Sequence[Outcome], targets: int) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {
        name: [None] * targets for name in dict.fromkeys(n for r in records for n in r.scores)
    }
    for record in records:
        for name, value in record.scores.items():
            found[name][record.trial.target] = _rounded(value)
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
