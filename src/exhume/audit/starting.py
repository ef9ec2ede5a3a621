"""Searches that begin where a setting says, and how far from there they end.

This is the one place where training records are handed to an attack: a study of how much depends
on the start (Runkel et al. 2024) asks whether a search that begins at the truth stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.starts import GivenStart, MixedStart, UniformStart
from exhume.audit.setting import Setting
from exhume.config import SettingTable
from exhume.errors import InputError
from exhume.reconstruction import Reconstruction

COLUMNS = ("nearest-training", "nearest-shadow", "parameters")
"""What is measured beside the metrics where a setting says where searches begin."""


@dataclass(frozen=True, eq=False)
class Beginning:
    """The two sets of records that a release's search may begin at."""

    training: Array
    shadows: Array


def beginning(setting: Setting, group: Sequence[int]) -> Beginning:
    """Return a release's own records, and as many shadow targets of the same classes."""
    targets, pool = setting.targets, setting.shadow_targets
    if targets is None or pool is None:
        raise InputError("start takes [data] with shadow_targets: there is nothing to begin at")
    own = targets.take(list(group))
    left, chosen = list(range(len(pool))), []
    for label in own.labels:
        place = next((i for i in left if pool.labels[i] == label), None)
        if place is None:
            raise InputError(f"start: there are too few shadow targets of class {label}")
        left.remove(place)
        chosen.append(place)
    return Beginning(np.asarray(own.x, np.float64), np.asarray(pool.x[chosen], np.float64))


def begun(attack: Attack, setting: Setting, table: SettingTable, group: Sequence[int]) -> Attack:
    """Return the attack as it begins where the setting says; one without a start stays."""
    names = [field.name for field in fields(cast(Any, attack))]
    if table.start is None or "start" not in names:
        return attack
    at = beginning(setting, group)
    mixed = MixedStart(
        truth=GivenStart(at.training),
        partition=GivenStart(at.shadows),
        noise=UniformStart(*(setting.value_range or (0.0, 1.0))),
        first=table.start.truth,
        second=1.0 - table.start.noise,
    )
    # What is given are records, not differences from a centre.
    own = {"from_centre": False} if "from_centre" in names else {}
    return cast(Attack, replace(cast(Any, attack), start=mixed, **own))


def columns(
    setting: Setting,
    table: SettingTable,
    groups: Sequence[tuple[int, ...]],
    results: Sequence[Reconstruction],
) -> list[dict[str, float | None]]:
    """Return a dictionary a result: root mean squared distances, and the attack's own distance.

    ``nearest-training`` is to the nearest record of the same release, ``nearest-shadow`` to the
    nearest of those that stood for another partition; ``parameters`` is how far training on the
    records ends from the release by the attack's own account, a share of its squared length.
    """
    if table.start is None:
        return [{} for _ in results]
    found, place = list[dict[str, float | None]](), 0
    for group in groups:
        at = beginning(setting, group)
        for result in results[place : place + len(group)]:
            found.append(_row(at, result))
        place += len(group)
    return found


def _row(at: Beginning, result: Reconstruction) -> dict[str, float | None]:
    if not len(result):
        return dict.fromkeys(COLUMNS)
    distance, size = (result.stats.get(name) for name in ("distance", "size"))
    told = None
    if isinstance(distance, int | float) and isinstance(size, int | float) and size:
        told = float(distance) / float(size)
    gaps = [_nearest(records, result.samples[0]) for records in (at.training, at.shadows)]
    return dict(zip(COLUMNS, [*gaps, told], strict=True))


def _nearest(records: Array, sample: FloatArray) -> float:
    axes = tuple(range(1, records.ndim))
    return float(np.sqrt(np.square(records - sample).mean(axis=axes).min()))
