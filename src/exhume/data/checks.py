"""Check, once before training, that something can be learned from the records."""

from __future__ import annotations

import numpy as np

from exhume.data.dataset import Task
from exhume.protocol.arrays import Array, require_finite
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records


def check_for_training(records: Records, task: Task) -> None:
    """Raise InputError if no model for ``task`` can be trained on ``records``.

    This covers: no records, no features, NaN, identical records, and labels that are missing,
    identical or not of the task's kind: binary labels are 0 and 1, classes integers from 0, counts
    whole numbers from 0.

    >>> check_for_training(Records(np.eye(2), np.array([0, 1])), Task.BINARY)
    """
    _check_inputs(records)
    labels = records.labels
    require_finite(labels, "y")
    match task:
        case Task.BINARY:
            _check_binary(labels)
        case Task.MULTICLASS:
            _check_multiclass(labels)
        case Task.REGRESSION:
            _check_varied(labels, "response")
        case Task.COUNTS:
            _check_counts(labels)


def _check_inputs(records: Records) -> None:
    if not len(records):
        raise InputError("there are no records to train on: the data are empty")
    if not records.x[0].size:
        raise InputError(f"records of shape {records.record_shape} hold no values to learn from")
    if records.x.dtype.kind not in "biuf":
        raise InputError(f"records must be real numbers to train on, got {records.x.dtype}")
    require_finite(records.x, "x")
    if (records.x == records.x[0]).all():
        raise InputError(
            f"all {len(records)} records are the same: training needs at least two that differ"
        )


def _check_binary(labels: Array) -> None:
    present = np.unique(labels)
    if not np.isin(present, (0, 1)).all():
        raise InputError(f"binary labels must be 0 and 1, got {_listed(present)}")
    _check_several_classes(present)


def _check_multiclass(labels: Array) -> None:
    if labels.dtype.kind not in "iu":
        raise InputError(f"class labels must be integers 0, 1, …, got {labels.dtype}")
    present = np.unique(labels)
    if present[0] < 0:
        raise InputError(f"class labels must be integers from 0, got {present[0]}")
    _check_several_classes(present)


def _check_several_classes(present: Array) -> None:
    if len(present) < 2:
        raise InputError(
            f"every record has label {present[0]}: a classifier needs at least two classes"
        )


def _check_counts(labels: Array) -> None:
    wrong = (labels < 0) | (labels != np.floor(labels))
    if wrong.any():
        position = int(np.argmax(wrong))
        raise InputError(
            f"counts must be whole numbers from 0, got {labels[position]} in record {position}"
        )
    _check_varied(labels, "count")


def _check_varied(labels: Array, what: str) -> None:
    if (labels == labels[0]).all():
        raise InputError(f"every record has the same {what}, {labels[0]}: nothing can be learned")


def _listed(values: Array) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown}, … ({len(values)} different values)"
