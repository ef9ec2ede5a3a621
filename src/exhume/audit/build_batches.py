"""Settings whose release is computed on a batch: a gradient, an update, weights alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from exhume.audit.build_mechanism import build_batch_mechanism
from exhume.audit.known_columns import known_entries
from exhume.audit.load_data import has_columns, load_data
from exhume.audit.setting import Range, ThreatSetting
from exhume.config import Config, DataTable, NetworkReleaseTable, SettingTable
from exhume.models.base import misfits, parameters_in
from exhume.models.traits import running_in
from exhume.protocol.arrays import Array
from exhume.protocol.defence import undefended
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Update, Weights
from exhume.protocol.schema import Schema
from exhume.training.gradient import gradient_step
from exhume.training.local_steps import Aggregate, LocalSteps
from exhume.training.network import Training
from exhume.training.stationary import CENTRE, Stationary

_USUAL_SHADOWS = 200
"""The default number of shadow targets with batches, at most half of the remaining records."""


def simulated_batches(config: Config, table: SettingTable) -> ThreatSetting:
    """Draw batches of targets from data, and describe the client that they belong to."""
    assert table.data is not None
    assert table.batch is not None
    targets, seed = table.targets or config.audit.targets, config.audit.seed
    if targets % table.batch:
        whole = table.batch * -(-targets // table.batch)
        raise InputError(
            f"{targets} targets do not make whole batches of {table.batch}; {whole} would"
        )
    if table.data.units != "raw":
        raise InputError("data.units = 'fixed-set' needs a fixed set, but a batch has none")
    if table.data.shadow_targets == 0:
        raise InputError(
            "data.shadow_targets is 0: success is measured by the nearest record that the "
            "adversary has; set some aside, for example 200"
        )
    drawn = _drawn(table.data, targets, seed, _source(table.data))
    mechanism = build_batch_mechanism(
        *(table, drawn.targets.record_shape, drawn.classes, drawn.shadow_targets, seed),
        schema=drawn.schema,
    )
    return ThreatSetting(
        table.name,
        table.title or table.name,
        mechanism,
        drawn.fixed_set,
        drawn.shadow_targets,
        drawn.targets,
        drawn.reserve,
        table.knowledge.value_range or drawn.value_range,
        table.knowledge.labels,
        _known_values(table, drawn.targets, drawn.schema),
        batch=table.batch,
        knows_statistics=table.knowledge.batch_norm,
        schema=drawn.schema,
        left_out=drawn.left_out,
    )


def _known_values(
    table: SettingTable, records: Records, schema: Schema | None = None
) -> tuple[int, ...]:
    """Return the entries of each of its records that the adversary knows; none unless asked."""
    return known_entries(table, records, schema) if table.knowledge.attributes else ()


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The distribution of the records."""

    fixed_set: Records
    shadow_targets: Records
    targets: Records
    reserve: Records | None
    classes: tuple[int | float | str, ...]
    value_range: Range | None
    schema: Schema | None
    left_out: int


@lru_cache(maxsize=2)
def _drawn(table: DataTable, targets: int, seed: int, source: object) -> _Drawn:
    """Distribute the records; settings that differ only in their defence share all of them."""
    from exhume.data import split_records, without_copies

    loaded = load_data(table, mixed=has_columns(table))
    if loaded.schema is not None and not (table.columns or loaded.schema.mixed):
        # A file of numbers alone is read as it always was.
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
        loaded.schema,
        loaded.left_out + len(rest) if loaded.schema is not None else 0,
    )


def _set_aside(table: DataTable, records: int, targets: int) -> int:
    """Return the number of shadow targets: as requested, else half of the rest."""
    if table.shadow_targets is not None:
        return table.shadow_targets
    return max(1, min(_USUAL_SHADOWS, (records - targets) // 2))


def _source(table: DataTable) -> object:
    """Return what identifies a state of the data: its place, and the file's time."""
    if table.file is None or not table.file.exists():
        return os.environ.get("EXHUME_DATA")
    found = table.file.stat()
    return found.st_mtime_ns, found.st_size


def batch_from_file(config: Config, table: SettingTable) -> ThreatSetting:
    """Read a gradient or update that the user's own code saved, with its knowledge."""
    from exhume.data import read_records
    from exhume.data.array_files import read_arrays

    release, knowledge = table.release, table.knowledge
    assert isinstance(release, NetworkReleaseTable)
    assert release.file is not None
    assert table.batch is not None
    pool = None if knowledge.shadow_targets is None else read_records(knowledge.shadow_targets)
    truth = None
    if (known := config.truth_of(table)) is not None:
        truth = read_records(known, at_least=table.batch).take(slice(0, table.batch))
    elif knowledge.labels or knowledge.attributes or knowledge.batch_norm:
        raise InputError(
            "known labels, attributes and statistics come from audit.truth, which is missing"
        )
    shape = _record_shape(knowledge.record_shape, truth, pool)
    initial = None if table.start_file is None else read_arrays(table.start_file)
    training = knowledge.training
    regression = training is not None and training.loss == "squared-error"
    classes = _stated_classes(release, truth, pool, regression=regression)
    mechanism = build_batch_mechanism(table, shape, classes, pool, config.audit.seed, state=initial)
    return ThreatSetting(
        table.name,
        table.title or table.name,
        mechanism,
        Records(np.empty((0, *shape))),
        pool,
        truth,
        None,
        knowledge.value_range,
        knowledge.labels,
        _known_values(table, Records(np.empty((0, *shape)))),
        given=_given(release, mechanism, table.batch),
        initial=_initial(initial, mechanism) if release.alone else None,
        batch=table.batch,
        knows_statistics=knowledge.batch_norm,
    )


def _initial(
    arrays: Mapping[str, Array] | None, mechanism: Mechanism
) -> Mapping[str, Array] | None:
    """Return initial parameters under the network's own names."""
    model = undefended(mechanism)
    assert isinstance(model, Training | Stationary)
    return None if arrays is None else parameters_in(model.network, arrays)


def _given(
    release: NetworkReleaseTable, mechanism: Mechanism, batch: int
) -> Gradient | Update | Weights:
    """Read a gradient, update or weights by name; they must be of the mechanism's network."""
    from exhume.data.array_files import read_arrays

    path = release.file
    assert path is not None
    arrays, step = read_arrays(path), gradient_step(mechanism)
    if step is None:
        return _weights(path, mechanism, arrays)
    objective, arrays = step.objective(), parameters_in(step.network, arrays)
    start = step.parameters()
    for name, given in ((release.before or "knowledge.initial", start), (path, arrays)):
        reason = objective.mismatch(given)
        if reason is not None:
            raise InputError(f"{name} does not go with {step.network.describe()}: {reason}")
    arrays = {name: arrays[name] for name in objective.shapes}
    if release.before is not None:
        arrays = {name: after - start[name] for name, after in arrays.items()}
    inner = undefended(mechanism)
    inner = inner.client if isinstance(inner, Aggregate) else inner
    if not isinstance(inner, LocalSteps):
        return Gradient(arrays, batch)
    steps = sum(1 for _ in inner.steps(batch, np.random.default_rng(0)))
    return Update(arrays, batch, steps)


def _weights(path: Path, mechanism: Mechanism, arrays: Mapping[str, Array]) -> Weights:
    """Return weights of the mechanism's network; every key that does not fit is named."""
    model = undefended(mechanism)
    assert isinstance(model, Training | Stationary)
    running = running_in(model.network, arrays)
    shapes, arrays = model.network.parameter_shapes(), parameters_in(model.network, arrays)
    if isinstance(model, Stationary) and CENTRE in arrays:
        shapes[CENTRE] = model.network.record_shape
    reasons = misfits(shapes, arrays)
    if reasons:
        raise InputError(
            f"{path} does not go with {model.network.describe()}: {'; '.join(reasons)}"
        )
    return Weights({name: arrays[name] for name in shapes}, running)


def _record_shape(
    stated: tuple[int, ...] | None, truth: Records | None, pool: Records | None
) -> tuple[int, ...]:
    """Return the shape of a record, from all sources, which must agree."""
    told = {"knowledge.record_shape": stated}
    told["audit.truth"] = None if truth is None else truth.record_shape
    told["knowledge.shadow_targets"] = None if pool is None else pool.record_shape
    shapes = {name: shape for name, shape in told.items() if shape is not None}
    if not shapes:
        raise InputError("the shape of a record is unknown: give knowledge.record_shape")
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
        raise InputError("the number of classes is unknown: give release.classes")
    return tuple(range(int(max(part.max() for part in labels)) + 1))


def _classes(records: Records) -> tuple[int | float | str, ...]:
    return tuple(np.unique(records.labels).tolist())
