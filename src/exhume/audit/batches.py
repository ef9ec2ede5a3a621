"""Settings whose release is about a batch of records: a gradient, an update, weights alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from exhume.arrays import Array
from exhume.audit.building import load_data
from exhume.audit.mechanisms import build_batch_mechanism
from exhume.audit.setting import Range, Setting
from exhume.config import Config, DataTable, NetworkReleaseTable, SettingTable
from exhume.defences.base import undefended
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Gradient, Update, Weights
from exhume.training.gradient import Aggregate, LocalSteps, gradient_step
from exhume.training.network import Training
from exhume.training.stationary import CENTRE, Stationary

_USUAL_SHADOWS = 200
"""Shadow targets of a batch where nobody says how many, at most half of the records left."""


def simulated_batches(config: Config, table: SettingTable) -> Setting:
    """Draw batches of targets from data, and describe the client that they belong to."""
    assert table.data is not None
    assert table.batch is not None
    targets, seed = table.targets or config.audit.targets, config.audit.seed
    if targets % table.batch:
        whole = table.batch * -(-targets // table.batch)
        raise InputError(
            f"{targets} targets don't make whole batches of {table.batch}; {whole} would"
        )
    if table.data.units != "raw":
        raise InputError("data.units = 'fixed-set' needs a fixed set, and a batch has none")
    if table.data.shadow_targets == 0:
        raise InputError(
            "data.shadow_targets is 0: how close a rebuilt record must come is measured by the "
            "nearest record that the adversary has; set some aside, for instance 200"
        )
    drawn = _drawn(table.data, targets, seed, _source(table.data))
    mechanism = build_batch_mechanism(
        table, drawn.targets.record_shape, drawn.classes, drawn.shadow_targets, seed
    )
    return Setting(
        table.name,
        table.title or table.name,
        mechanism,
        drawn.fixed_set,
        drawn.shadow_targets,
        drawn.targets,
        drawn.reserve,
        table.knowledge.value_range or drawn.value_range,
        table.knowledge.labels,
        batch=table.batch,
        knows_statistics=table.knowledge.batch_norm,
    )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Who has which records."""

    fixed_set: Records
    shadow_targets: Records
    targets: Records
    reserve: Records | None
    classes: tuple[int | float | str, ...]
    value_range: Range | None


@lru_cache(maxsize=2)
def _drawn(table: DataTable, targets: int, seed: int, source: object) -> _Drawn:
    """Deal the records out; settings that differ in their defence alone share all of them."""
    from exhume.data import split_records, without_copies

    loaded = load_data(table)
    split = split_records(
        loaded.records,
        fixed_set=0,
        shadow_targets=_set_aside(table, len(loaded.records), targets),
        targets=targets,
        seed=seed,
    )
    rest = without_copies(loaded.records, split.shadow_targets, split.targets)
    return _Drawn(
        split.fixed_set,
        split.shadow_targets,
        split.targets,
        rest if len(rest) else None,
        _classes(loaded.records),
        loaded.value_range,
    )


def _set_aside(table: DataTable, records: int, targets: int) -> int:
    """Return how many shadow targets there are: as many as asked for, else half of the rest."""
    if table.shadow_targets is not None:
        return table.shadow_targets
    return max(1, min(_USUAL_SHADOWS, (records - targets) // 2))


def _source(table: DataTable) -> object:
    """Tell one state of the data from another: where they are, and when the file was written."""
    if table.file is None or not table.file.exists():
        return os.environ.get("EXHUME_DATA")
    found = table.file.stat()
    return found.st_mtime_ns, found.st_size


def batch_from_file(config: Config, table: SettingTable) -> Setting:
    """Read a gradient or update that somebody's own code saved, and what goes with it."""
    from exhume.audit.files import read_arrays
    from exhume.data import read_records

    release, knowledge = table.release, table.knowledge
    assert isinstance(release, NetworkReleaseTable)
    assert release.file is not None
    assert table.batch is not None
    pool = None if knowledge.shadow_targets is None else read_records(knowledge.shadow_targets)
    truth = None
    if config.audit.truth is not None:
        truth = read_records(config.audit.truth, at_least=table.batch).take(slice(0, table.batch))
    elif knowledge.labels or knowledge.batch_norm:
        raise InputError("known labels and statistics come from audit.truth, which is missing")
    shape = _record_shape(knowledge.record_shape, truth, pool)
    initial = read_arrays(knowledge.initial) if isinstance(knowledge.initial, Path) else None
    training = knowledge.training
    regression = training is not None and training.loss == "squared-error"
    classes = _stated_classes(release, truth, pool, regression=regression)
    mechanism = build_batch_mechanism(table, shape, classes, pool, config.audit.seed, state=initial)
    return Setting(
        table.name,
        table.title or table.name,
        mechanism,
        Records(np.empty((0, *shape))),
        pool,
        truth,
        None,
        knowledge.value_range,
        knowledge.labels,
        given=_given(release.file, mechanism, table.batch),
        initial=initial if release.alone else None,
        batch=table.batch,
        knows_statistics=knowledge.batch_norm,
    )


def _given(path: Path, mechanism: Mechanism, batch: int) -> Gradient | Update | Weights:
    """Read a gradient, update or weights by name; they must be of the mechanism's network."""
    from exhume.audit.files import read_arrays

    arrays, step = read_arrays(path), gradient_step(mechanism)
    if step is None:
        return _weights(path, mechanism, arrays)
    objective = step.objective()
    for name, given in (("knowledge.initial", step.parameters()), (str(path), arrays)):
        reason = objective.mismatch(given)
        if reason is not None:
            raise InputError(f"{name} does not go with {step.network.describe()}: {reason}")
    arrays = {name: arrays[name] for name in objective.shapes}
    inner = undefended(mechanism)
    inner = inner.client if isinstance(inner, Aggregate) else inner
    if not isinstance(inner, LocalSteps):
        return Gradient(arrays, batch)
    steps = sum(1 for _ in inner.steps(batch, np.random.default_rng(0)))
    return Update(arrays, batch, steps)


def _weights(path: Path, mechanism: Mechanism, arrays: Mapping[str, Array]) -> Weights:
    """Return weights of the mechanism's network; whatever does not fit is named, key by key."""
    model = undefended(mechanism)
    assert isinstance(model, Training | Stationary)
    shapes = model.network.parameter_shapes()
    if isinstance(model, Stationary) and CENTRE in arrays:
        shapes[CENTRE] = model.network.record_shape
    reasons = misfits(shapes, arrays)
    if reasons:
        raise InputError(
            f"{path} does not go with {model.network.describe()}: {'; '.join(reasons)}"
        )
    return Weights({name: arrays[name] for name in shapes})


def misfits(shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Array]) -> list[str]:
    """Say of every parameter that is missing, of another shape or too many what is wrong.

    >>> misfits({"a": (2, 3), "b": (1,)}, {"a": np.ones((3, 2)), "c": np.ones(4)})
    ["'a' has shape (3, 2), not (2, 3)", "'b' (shape (1,)) is missing", "'c' is not the network's"]
    """
    reasons = []
    for name, shape in shapes.items():
        if name not in arrays:
            reasons.append(f"{name!r} (shape {shape}) is missing")
        elif arrays[name].shape != shape:
            reasons.append(f"{name!r} has shape {arrays[name].shape}, not {shape}")
    return reasons + [f"{name!r} is not the network's" for name in arrays if name not in shapes]


def _record_shape(
    stated: tuple[int, ...] | None, truth: Records | None, pool: Records | None
) -> tuple[int, ...]:
    """Return the shape of a record, from whatever tells it; all that do must agree."""
    told = {"knowledge.record_shape": stated}
    told["audit.truth"] = None if truth is None else truth.record_shape
    told["knowledge.shadow_targets"] = None if pool is None else pool.record_shape
    shapes = {name: shape for name, shape in told.items() if shape is not None}
    if not shapes:
        raise InputError("nothing tells the shape of a record: give knowledge.record_shape")
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise InputError(f"records must have one shape, got {listed}")
    return next(iter(shapes.values()))


def _stated_classes(
    release: NetworkReleaseTable, truth: Records | None, pool: Records | None, *, regression: bool
) -> tuple[int, ...]:
    if release.classes is not None:
        return tuple(range(release.classes))
    if regression:
        return ()
    labels: list[Array] = [r.y for r in (truth, pool) if r is not None and r.y is not None]
    if not labels:
        raise InputError("nothing tells how many classes there are: give release.classes")
    return tuple(range(int(max(part.max() for part in labels)) + 1))


def _classes(records: Records) -> tuple[int | float | str, ...]:
    return tuple(np.unique(records.labels).tolist())
