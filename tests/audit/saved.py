"""A model fitted with scikit-learn and what belongs to it, as files that an audit reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import exhume.sklearn
from exhume.data import load

TOML = """
[release]
model = "logistic"
file = "{file}"
penalty = {{ strength = 1.0 }}
solver = {{ name = "newton-cholesky", tolerance = 1e-12 }}

[knowledge]
fixed_set = "known.npz"
{knowledge}

[audit]
{audit}
"""


@dataclass(frozen=True, eq=False)
class Saved:
    """A folder with model.safetensors, known.npz and truth.npz, and the record they are about."""

    folder: Path
    record: np.ndarray
    label: int

    def write_toml(
        self, *, truth: bool = True, file: str = "model.safetensors", knowledge: str = ""
    ) -> Path:
        """Write audit.toml, with or without the truth."""
        audit = 'truth = "truth.npz"' if truth else ""
        path = self.folder / "audit.toml"
        path.write_text(TOML.format(file=file, audit=audit, knowledge=knowledge))
        return path


def save(folder: Path, *, target: int = 17) -> Saved:
    """Fit scikit-learn's own logistic regression on 120 tumours, one of them the target."""
    records = load("breast-cancer").train
    x = (records.x - records.x.mean(axis=0)) / records.x.std(axis=0)
    x, y = x[:120], records.labels[:120]
    model = LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(x, y)
    exhume.sklearn.save(model, folder / "model.safetensors")
    known = np.arange(120) != target
    np.savez(folder / "known.npz", x=x[known], y=y[known])
    np.savez(folder / "truth.npz", x=x[[target]], y=y[[target]])
    return Saved(folder, x[target], int(y[target]))
