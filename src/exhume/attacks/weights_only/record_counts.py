"""The number of records to search for, and their classes, if they are not given."""

from __future__ import annotations

import numpy as np

from exhume.attacks.weights_only.read_weights import Released, trained
from exhume.protocol.arrays import Array
from exhume.protocol.attack import Lacking, Refusal
from exhume.protocol.knowledge import Knowledge
from exhume.training.model import Label


def uncounted(attack: str) -> Refusal:
    """Return the refusal of an attack to which nothing says how many records there are."""
    key = f"options.{attack}.records, or knowledge.labels"
    return Refusal(Lacking("the number of records must be given, or their labels", key))


def record_count(asked: int | None, network: Released, knowledge: Knowledge) -> int | None:
    """Return the number of records: given, one per label, or one per direction in W.

    Returns None if none of these is available.
    """
    if asked is not None:
        return asked
    if knowledge.labels is not None:
        return len(knowledge.labels)
    if network.first is None:
        return None
    singular = np.linalg.svd(network.first, compute_uv=False)
    # In a wide layer, half of the singular values belong to no record: they show the noise level.
    return max(2, int(np.sum(singular > 2.0 * np.median(singular))))


def candidate_classes(network: Released, knowledge: Knowledge, count: int) -> Array:
    """Return class indices (count,): the known labels in turn, or equally many per class."""
    classes = max(2, network.classes)
    names = class_names(knowledge)
    if knowledge.labels is not None and names is not None:
        known = np.array([names.index(label) for label in knowledge.labels.tolist()])
        return np.asarray(known[np.arange(count) % len(known)])
    return np.arange(count) % classes


def class_names(knowledge: Knowledge) -> tuple[Label, ...] | None:
    """Return the labels in the order of the classes, or None for a regression."""
    training = trained(knowledge)
    return None if training is None else training.classes
