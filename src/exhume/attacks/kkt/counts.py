"""How many records a search looks for, and of which classes, where nobody tells."""

from __future__ import annotations

import numpy as np

from exhume.arrays import Array
from exhume.attacks.kkt.general import Released
from exhume.attacks.kkt.network import trained
from exhume.knowledge import Knowledge
from exhume.training.model import Label


def record_count(asked: int | None, network: Released, knowledge: Knowledge) -> int | None:
    """How many records to look for: asked for, as many as labels, or as W has directions.

    None where nothing tells.
    """
    if asked is not None:
        return asked
    if knowledge.labels is not None:
        return len(knowledge.labels)
    if network.first is None:
        return None
    singular = np.linalg.svd(network.first, compute_uv=False)
    # Half of the values belong to no record where the layer is wide; they are the noise.
    return max(2, int(np.sum(singular > 2.0 * np.median(singular))))


def candidate_classes(network: Released, knowledge: Knowledge, count: int) -> Array:
    """Return class indices (count,): the known labels in turn, or as many of each class."""
    classes = max(2, network.classes)
    names = class_names(knowledge)
    if knowledge.labels is not None and names is not None:
        known = np.array([names.index(label) for label in knowledge.labels.tolist()])
        return np.asarray(known[np.arange(count) % len(known)])
    return np.arange(count) % classes


def class_names(knowledge: Knowledge) -> tuple[Label, ...] | None:
    """Return the labels in the order of the classes; None for a regression."""
    training = trained(knowledge)
    return None if training is None else training.classes
