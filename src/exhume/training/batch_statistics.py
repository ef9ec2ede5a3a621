"""The normalisation statistics of a batch, as a client would send them."""

from __future__ import annotations

import torch

from exhume.protocol.arrays import FloatArray
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep
from exhume.training.simulation import OneGradient, watch_statistics


def batch_statistics(step: GradientStep, records: Records) -> dict[str, FloatArray]:
    """Return each normalisation's input mean and (biased) variance per channel on ``records``.

    Names are ``<layer>.running_mean`` and ``<layer>.running_var``, as in ``Knowledge.batch_norm``
    if the statistics are sent with the gradient.
    """
    objective = step.objective()
    simulation = OneGradient(objective, step.parameters(), tuple(objective.shapes))
    names = watch_statistics(simulation)
    with torch.no_grad():
        objective.module(objective.tensor(records.x))
    found: dict[str, FloatArray] = {}
    for name, (mean, variance) in zip(names, simulation.watch.statistics, strict=True):
        found[f"{name}.running_mean"] = mean.cpu().numpy()
        found[f"{name}.running_var"] = variance.cpu().numpy()
    return found
