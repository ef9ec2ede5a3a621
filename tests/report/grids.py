"""Grids of defences as run folders: small ones to read, and one of 2,000 trials to weigh."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.report.runs import BLIND, Attempt, Made, write

from exhume.runlog.store import Store

STOPPED = Attempt("geiping", (0.3,), ("NOT_CONVERGED",), "no progress for 100 steps", None)


def member(name: str, *errors: float, attack: str = "geiping", **options: object) -> Made:
    """One member of the grid "net": an attack with these errors, and the blind guess."""
    attempts = (Attempt(attack, errors), BLIND) if errors else (STOPPED, BLIND)
    made = Made(
        f"net, {name}" if name else "net",
        attempts,
        group="net",
        defence=name,
        defences=(name,) if name else (),
        count=6,
    )
    return replace(made, **options)


SMALL = (
    member("", 0.05, 0.01, 0.09, 0.03, 0.07, 0.02, accuracies=(0.9, 0.91, 0.9), floor=0.004),
    member("noise", 0.2, 0.22, 0.24, accuracies=(0.8, 0.79, 0.81), floor=0.1),
    member("prune", 0.15, 0.16, 0.17, accuracies=(0.89, 0.9, 0.89)),
    member("sign", accuracies=(0.7, 0.72, 0.71)),
)
"""No defence, two against which attacks ran, and one against which no attack finished."""


def large(folder: Path, *, defences: int = 20, attacks: int = 10, targets: int = 10) -> Path:
    """Write a grid of 32 × 32 × 3 pictures whose reconstructions are noise: the worst to pack."""
    rng = np.random.default_rng(0)
    made = []
    for place in range(defences):
        attempts = [
            Attempt(
                f"attack {a}",
                tuple(0.02 + 0.3 * rng.uniform(0.4, 1) * (place + a) / 28 for _ in range(targets)),
                ("NOT_CONVERGED",) if (place, a) in ((7, 3), (7, 4), (12, 9)) else ("CONVERGED",),
            )
            for a in range(attacks)
        ]
        name = f"defence number {place}" if place else ""
        lost = 0.2 * rng.uniform() * place / defences
        options = {
            "attempts": (*attempts, BLIND),
            "shape": (32, 32, 3),
            "count": targets,
            "accuracies": tuple(0.9 - lost + 0.01 * rng.normal() for _ in range(3)),
            "floor": 0.01 + 0.005 * place if place % 3 == 0 else None,
        }
        made.append(member(name, 0.1, **options))
    path = write(folder, *made)
    _with_noise(path)
    return path


def _with_noise(folder: Path) -> None:
    """Turn every reconstruction's error into noise of the same size."""
    rng = np.random.default_rng(1)
    with Store.create(folder) as store:
        truth = store.arrays("000-truth")["targets"]
        for path in sorted((folder / "artefacts").glob("*.safetensors")):
            if path.stem.endswith("truth"):
                continue
            noisy = {}
            for name, samples in store.arrays(path.stem).items():
                target = truth[int(name.partition(".")[0])]
                size = np.abs(samples[0] - target).mean()
                noisy[name] = (target + size * rng.choice((-1.0, 1.0), target.shape))[None]
            store.save_arrays(path.stem, noisy)
