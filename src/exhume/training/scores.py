"""The quality of a network at given parameters: mean loss and accuracy on records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from exhume.protocol.arrays import Array
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep

if TYPE_CHECKING:
    import torch

    from exhume.derivatives.objective import Objective

_AT_ONCE = 500


@dataclass(frozen=True)
class Score:
    """Mean loss, and the share of correctly classified records (None in a regression)."""

    loss: float
    accuracy: float | None


def scored(
    step: GradientStep, parameters: Mapping[str, Array], records: Records, *, seen: Records
) -> Score:
    """Score a network at ``parameters`` on ``records``, each record separately.

    If batch normalisation was trained with its batches' own statistics, it needs others for that.
    They are recomputed from ``seen``, the training records, at these parameters. A step with
    running statistics keeps its own.
    """
    import torch

    if step.batch_norm == "train":
        found = _statistics(step, parameters, seen)
        step = replace(step, buffers=found or None, batch_norm="eval")
    objective = step.objective()
    theta, total, right = objective.flat(parameters), 0.0, 0
    with torch.no_grad():
        for x, y in _parts(objective, step, records):
            total += float(objective.losses(theta, x, y).double().sum())
            if step.classes is not None:
                right += int((objective.scores(theta, x).argmax(dim=1) == y).sum())
    return Score(total / len(records), None if step.classes is None else right / len(records))


def _statistics(
    step: GradientStep, parameters: Mapping[str, Array], seen: Records
) -> dict[str, Array]:
    """Return the running statistics of batch normalisation as the mean over all of ``seen``."""
    import torch

    objective = step.objective()
    layers = torch.nn.modules.batchnorm._BatchNorm
    norms = [layer for layer in objective.module.modules() if isinstance(layer, layers)]
    if not norms:
        return {}
    for layer in norms:
        layer.track_running_stats = True
        layer.reset_running_stats()
        # None weights every batch equally, instead of the last ones most.
        layer.momentum = None
    theta = objective.flat(parameters)
    with torch.no_grad():
        for x, _ in _parts(objective, step, seen):
            objective.scores(theta, x)
    return {n: b.detach().cpu().numpy().copy() for n, b in objective.module.named_buffers()}


def _parts(
    objective: Objective, step: GradientStep, records: Records
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for start in range(0, len(records), _AT_ONCE):
        part = records.take(slice(start, start + _AT_ONCE))
        yield objective.tensor(part.x), objective.responses(step.responses(part.labels))
