"""Who holds which records: the fixed set, the shadow targets, and the targets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array
from exhume.errors import InputError
from exhume.records import Records
from exhume.seeds import stream


@dataclass(frozen=True, eq=False)
class Split:
    """Three disjoint sets of records (Balle et al. 2022, Section II).

    ``fixed_set`` is D₋, what the model is trained on beside the target; ``shadow_targets`` are the
    records like the target that an adversary may train on; ``targets`` are attacked one by one.
    """

    fixed_set: Records
    shadow_targets: Records
    targets: Records


def split_records(
    records: Records, *, fixed_set: int, shadow_targets: int, targets: int, seed: int
) -> Split:
    """Draw three disjoint random sets of exactly these sizes, from the stream (seed, "data").

    Real data hold copies. A record whose values (whatever its label) also sit in the fixed set,
    among the shadow targets or among the targets already drawn is never a target: an adversary that
    had it before can't be said to have rebuilt it, and a target counted twice is no second trial.
    The next record in the random order takes its place. Copies within the fixed set and the shadow
    targets stay: they are what the data look like.

    >>> ten = Records(np.arange(10.0)[:, None])
    >>> parts = split_records(ten, fixed_set=4, shadow_targets=3, targets=2, seed=0)
    >>> len(parts.fixed_set), len(parts.shadow_targets), len(parts.targets)
    (4, 3, 2)
    """
    _check_sizes(fixed_set, shadow_targets, targets)
    wanted, pool = fixed_set + shadow_targets + targets, fixed_set + shadow_targets
    if wanted > len(records):
        raise InputError(
            f"the split needs {wanted} records ({fixed_set} fixed, {shadow_targets} shadow "
            f"targets, {targets} targets), but there are only {len(records)}"
        )
    order = stream(seed, "data").permutation(len(records))
    fresh = _fresh(records.x, known=order[:pool], candidates=order[pool:], count=targets)
    if len(fresh) < targets:
        raise InputError(
            f"only {len(fresh)} of the {len(records) - pool} records left can be targets, "
            f"{targets} are needed: the others are copies of records drawn before; "
            "ask for a smaller split"
        )
    return Split(
        records.take(order[:fixed_set]), records.take(order[fixed_set:pool]), records.take(fresh)
    )


def without_copies(records: Records, *pools: Records) -> Records:
    """Return ``records``, in order, without those whose values also sit in one of ``pools``.

    For targets and pools that come from different data sets; copies among ``records`` themselves
    stay.
    """
    for pool in pools:
        if pool.record_shape != records.record_shape:
            raise InputError(
                f"the pool has records of shape {pool.record_shape}, expected "
                f"{records.record_shape}"
            )
    known = {_fingerprint(record) for pool in pools for record in pool.x}
    keep = [i for i, record in enumerate(records.x) if _fingerprint(record) not in known]
    return records.take(keep) if len(keep) < len(records) else records


def restrict_classes(records: Records, classes: Sequence[int]) -> Records:
    """Keep the records of ``classes`` and number these anew: the first named is class 0, and so on.

    >>> pair = restrict_classes(Records(np.eye(4), np.array([3, 7, 3, 1])), [7, 3])
    >>> pair.labels.tolist()
    [1, 0, 1]
    """
    if not classes or len(set(classes)) < len(classes):
        raise InputError(f"name each class to keep once, at least one, got {list(classes)}")
    labels = records.labels
    absent = [label for label in classes if not (labels == label).any()]
    if absent:
        there = ", ".join(str(label) for label in np.unique(labels)[:20])
        raise InputError(f"no record has class {absent[0]}; the classes there are {there}")
    kept = np.flatnonzero(np.isin(labels, classes))
    numbers = np.zeros(len(kept), dtype=np.int64)
    for number, label in enumerate(classes):
        numbers[labels[kept] == label] = number
    return Records(records.x[kept], numbers)


def _check_sizes(fixed_set: int, shadow_targets: int, targets: int) -> None:
    for name, size, least in (
        ("fixed_set", fixed_set, 0),
        ("shadow_targets", shadow_targets, 0),
        ("targets", targets, 1),
    ):
        if size < least:
            raise InputError(f"{name} must be at least {least}, got {size}")


def _fresh(x: Array, *, known: Array, candidates: Array, count: int) -> list[int]:
    seen = {_fingerprint(x[i]) for i in known}
    fresh: list[int] = []
    for i in candidates:
        if len(fresh) == count:
            break
        mark = _fingerprint(x[i])
        if mark not in seen:
            seen.add(mark)
            fresh.append(int(i))
    return fresh


def _fingerprint(record: Array) -> bytes:
    # Equal values must give equal bytes: one type, and -0.0 turned into 0.0 by adding zero.
    values = record.astype(np.float64) + 0.0
    return hashlib.blake2b(values.tobytes(), digest_size=16).digest()
