"""Additions of a training to plain steps on a mean loss, and which of them can be combined."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from exhume.training.network import Training


def require_refinements(training: Training) -> None:
    """Raise InputError for a setting out of its range, or for two that exclude each other."""
    limit, stop = training.gradient_norm, training.stop_after
    if limit is not None and not 0 < limit < math.inf:
        raise InputError(f"gradient_norm must be a positive number, got {limit}")
    if stop is not None and stop < 1:
        raise InputError(f"stop_after must be at least 1 step, got {stop}")
    if not 0 <= training.label_smoothing < 1:
        raise InputError(f"label_smoothing must be in [0, 1), got {training.label_smoothing}")
    _require_class_weights(training)
    excluded = {
        "gradient_norm": limit is not None,
        "label_smoothing": training.label_smoothing > 0,
        "class_weights": training.class_weights is not None,
        "augmentation": training.augmentation is not None,
    }
    for name, given in excluded.items():
        if training.clipping is not None and given:
            raise InputError(f"{name} goes without clipping, whose accounting does not cover it")


def _require_class_weights(training: Training) -> None:
    weights, classes = training.class_weights, training.classes
    if classes is None and (weights is not None or training.label_smoothing):
        raise InputError("class_weights and label_smoothing go with classes, not with a regression")
    if weights is None or classes is None:
        return
    if len(weights) != len(classes):
        raise InputError(f"class_weights has {len(weights)} numbers for {len(classes)} classes")
    if not all(0 < one < math.inf for one in weights):
        raise InputError(f"class_weights must be positive numbers, got {weights}")


def described_refinements(training: Training) -> list[str]:
    """Return one phrase per refinement, for the report."""
    found = []
    if training.schedule is not None:
        found.append(training.schedule.describe())
    if training.gradient_norm is not None:
        found.append(f"gradients cut to length {training.gradient_norm:g}")
    if training.label_smoothing:
        found.append(f"label smoothing {training.label_smoothing:g}")
    if training.class_weights is not None:
        found.append("weighted classes")
    if training.augmentation is not None:
        found.append(f"records {training.augmentation.describe()}")
    if training.stop_after is not None:
        found.append(f"stopped after {training.stop_after} steps")
    return found
