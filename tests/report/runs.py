"""Run folders written straight through the store, with errors of one's choice."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from exhume.runlog.codec import decoded, encoded
from exhume.runlog.outcome import Outcome, Trial
from exhume.runlog.setting import Setting
from exhume.runlog.store import Store
from exhume.runlog.table_columns import TableColumn

NEAREST = 0.2
"""The distance from every target to its nearest known record."""
BOUND = [{"closeness": c, "kappa": k, "gamma": g} for c, k, g in ((0.5, 0.02, 0.1), (1, 0.1, 0.4))]


@dataclass(frozen=True)
class Attempt:
    """One attack: how its trials ended, and how far off it was on each target (in turn)."""

    attack: str
    errors: tuple[float | None, ...] = (0.01,)
    statuses: tuple[str, ...] = ("CONVERGED",)
    message: str = "closed form"
    estimate: float | None = 0.01
    baseline: bool = False


BLIND = Attempt("oblivious", (0.25, 0.3, 0.35), message="a constant guess", baseline=True)
REFUSED = Attempt("scaler", (None,), ("REFUSED",), "the release holds no scaler", None)


@dataclass(frozen=True)
class Made:
    """One setting of a run."""

    name: str
    attempts: tuple[Attempt, ...] = (Attempt("glm"), REFUSED, BLIND)
    title: str = "A made-up setting"
    shape: tuple[int, ...] = (8, 8)
    count: int = 10
    known: bool = True
    bounded: bool = False
    defences: tuple[str, ...] = ()
    utility: float | None = 0.9
    group: str = ""
    defence: str = ""
    accuracies: tuple[float, ...] = ()
    floor: float | None = None
    columns: tuple[TableColumn, ...] = ()

    def targets(self) -> np.ndarray:
        """The targets: no two values alike, none of which could stand in a page by chance."""
        rng = np.random.default_rng(len(self.group or self.name))
        if self.columns:
            return _rows(self.columns, self.count, rng)
        return rng.uniform(0.1, 0.7, (self.count, *self.shape))


def _rows(columns: tuple[TableColumn, ...], count: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of a table: numbers written to their last place, and every level in turn."""
    parts = []
    for column in columns:
        if column.numeric:
            cells = np.round(rng.uniform(20, 60, count) / column.step) * column.step
            parts.append(((cells - column.mean) / column.scale)[:, None])
        else:
            parts.append(np.eye(len(column.levels))[np.arange(count) % len(column.levels)])
    return np.hstack(parts)


def write(folder: Path, *made: Made, expected: int | None = None, closeness: float = 1.0) -> Path:
    """Write a run folder with these settings and return its path."""
    with Store.create(folder) as store:
        total = sum(len(one.attempts) * one.count for one in made)
        tables = [
            {
                "name": one.name,
                "title": one.title,
                "release": {"defences": list(one.defences)},
                "group": one.group,
                "defence": one.defence,
            }
            for one in made
        ]
        config = {"audit": {"seed": 7, "closeness": closeness}, "setting": tables}
        notes = {
            "config": json.dumps(config),
            "versions": json.dumps({"python": "3.11", "exhume": "0.1.0"}),
            "exhume_version": "0.1.0",
            "command": "exhume audit made.toml --out here",
            "expected_trials": str(total if expected is None else expected),
        }
        for name, value in notes.items():
            store.set_meta(name, value)
        for index, one in enumerate(made):
            _write_setting(store, index, one, closeness)
    return folder


def _write_setting(store: Store, index: int, made: Made, closeness: float) -> None:
    targets = made.targets()
    if made.known:
        arrays = {
            "targets": targets,
            "nearest": targets + NEAREST,
            "nearest_distance": np.full(made.count, NEAREST),
        }
        store.save_arrays(f"{index:03d}-truth", arrays)
    plain = {**_facts(made), "truth": f"{index:03d}-truth"}
    setting = decoded(Setting, plain)
    store.add_setting(replace(setting, trainings=()))
    for training in setting.trainings:
        store.add_training(made.name, training)
    for attempt in made.attempts:
        artefact = f"{index:03d}-{len(attempt.attack)}-{made.attempts.index(attempt)}"
        records = [_record(made, attempt, i, artefact, closeness) for i in range(made.count)]
        samples = {
            f"{i}.samples": targets[None, i] + attempt.errors[i % len(attempt.errors)]
            for i in range(made.count)
            if attempt.errors[i % len(attempt.errors)] is not None
        }
        store.save_arrays(artefact, samples or {"none": np.zeros(1)})
        store.add_outcomes(records, {"python": "3.11"})


def _record(made: Made, attempt: Attempt, index: int, artefact: str, closeness: float) -> Outcome:
    error = attempt.errors[index % len(attempt.errors)] if made.known else None
    threshold = NEAREST * closeness
    return Outcome(
        Trial(made.name, attempt.attack, index, 7, json.dumps([made.name, attempt.attack])),
        status=attempt.statuses[index % len(attempt.statuses)],
        message=attempt.message,
        success=(error is not None and error <= threshold) if made.known else None,
        distance=error,
        threshold=threshold if made.known else None,
        scores={"rmse": error, "psnr": None if not error else -20 * math.log10(error)},
        label_correct=True if error is not None else None,
        error_estimate=attempt.estimate,
        artefact=artefact,
        row=index,
        seconds=0.25,
        baseline=attempt.baseline,
    )


def _facts(made: Made) -> dict[str, Any]:
    note = "bounded from 50 records" if made.bounded else "no bound holds: not private"
    return {
        "name": made.name,
        "title": made.title,
        "threat": ["Released: the weights of a model.", "It wants one record."],
        "fixed_set": 100,
        "targets": made.count,
        "record_shape": list(made.targets().shape[1:]),
        "value_range": None if made.columns else [0.0, 1.0],
        "columns": [column.name for column in made.columns],
        "schema": encoded(made.columns),
        "unit": "root mean square, on values from 0 to 1",
        "nearest_mean": NEAREST if made.known else None,
        "percentile_levels": [1.0, 10.0, 50.0] if made.known else [],
        "percentile_means": [0.22, 0.3, 0.4] if made.known else [],
        "event": "GaussianDpEvent(noise_multiplier=1.0)",
        "bound": BOUND if made.bounded else [],
        "bound_at": BOUND[1] if made.bounded else None,
        "bound_method": "gaussian" if made.bounded else "",
        "bound_binds": "every attack" if made.bounded else "",
        "bound_note": note,
        "utility_name": "accuracy",
        "utility": made.utility,
        "defended": bool(made.defences),
        "group": made.group,
        "defence": made.defence,
        "trainings": [_training(seed, share) for seed, share in enumerate(made.accuracies)],
        "floor": made.floor,
        "floor_binds": "unbiased attacks" if made.floor else "",
    }


def _training(seed: int, accuracy: float) -> dict[str, Any]:
    loss = 2.0 * (1.0 - accuracy)
    return {"seed": seed, "training_loss": loss, "test_loss": loss, "accuracy": accuracy}
