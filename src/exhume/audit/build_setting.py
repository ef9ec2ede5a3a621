"""Settings as a configuration describes them: data split, mechanism built, files read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from exhume.audit.build_estimator import fitted_columns, refitted, stored_estimator
from exhume.audit.build_mechanism import build_mechanism
from exhume.audit.known_columns import known_entries
from exhume.audit.load_data import Loaded, load_data
from exhume.audit.register import Register, decoys_of
from exhume.audit.setting import ColumnUnits, ThreatSetting
from exhume.config import (
    Config,
    DataTable,
    EstimatorReleaseTable,
    LinearReleaseTable,
    NetworkReleaseTable,
    SettingTable,
)
from exhume.protocol.arrays import Array
from exhume.protocol.attack import Refusal
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Outputs, Release, Transcript, Weights
from exhume.training.answers import trained_model


def build(config: Config, index: int) -> ThreatSetting:
    """Load the data and build the mechanism of one setting."""
    from exhume.audit.build_batches import batch_from_file, simulated_batches
    from exhume.audit.recordings import recorded_setting

    table = config.setting[index]
    try:
        if table.batch is not None:
            given = table.release.file is not None
            return (batch_from_file if given else simulated_batches)(config, table)
        if table.recording is not None:
            return recorded_setting(config, table)
        if table.release.file is not None:
            return _from_file(config, table)
        return _simulated(config, table)
    except InputError as error:
        raise InputError(f"setting {table.name!r}: {error}") from None


def _simulated(config: Config, table: SettingTable) -> ThreatSetting:
    assert table.data is not None
    if isinstance(table.release, EstimatorReleaseTable):
        stored = stored_estimator(table.release)
        loaded = load_data(table.data, mixed=True, features=fitted_columns(stored))
        if table.data.fixed_set is None:
            return refitted(config, table, loaded, stored)
        return dealt(config, table, loaded)
    return dealt(config, table, load_data(table.data))


def dealt(config: Config, table: SettingTable, loaded: Loaded) -> ThreatSetting:
    """Deal records out to the model, the adversary and the test, and build the mechanism."""
    from exhume.data import check_for_training, split_records, without_copies
    from exhume.data.split import all_but_targets

    assert table.data is not None
    records, targets = loaded.records, table.targets or config.audit.targets
    shadow, fixed = _shadows(table, len(records), targets), table.data.fixed_set
    elsewhere = table.data.shadow_targets_from
    if elsewhere is not None:
        shadow = 0
    if fixed is None:
        # Half of the rest trains the model, the other half measures utility and the prior.
        fixed = (len(records) - shadow - targets) // 2
        if fixed < 2:
            raise InputError(f"{len(records)} records are too few for {targets} targets")
    if _all_known(config, table) and not shadow:
        split = all_but_targets(records, targets=targets, seed=config.audit.seed)
    else:
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
    units = _units_of(split.fixed_set) if table.data.units == "fixed-set" else None
    if units is not None:
        parts = [_in_units(units, part) for part in parts]
    fixed_set, truth, shadows, rest, before = parts
    value_range = table.knowledge.value_range or (
        loaded.value_range if table.data.units == "raw" else None
    )
    earlier = before if len(before) else None
    mechanism = build_mechanism(
        table, fixed_set, seed=config.audit.seed, before=earlier, schema=loaded.schema
    )
    return ThreatSetting(
        table.name,
        table.title or table.name,
        mechanism,
        fixed_set,
        shadows if len(shadows) else None,
        truth,
        rest if len(rest) else None,
        value_range,
        table.knowledge.labels,
        known_entries(table, fixed_set, loaded.schema),
        register=_register(table, config.audit.seed, [shadows, rest], truth),
        schema=loaded.schema,
        left_out=len(rest) + loaded.left_out,
        units=units,
    )


def _all_known(config: Config, table: SettingTable) -> bool:
    """Return whether every row of a table but the targets is known: nothing needs some aside.

    Rows aside measure what a defence costs in accuracy, and are what membership tests compare with.
    """
    data, asked = table.data, config.audit.membership or table.group
    if data is None or data.file is None or data.fixed_set is not None or data.before:
        return False
    plain = isinstance(table.release, LinearReleaseTable) and not table.release.defences
    return plain and not asked


def _register(
    table: SettingTable, seed: int, pools: Sequence[Records | None], truth: Records | None
) -> Register | None:
    """Return where candidates come from beside a transcript: a file, or records like the target.

    Where nobody knows the target, they are all there is.
    """
    from exhume.data import read_records

    listed = table.knowledge.candidates
    if table.release.kind != "transcript" or listed == 0:
        return None
    if isinstance(listed, Path):
        return Register.listed(read_records(listed), truth, seed)
    decoys = decoys_of(pools, listed)
    if truth is None:
        return Register.listed(decoys, None, seed)
    return Register.drawn(decoys, listed, seed)


_LOOP_SHADOWS = 200
"""Shadow targets for a loop of somebody's own, where nobody says how many."""


def _shadows(table: SettingTable, records: int, targets: int) -> int:
    """Return how many shadow targets are set aside: a loop is attacked by nothing but those."""
    assert table.data is not None
    if table.data.shadow_targets is not None or not _by_a_loop(table):
        return table.data.shadow_targets or 0
    return max(0, min(_LOOP_SHADOWS, (records - targets) // 3))


def _by_a_loop(table: SettingTable) -> bool:
    release = table.release
    return isinstance(release, NetworkReleaseTable) and release.training is not None


def _from_elsewhere(table: DataTable, fixed_set: Records, targets: Records, seed: int) -> Records:
    """Return shadow targets from another data set, with the model's class numbers in turn."""
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
    # The "targets" of this split are used: no two of them are copies.
    return split_records(
        other, fixed_set=0, shadow_targets=0, targets=table.shadow_targets or 0, seed=seed
    ).targets


def _set_aside(records: Records, count: int) -> tuple[Records, Records]:
    """Return the first ``count`` records, and the others."""
    if count >= len(records) and count:
        raise InputError(f"data.before = {count}, but only {len(records)} records are left")
    return records.take(slice(0, count)), records.take(slice(count, None))


def _from_file(config: Config, table: SettingTable) -> ThreatSetting:
    from exhume.data import read_records
    from exhume.data.array_files import read_arrays

    assert table.release.file is not None
    assert table.knowledge.fixed_set is not None
    initial = table.knowledge.initial
    fixed_set = read_records(table.knowledge.fixed_set)
    shadows, truth = table.knowledge.shadow_targets, None
    if (known := config.truth_of(table)) is not None:
        truth = read_records(known, at_least=1).take([0])
    elif table.knowledge.labels or table.knowledge.attributes:
        raise InputError("known labels or attributes come from audit.truth, which is missing")
    mechanism = build_mechanism(table, fixed_set, seed=config.audit.seed)
    given = release_from_file(table.release.file, table.release.kind, table.release.answer)
    known_shadows = None if shadows is None else read_records(shadows)
    setting = ThreatSetting(
        table.name,
        table.title or table.name,
        mechanism,
        fixed_set,
        known_shadows,
        truth,
        None,
        table.knowledge.value_range,
        table.knowledge.labels,
        known_entries(table, fixed_set),
        _under_own_names(given, mechanism),
        _parameters(read_arrays(initial), mechanism) if isinstance(initial, Path) else None,
        register=_register(table, config.audit.seed, [known_shadows], truth),
    )
    _require_fit(setting, table.release.file)
    return setting


def _under_own_names(given: Release, mechanism: Mechanism) -> Release:
    """Return weights as the mechanism's model has them, without what its module is wrapped in."""
    from exhume.models.base import unwrapped
    from exhume.models.traits import running_in
    from exhume.training import Training

    if isinstance(given, Transcript):
        return given.renamed(unwrapped)
    if not isinstance(given, Weights):
        return given
    model = trained_model(mechanism)
    running = running_in(model.network, given.parameters) if isinstance(model, Training) else {}
    return Weights(_parameters(given.parameters, mechanism), running)


def _parameters(arrays: Mapping[str, Array], mechanism: Mechanism) -> Mapping[str, Array]:
    from exhume.models.base import parameters_in, unwrapped
    from exhume.training import Loop, Training

    model = trained_model(mechanism)
    if isinstance(model, Training):
        return parameters_in(model.network, arrays)
    if isinstance(model, Loop):
        return dict(zip(unwrapped(arrays), arrays.values(), strict=True))
    return arrays


def _require_fit(setting: ThreatSetting, path: Path) -> None:
    """Refuse a release that cannot come from the described model: no attack could use it."""
    assert setting.given is not None
    known, truth = setting.fixed_set.record_shape, setting.targets
    if truth is not None and truth.record_shape != known:
        raise InputError(
            f"audit.truth has a record of shape {truth.record_shape}, the fixed set {known}"
        )
    reason = _misfit(setting)
    if reason is not None:
        raise InputError(f"{path} does not go with the model and fixed set described: {reason}")


def _misfit(setting: ThreatSetting) -> str | None:
    """Return why the given release (or initialisation) cannot be the described model's."""
    from exhume.attacks.linear.read_release import readable
    from exhume.models.base import misfits
    from exhume.training import GivenBatches, Loop, Training

    model = trained_model(setting.mechanism)
    if isinstance(model, Loop):
        # What its models consist of shows when one has been trained.
        return None
    if not isinstance(model, Training):
        assert setting.given is not None
        read = readable(setting.given, setting.knowledge(0))
        return read.reason if isinstance(read, Refusal) else None
    objective = model.objective()
    if setting.initial is not None:
        reason = objective.mismatch(setting.initial)
        if reason is not None:
            return f"of the initial parameters, {reason}"
    if isinstance(model.batches, GivenBatches):
        model.batches.require(len(setting.fixed_set) + 1, model.begun_epochs(setting.records))
    if isinstance(setting.given, Weights):
        return "; ".join(misfits(objective.shapes, setting.given.parameters)) or None
    if isinstance(setting.given, Transcript):
        return _untold(setting, setting.given)
    assert isinstance(setting.given, Outputs)
    asked, answered = setting.given.queries.shape[1:], setting.given.values.shape[1]
    if asked != setting.fixed_set.record_shape:
        return f"queries have shape {asked}, a record {setting.fixed_set.record_shape}"
    if answered != model.network.outputs:
        return f"there are {answered} answers per query, the network has {model.network.outputs}"
    return None


def _untold(setting: ThreatSetting, given: Transcript) -> str | None:
    """Say why a transcript can't be the described training's: another model's, steps missing."""
    from exhume.attacks.informed.transcript.watched import watched
    from exhume.training import Recorded

    found = watched(given, setting.knowledge(0))
    if isinstance(found, Refusal):
        return found.reason
    recorded = found.training
    assert isinstance(recorded, Recorded)
    wanted = np.arange(0, len(recorded.rules(setting.records).counts), recorded.every)
    missing = np.setdiff1d(wanted, given.steps)
    if len(missing):
        return f"it lacks step {missing[0]} of {wanted[-1] + 1} ({len(missing)} steps in all)"
    return None


def _units_of(fixed_set: Records) -> ColumnUnits:
    """Return the fixed set's means and deviations: the adversary has it, so nothing leaks."""
    x = np.asarray(fixed_set.x, dtype=np.float64)
    deviation = x.std(axis=0)
    return ColumnUnits(x.mean(axis=0), np.where(deviation > 0, deviation, 1.0))


def _in_units(units: ColumnUnits, part: Records) -> Records:
    x = np.asarray(part.x, dtype=np.float64)
    return Records((x - units.mean) / units.deviation, part.y, part.weight)


def release_from_file(path: Path, kind: str, answer: str) -> Release:
    """Read weights (by name), outputs (``queries`` and ``values``) or a transcript from a file.

    Checkpoints are read without running anything that is in them.
    """
    from exhume.data.array_files import read_arrays

    arrays = read_arrays(path)
    if kind == "weights":
        return Weights(arrays)
    if kind == "transcript":
        return Transcript.of_arrays(arrays)
    missing = sorted({"queries", "values"} - set(arrays))
    if missing:
        raise InputError(f"{path} lacks {missing[0]!r}; outputs need 'queries' and 'values'")
    return Outputs(arrays["queries"], arrays["values"], Answer(answer))
