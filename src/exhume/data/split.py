"""The split of records into the fixed set, the shadow targets, and the targets."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.seeds import stream


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

    Real data contain copies. A record is no target if its values occur in the fixed set, the
    shadow targets or the targets drawn before, whatever its label. An adversary that had it before
    did not rebuild it, and the same target twice is not a second trial. The next record in the
    random order takes its place. Copies within the fixed set and the shadow targets
    are kept, because the data contain them.

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
            f"only {len(fresh)} of the {len(records) - pool} remaining records can be targets, "
            f"{targets} are needed: the others are copies of records drawn before; request a "
            "smaller split"
        )
    return Split(
        records.take(order[:fixed_set]), records.take(order[fixed_set:pool]), records.take(fresh)
    )


def all_but_targets(records: Records, *, targets: int, seed: int) -> Split:
    """Draw targets; all other records are the fixed set.

    As in ``split_records``, no target is a copy of another record.

    >>> parts = all_but_targets(Records(np.array([[1.0], [1.0], [2.0], [3.0]])), targets=2, seed=0)
    >>> sorted(parts.targets.x[:, 0].tolist()), len(parts.fixed_set)
    ([2.0, 3.0], 2)
    """
    order = stream(seed, "data").permutation(len(records))
    marks = [_fingerprint(record) for record in records.x]
    often = Counter(marks)
    single = [int(i) for i in order[::-1] if often[marks[i]] == 1]
    if len(single) < targets:
        raise InputError(
            f"only {len(single)} of {len(records)} records can be targets, {targets} are needed: "
            "the others are copies of each other"
        )
    chosen = single[:targets]
    rest = order[~np.isin(order, chosen)]
    return Split(records.take(rest), records.take([]), records.take(chosen))


def without_copies(records: Records, *pools: Records) -> Records:
    """Return ``records``, in order, without those whose values also occur in one of ``pools``.

    For targets and pools that come from different data sets; copies among ``records`` themselves
    are kept.
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
    """Keep the records of ``classes``, renumbered: the first named is class 0, and so on.

    >>> pair = restrict_classes(Records(np.eye(4), np.array([3, 7, 3, 1])), [7, 3])
    >>> pair.labels.tolist()
    [1, 0, 1]
    """
    if not classes or len(set(classes)) < len(classes):
        raise InputError(f"name at least one class to keep, each once, got {list(classes)}")
    labels = records.labels
    absent = [label for label in classes if not (labels == label).any()]
    if absent:
        there = ", ".join(str(label) for label in np.unique(labels)[:20])
        raise InputError(f"no record has class {absent[0]}; the existing classes are {there}")
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
