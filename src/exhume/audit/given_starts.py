"""Searches that start where a setting says, and their distance from there at the end.

Only here are training records given to an attack. A study of how much depends on the start (Runkel
et al. 2024) asks whether a search that starts at the truth stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np

from exhume.attacks.weights_only.starts import (
    GaussianStart,
    GivenStart,
    MixedStart,
    Start,
    UniformStart,
)
from exhume.audit.setting import ThreatSetting
from exhume.config import SettingTable
from exhume.config.setting_tables import StartTable
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Attack
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.seeds import stream

COLUMNS = ("nearest-training", "nearest-shadow", "nearest-noise", "parameters", "residual")
"""Additional measures if a setting says where searches start."""


@dataclass(frozen=True, eq=False)
class Beginning:
    """The two sets of records at which a release's search may start."""

    training: Array
    shadows: Array


def beginning(setting: ThreatSetting, group: Sequence[int]) -> Beginning:
    """Return a release's own records, and as many shadow targets of the same classes."""
    targets, pool = setting.targets, setting.shadow_targets
    if targets is None or pool is None:
        raise InputError("start needs [data] with shadow_targets: there are no records to start at")
    own = targets.take(list(group))
    left, chosen = list(range(len(pool))), []
    for label in own.labels:
        place = next((i for i in left if pool.labels[i] == label), None)
        if place is None:
            raise InputError(f"start: there are too few shadow targets of class {label}")
        left.remove(place)
        chosen.append(place)
    return Beginning(np.asarray(own.x, np.float64), np.asarray(pool.x[chosen], np.float64))


def noise_of(setting: ThreatSetting, start: StartTable) -> Start:
    """Return the noise in the mixture of starts."""
    if start.deviation is None:
        return UniformStart(*(setting.value_range or (0.0, 1.0)))
    return GaussianStart(start.deviation, float(setting.pool.mean()))


def drawn_noise(
    setting: ThreatSetting, start: StartTable, group: Sequence[int], seed: int
) -> FloatArray:
    """Return a release's noise records, which are the same for every caller."""
    rng = stream(seed, "start", setting.name, group[0])
    return noise_of(setting, start).draw(len(group), setting.fixed_set.record_shape, rng)


def begun(
    attack: Attack,
    setting: ThreatSetting,
    table: SettingTable,
    group: Sequence[int],
    seed: int | None = None,
) -> Attack:
    """Return the attack with the setting's start; an attack without a start is unchanged.

    With a ``seed`` the noise is drawn once, so that its distance from a search's end can be
    measured; without, the attack draws it each time.
    """
    names = [field.name for field in fields(cast(Any, attack))]
    if table.start is None or "start" not in names:
        return attack
    at = beginning(setting, group)
    noise = noise_of(setting, table.start)
    if seed is not None:
        noise = GivenStart(drawn_noise(setting, table.start, group, seed))
    mixed = MixedStart(
        truth=GivenStart(at.training),
        partition=GivenStart(at.shadows),
        noise=noise,
        first=table.start.truth,
        second=1.0 - table.start.noise,
    )
    # The start is given as records, not as differences from a centre.
    own = {"from_centre": False} if "from_centre" in names else {}
    return cast(Attack, replace(cast(Any, attack), start=mixed, **own))


def columns(
    setting: ThreatSetting,
    table: SettingTable,
    groups: Sequence[tuple[int, ...]],
    results: Sequence[Reconstruction],
    seed: int,
) -> list[dict[str, float | None]]:
    """Return one dictionary per result: root mean squared distances, and the attack's own distance.

    ``nearest-training`` is the distance from the nearest record of the same release,
    ``nearest-shadow`` from the nearest record that stood for another partition, and
    ``nearest-noise`` from the nearest noise, whether or not a start contained it. The attack itself
    reports two shares of the release's squared length: ``parameters``, how far training on the
    records ends from it, and ``residual``, what they leave of its stationarity.
    """
    if table.start is None:
        return [{} for _ in results]
    found, place = list[dict[str, float | None]](), 0
    for group in groups:
        at = beginning(setting, group)
        sets = (at.training, at.shadows, drawn_noise(setting, table.start, group, seed))
        for result in results[place : place + len(group)]:
            found.append(_row(sets, result))
        place += len(group)
    return found


def _row(sets: Sequence[Array], result: Reconstruction) -> dict[str, float | None]:
    if not len(result):
        return dict.fromkeys(COLUMNS)
    distance, size, residual = (
        _number(result.stats.get(name)) for name in ("distance", "size", "residual")
    )
    told = distance / size if distance is not None and size else None
    gaps = [_nearest(records, result.samples[0]) for records in sets]
    return dict(zip(COLUMNS, [*gaps, told, residual], strict=True))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _nearest(records: Array, sample: FloatArray) -> float:
    axes = tuple(range(1, records.ndim))
    return float(np.sqrt(np.square(records - sample).mean(axis=axes).min()))
