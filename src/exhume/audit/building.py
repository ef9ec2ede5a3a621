"""Settings as a configuration describes them: data split, mechanism built, files read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.audit.mechanisms import build_mechanism
from exhume.audit.setting import Range, Setting
from exhume.config import Config, DataTable, SettingTable
from exhume.data.dataset import Task
from exhume.errors import InputError
from exhume.records import Records
from exhume.release import Outputs, Weights
from exhume.training.answers import trained_model


def build(config: Config, index: int) -> Setting:
    """Load the data and build the mechanism of one setting."""
    from exhume.audit.batches import batch_from_file, simulated_batches

    table = config.setting[index]
    try:
        if table.batch is not None:
            given = table.release.file is not None
            return (batch_from_file if given else simulated_batches)(config, table)
        if table.release.file is not None:
            return _from_file(config, table)
        return _simulated(config, table)
    except InputError as error:
        raise InputError(f"setting {table.name!r}: {error}") from None


def _simulated(config: Config, table: SettingTable) -> Setting:
    from exhume.data import check_for_training, split_records, without_copies

    assert table.data is not None
    loaded = load_data(table.data)
    records, targets = loaded.records, table.targets or config.audit.targets
    shadow, fixed = table.data.shadow_targets or 0, table.data.fixed_set
    elsewhere = table.data.shadow_targets_from
    if elsewhere is not None:
        shadow = 0
    if fixed is None:
        # Half of what is left goes to the model, the other half measures utility and the prior.
        fixed = (len(records) - shadow - targets) // 2
        if fixed < 2:
            raise InputError(f"{len(records)} records are too few for {targets} targets")
    split = split_records(
        records, fixed_set=fixed, shadow_targets=shadow, targets=targets, seed=config.audit.seed
    )
    check_for_training(split.fixed_set, loaded.task)
    taken = [part for part in (split.fixed_set, split.shadow_targets, split.targets) if len(part)]
    rest = without_copies(records, *taken)
    shadows = split.shadow_targets
    if elsewhere is not None:
        shadows = _from_elsewhere(table.data, split.fixed_set, split.targets, config.audit.seed)
    before, rest = _set_aside(rest, table.data.before)
    parts = [split.fixed_set, split.targets, shadows, rest, before]
    if table.data.units == "fixed-set":
        parts = [_in_units_of(split.fixed_set, part) for part in parts]
    fixed_set, truth, shadows, rest, before = parts
    value_range = table.knowledge.value_range or (
        loaded.value_range if table.data.units == "raw" else None
    )
    earlier = before if len(before) else None
    mechanism = build_mechanism(table, fixed_set, seed=config.audit.seed, before=earlier)
    return Setting(
        table.name,
        table.title or table.name,
        mechanism,
        fixed_set,
        shadows if len(shadows) else None,
        truth,
        rest if len(rest) else None,
        value_range,
        table.knowledge.labels,
        _columns(table, fixed_set),
    )


def _from_elsewhere(table: DataTable, fixed_set: Records, targets: Records, seed: int) -> Records:
    """Return shadow targets from another data set, its classes numbered round the model's own."""
    from exhume.data import load, split_records, without_copies

    assert table.shadow_targets_from is not None
    other, own = load(table.shadow_targets_from).train, np.unique(fixed_set.labels)
    if other.record_shape != fixed_set.record_shape:
        raise InputError(
            f"{table.shadow_targets_from} has records of shape {other.record_shape}, "
            f"{table.name} of {fixed_set.record_shape}"
        )
    places = np.searchsorted(np.unique(other.labels), other.labels)
    other = without_copies(Records(other.x, own[places % len(own)]), fixed_set, targets)
    # The "targets" of this split are what is drawn: no two are copies of one another.
    return split_records(
        other, fixed_set=0, shadow_targets=0, targets=table.shadow_targets or 0, seed=seed
    ).targets


def _set_aside(records: Records, count: int) -> tuple[Records, Records]:
    """Return the first ``count`` records, and the others."""
    if count >= len(records) and count:
        raise InputError(f"data.before = {count}, but only {len(records)} records are left")
    return records.take(slice(0, count)), records.take(slice(count, None))


def _from_file(config: Config, table: SettingTable) -> Setting:
    from exhume.audit.files import read_arrays, read_release
    from exhume.data import read_records

    assert table.release.file is not None
    assert table.knowledge.fixed_set is not None
    initial = table.knowledge.initial
    fixed_set = read_records(table.knowledge.fixed_set)
    shadows, truth = table.knowledge.shadow_targets, None
    if config.audit.truth is not None:
        truth = read_records(config.audit.truth, at_least=1).take([0])
    elif table.knowledge.labels or table.knowledge.attributes:
        raise InputError("known labels or attributes come from audit.truth, which is missing")
    mechanism = build_mechanism(table, fixed_set, seed=config.audit.seed)
    setting = Setting(
        table.name,
        table.title or table.name,
        mechanism,
        fixed_set,
        None if shadows is None else read_records(shadows),
        truth,
        None,
        table.knowledge.value_range,
        table.knowledge.labels,
        _columns(table, fixed_set),
        read_release(table.release.file, table.release.kind, table.release.answer),
        read_arrays(initial) if isinstance(initial, Path) else None,
    )
    _require_fit(setting, table.release.file)
    return setting


def _require_fit(setting: Setting, path: Path) -> None:
    """Refuse a release that can't come from the model described: no attack would say anything."""
    assert setting.given is not None
    known, truth = setting.fixed_set.record_shape, setting.targets
    if truth is not None and truth.record_shape != known:
        raise InputError(
            f"audit.truth has a record of shape {truth.record_shape}, the fixed set {known}"
        )
    reason = _misfit(setting)
    if reason is not None:
        raise InputError(f"{path} does not go with the model and fixed set described: {reason}")


def _misfit(setting: Setting) -> str | None:
    """Say why the given release (or initialisation) can't be the described model's."""
    from exhume.attacks.glm.reading import unreadable
    from exhume.training import Training

    model = trained_model(setting.mechanism)
    if not isinstance(model, Training):
        assert setting.given is not None
        return unreadable(setting.given, setting.knowledge(0))
    objective = model.objective()
    if setting.initial is not None:
        reason = objective.mismatch(setting.initial)
        if reason is not None:
            return f"of the initial parameters, {reason}"
    if isinstance(setting.given, Weights):
        return objective.mismatch(setting.given.parameters)
    assert isinstance(setting.given, Outputs)
    asked, answered = setting.given.queries.shape[1:], setting.given.values.shape[1]
    if asked != setting.fixed_set.record_shape:
        return f"queries have shape {asked}, a record {setting.fixed_set.record_shape}"
    if answered != model.network.outputs:
        return f"there are {answered} answers a query, the network has {model.network.outputs}"
    return None


@dataclass(frozen=True, eq=False)
class Loaded:
    """Records with what is known of them beside their values."""

    records: Records
    value_range: Range | None
    task: Task


def load_data(table: DataTable) -> Loaded:
    """Read the records that a [data] table names."""
    from exhume.data import load, read_records, restrict_classes
    from exhume.data.images import shrunk

    if table.name is not None:
        found = load(table.name)
        records, value_range, task = found.train, found.value_range, found.task
        if table.whole and found.test is not None:
            labels = np.concatenate([found.train.labels, found.test.labels])
            records = Records(np.concatenate([found.train.x, found.test.x]), labels)
    else:
        assert table.file is not None
        records, value_range = read_records(Path(table.file), label=table.label), None
        task = _task_of(records)
    if table.shrink > 1:
        records = Records(shrunk(records.x, table.shrink), records.y, records.weight)
    if table.classes is not None:
        records = restrict_classes(records, table.classes)
        task = Task.BINARY if len(table.classes) == 2 else Task.MULTICLASS
    return Loaded(records, value_range, task)


def _task_of(records: Records) -> Task:
    labels = records.labels
    if labels.dtype.kind == "f" and not np.array_equal(labels, np.rint(labels)):
        return Task.REGRESSION
    return Task.BINARY if len(np.unique(labels)) == 2 else Task.REGRESSION


def _in_units_of(fixed_set: Records, part: Records) -> Records:
    """Centre and scale columns by the fixed set, which the adversary has: nothing leaks by it."""
    x = np.asarray(fixed_set.x, dtype=np.float64)
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    return Records((np.asarray(part.x, dtype=np.float64) - mean) / deviation, part.y, part.weight)


def _columns(table: SettingTable, fixed_set: Records) -> tuple[int, ...]:
    """Return the known entries of a flattened record, in order."""
    shape, known = fixed_set.record_shape, table.knowledge.attributes
    index = np.arange(int(np.prod(shape))).reshape(shape)
    if isinstance(known, tuple):
        for column in known:
            if column >= index.size:
                raise InputError(
                    f"knowledge.attributes names column {column}, there are {index.size}"
                )
        chosen = np.array(known, dtype=np.int64)
    else:
        if len(shape) < 2:
            raise InputError(f"knowledge.attributes = {known!r} is for images, got shape {shape}")
        side, half = known.split("-")[0], [size // 2 for size in shape[:2]]
        chosen = {
            "upper": index[: half[0]],
            "lower": index[half[0] :],
            "left": index[:, : half[1]],
            "right": index[:, half[1] :],
        }[side].ravel()
    found = tuple(sorted({int(entry) for entry in chosen}))
    if len(found) == index.size:
        raise InputError("knowledge.attributes names every value: nothing is left to rebuild")
    return found
