"""Settings whose release is about a batch of records: a gradient, or an update of local steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from exhume.arrays import Array
from exhume.audit.building import load_data
from exhume.audit.mechanisms import build_batch_mechanism
from exhume.audit.setting import Setting
from exhume.config import Config, NetworkReleaseTable, SettingTable
from exhume.defences.base import undefended
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Gradient, Update
from exhume.training.gradient import Aggregate, LocalSteps, gradient_step


def simulated_batches(config: Config, table: SettingTable) -> Setting:
    """Draw batches of targets from data, and describe the client that they belong to."""
    from exhume.data import split_records, without_copies

    assert table.data is not None
    assert table.batch is not None
    loaded, targets = load_data(table.data), table.targets or config.audit.targets
    if targets % table.batch:
        whole = table.batch * -(-targets // table.batch)
        raise InputError(
            f"{targets} targets don't make whole batches of {table.batch}; {whole} would"
        )
    if table.data.units != "raw":
        raise InputError("data.units = 'fixed-set' needs a fixed set, and a batch has none")
    shadow = table.data.shadow_targets
    split = split_records(
        loaded.records, fixed_set=0, shadow_targets=shadow, targets=targets, seed=config.audit.seed
    )
    taken = [part for part in (split.shadow_targets, split.targets) if len(part)]
    rest = without_copies(loaded.records, *taken)
    shadows = split.shadow_targets if len(split.shadow_targets) else None
    mechanism = build_batch_mechanism(
        table, loaded.records.record_shape, _classes(loaded.records), shadows, config.audit.seed
    )
    return Setting(
        table.name,
        table.title or table.name,
        mechanism,
        split.fixed_set,
        shadows,
        split.targets,
        rest if len(rest) else None,
        table.knowledge.value_range or loaded.value_range,
        table.knowledge.labels,
        batch=table.batch,
        knows_statistics=table.knowledge.batch_norm,
    )


def batch_from_file(config: Config, table: SettingTable) -> Setting:
    """Read a gradient or update that somebody's own code saved, and what goes with it."""
    from exhume.audit.files import read_arrays
    from exhume.data import read_records

    release, knowledge = table.release, table.knowledge
    assert isinstance(release, NetworkReleaseTable)
    assert release.file is not None
    assert table.batch is not None
    assert isinstance(knowledge.initial, Path)
    pool = None if knowledge.shadow_targets is None else read_records(knowledge.shadow_targets)
    truth = None
    if config.audit.truth is not None:
        truth = read_records(config.audit.truth, at_least=table.batch).take(slice(0, table.batch))
    elif knowledge.labels or knowledge.batch_norm:
        raise InputError("known labels and statistics come from audit.truth, which is missing")
    shape = _record_shape(knowledge.record_shape, truth, pool)
    initial = read_arrays(knowledge.initial)
    mechanism = build_batch_mechanism(
        table, shape, _stated_classes(release, truth, pool), pool, config.audit.seed, state=initial
    )
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
        batch=table.batch,
        knows_statistics=knowledge.batch_norm,
    )


def _given(path: Path, mechanism: Mechanism, batch: int) -> Gradient | Update:
    """Read a gradient or update by parameter name; it must be of the mechanism's network."""
    from exhume.audit.files import read_arrays

    arrays, step = read_arrays(path), gradient_step(mechanism)
    assert step is not None
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
    release: NetworkReleaseTable, truth: Records | None, pool: Records | None
) -> tuple[int, ...]:
    if release.classes is not None:
        return tuple(range(release.classes))
    labels: list[Array] = [r.y for r in (truth, pool) if r is not None and r.y is not None]
    if not labels:
        raise InputError("nothing tells how many classes there are: give release.classes")
    return tuple(range(int(max(part.max() for part in labels)) + 1))


def _classes(records: Records) -> tuple[int | float | str, ...]:
    return tuple(np.unique(records.labels).tolist())
