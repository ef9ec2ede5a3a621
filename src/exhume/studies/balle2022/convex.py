"""Section III: closed-form reconstruction from generalised linear models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.balle2022.common import PAPER
from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Row
from exhume.studies.run import Reading

_MODELS = {
    "linear": ("diabetes", 0.0),
    "ridge": ("diabetes", 1.0),
    "logistic": ("breast-cancer", 1.0),
    "multinomial": ("wine", 1.0),
    "poisson": ("diabetes-counts", 1.0),
}
"""Every family with a table to train it on, and the strength of its penalty."""


def _settings(size: Size) -> Sequence[Tables]:
    return [
        {
            "name": model,
            "data": {"name": data, "units": "fixed-set"},
            "release": {"model": model, "penalty": {"strength": strength}},
        }
        for model, (data, strength) in _MODELS.items()
    ]


def _rows(size: Size) -> Sequence[Row]:
    error = "error of a value, in standard deviations"
    return [
        Row(
            f"{model} regression, {error}",
            "exact",
            Reading("rmse.median", model),
            Claim(
                Reading("rmse.q95", model),
                "below",
                1e-3,
                "the record comes out, for 95 % of the targets",
                attacks=("glm",),
            ),
        )
        for model in _MODELS
    ]


_SIZE = Size(data="", fixed_set=0, targets=40)

GLM = Part(
    paper=PAPER,
    name="glm",
    reference="section III, Theorem 1",
    title="closed-form reconstruction from linear models",
    sizes=sizes(_SIZE, _SIZE, replace(_SIZE, targets=6)),
    minutes=minutes("under 1 min", "under 1 min"),
    settings=_settings,
    rows=_rows,
    attacks=("glm",),
    metrics=("rmse",),
    note=(
        "The paper proves it and shows no figure; its formula for the label is wrong as printed, "
        "the attack solves the corrected one. Half of each table is the fixed set."
    ),
)
