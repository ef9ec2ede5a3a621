"""Measure: what is found out about a setting once, before any attack.

The nearest known records, the bound, the membership game, and how good the released model is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from exhume.audit.audited_columns import audited_columns
from exhume.audit.ceilings import canary_audit, ceiling_curve
from exhume.audit.gradient_floors import relative_rate
from exhume.audit.known_columns import column_names_of
from exhume.audit.loops import about_loop, wake
from exhume.audit.membership import membership_outcome, membership_tests
from exhume.audit.plan import Plan
from exhume.audit.scoring import yardstick
from exhume.audit.setting import ThreatSetting
from exhume.audit.stages.attack import AttackTrials, first_groups, published
from exhume.audit.stages.base import Job, Stage
from exhume.audit.stages.expense import Cost, FinishedWork, TriedExpense, peak_memory, seconds_of
from exhume.audit.threat_model import rows_told, threat_model
from exhume.config import SettingTable
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import undefended
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.runlog.setting import (
    AuditedData,
    ErrorFloor,
    MembershipOutcome,
    ModelQuality,
    NearestKnown,
    Setting,
)
from exhume.runlog.store import Store
from exhume.runtime import Executor, Serial
from exhume.runtime.threads import one_thread
from exhume.training import Model, RecordedElsewhere

if TYPE_CHECKING:
    from exhume.audit.costs import Estimate
    from exhume.metrics import Oracle

UTILITY_RELEASES = 8
"""Released models whose accuracy is measured."""
_MOST_RECORDS = 2000


@dataclass(frozen=True, eq=False)
class Measurement:
    """What is measured of a setting; ``truth`` has its targets and their nearest known records."""

    setting: Setting
    truth: Mapping[str, Array]


class MeasureSettings(Stage):
    """Measures every setting here: executors that work in this process use what it has built."""

    doing: ClassVar[str] = "measuring"

    def workers(self, executor: Executor) -> Executor:
        """Work in this process, setting by setting: the log keeps their order."""
        return Serial()

    def jobs(self, plan: Plan, log: Store) -> Iterable[Job[Plan, int, Measurement]]:
        """Measure the settings that the log does not hold."""
        known = {setting.name for setting in log.settings()}
        names = [table.name for table in plan.config.setting]

        def keep(index: int, found: Measurement) -> int:
            setting = found.setting
            if found.truth:
                setting = replace(setting, truth=f"{index:03d}-truth")
                log.save_arrays(setting.truth, found.truth)
            log.add_setting(setting)
            return 0

        todo = [index for index, name in enumerate(names) if name not in known]
        yield Job(measure, plan, todo, keep, lambda index: f"setting {names[index]!r}")

    def expenses(self, plan: Plan) -> Sequence[Preparation]:
        """Return the preparation of every setting."""
        return [Preparation(index) for index in range(len(plan.config.setting))]


@dataclass(frozen=True)
class Preparation(TriedExpense):
    """Building and measuring a setting, and publishing its releases."""

    def label(self, plan: Plan) -> str:
        """Return what it is."""
        return "(preparation)"

    def left(self, estimate: Estimate) -> int:
        """Return how many targets some attack is not done with."""
        attacks = [
            one
            for one in estimate.costs
            if isinstance(one, AttackTrials) and one.setting == self.setting
        ]
        return max((one.left(estimate) for one in attacks), default=0)

    def alone(self, estimate: Estimate) -> float:
        """Return what building and measuring takes."""
        return self.cost(estimate).once if self.left(estimate) else 0.0

    def longest(self, estimate: Estimate) -> float:
        """Return nothing: releases are published by those who attack them."""
        return 0.0

    def stored(self, plan: Plan, done: FinishedWork) -> None:
        """Return nothing: no run keeps how long it took."""
        return

    def tried(self, plan: Plan) -> Cost:
        """Build and measure the setting, and publish one release."""
        once = seconds_of(lambda: measure(plan, self.setting))
        group = first_groups(plan, self.setting)[0]
        each = seconds_of(lambda: published(plan, self.setting, group)) / len(group)
        return Cost(once, each, len(group), peak_memory())


def measure(plan: Plan, index: int) -> Measurement:
    """Measure a setting; takes one pass over its pool and a few releases."""
    with one_thread():
        setting, oracle = plan.setting(index), yardstick(plan, index).oracle
        truth: Mapping[str, Array] = {}
        if setting.targets is not None and oracle is not None:
            truth = {
                "targets": setting.targets.x,
                "nearest": setting.pool[oracle.nearest_index],
                "nearest_distance": oracle.nearest_distance,
            }
        return Measurement(_measured(plan, index), truth)


def _own_rows(plan: Plan, table: SettingTable) -> bool:
    """Return whether the rows are the user's own, not those of a data set with a name."""
    return bool(plan.live) or (table.data is not None and table.data.file is not None)


def _measured(plan: Plan, index: int) -> Setting:
    setting, table = plan.setting(index), plan.config.setting[index]
    shape = setting.fixed_set.record_shape
    names = column_names_of(table, shape) if setting.schema is None else setting.schema.names
    return Setting(
        name=setting.name,
        title=setting.title,
        threat=(*threat_model(setting), *about_loop(setting), *_begun_at_the_truth(table)),
        group=table.group,
        defence=table.defence,
        defended=undefended(setting.mechanism) is not setting.mechanism,
        batch=setting.batch,
        data=AuditedData(
            fixed_set=len(setting.fixed_set),
            shadow_targets=0 if setting.shadow_targets is None else len(setting.shadow_targets),
            targets=setting.size,
            record_shape=shape,
            value_range=setting.value_range,
            unit=_unit(setting),
            candidates=0 if setting.register is None else setting.register.count,
            one_training=isinstance(setting.mechanism, RecordedElsewhere),
            columns=names,
            schema=audited_columns(setting, names),
            left_out=setting.left_out,
            rows=rows_told(setting) if _own_rows(plan, table) else "",
        ),
        nearest=_nearest(yardstick(plan, index).oracle),
        ceiling=ceiling_curve(plan, index, setting),
        floor=_floor(setting),
        liu_rate=relative_rate(setting.mechanism, setting.records) if table.group else None,
        model=overfitting(setting, UTILITY_RELEASES, plan.config.audit.seed),
        membership=_membership(plan, table, setting),
        canaries=canary_audit(setting, plan.config.audit.canaries, plan.config.audit.seed),
    )


def _nearest(oracle: Oracle | None) -> NearestKnown:
    if oracle is None:
        return NearestKnown()
    return NearestKnown(
        oracle.mean_distance,
        # The success metric is a root mean square; papers report its square.
        _mean_square(oracle.nearest_distance),
        oracle.levels,
        tuple(oracle.mean_percentiles.tolist()),
        tuple(_mean_square(column) for column in oracle.percentiles.T),
    )


def _begun_at_the_truth(table: SettingTable) -> tuple[str, ...]:
    """State it if searches start at the training records: their success is not an attack's."""
    if table.start is None or not table.start.truth:
        return ()
    return (
        f"Not an attack: searches start with {table.start.truth:.0%} of the training records "
        "themselves, to see whether they stay there.",
    )


def _floor(setting: ThreatSetting) -> ErrorFloor:
    """The floor by noise on a gradient, in the units of the error; empty without noise."""
    from exhume.audit.gradient_floors import error_floor

    found = error_floor(setting) if setting.given is None else None
    return ErrorFloor() if found is None else found


def _mean_square(distances: Any) -> float:
    return float(np.square(distances).mean())


def _membership(plan: Plan, table: SettingTable, setting: ThreatSetting) -> MembershipOutcome:
    audit = plan.config.audit
    if not audit.membership:
        return MembershipOutcome()
    tests = membership_tests(table, audit)
    wake(setting)
    return membership_outcome(setting, tests, audit)


def _unit(setting: ThreatSetting) -> str:
    if setting.known_columns:
        return "root mean square over the values that were not known"
    if setting.value_range is None:
        return "root mean square, in standard deviations of each column of the known records"
    low, high = setting.value_range
    return f"root mean square, on values from {low:g} to {high:g}"


def overfitting(setting: ThreatSetting, releases: int, seed: int) -> ModelQuality:
    """Measure how much better released models know their training records than others.

    Reads the first few ``releases``; nothing is measured where no record is left to test on.
    """
    from exhume.stats.roc import roc_area

    model, reserve = undefended(setting.mechanism), setting.reserve
    if not isinstance(model, Model) or reserve is None or setting.given is not None:
        return ModelQuality()
    groups = setting.groups(range(min(releases, setting.size)))
    found = [r for r in setting.releases(groups, seed) if isinstance(r, Weights)]
    if not found:
        return ModelQuality()
    wake(setting)
    if not model.answers:
        return ModelQuality()
    name = "accuracy" if model.classes is not None else "R²"
    utility = float(np.mean([model.score(release, reserve) for release in found]))
    if setting.batch is not None:
        return ModelQuality(name, utility, chance=_chance(model, reserve))
    inside, outside = (_some(part) for part in (setting.fixed_set, reserve))
    auc = [
        roc_area(-_losses(model, release, inside), -_losses(model, release, outside)).estimate
        for release in found
    ]
    own = float(np.mean([model.score(release, setting.fixed_set) for release in found]))
    return ModelQuality(name, utility, own, float(np.mean(auc)), _chance(model, reserve))


def _chance(model: Model, records: Records) -> float | None:
    """The accuracy of always naming the most frequent class; None where there are none."""
    if model.classes is None or records.y is None:
        return None
    counts = np.unique(records.y, return_counts=True)[1]
    return float(counts.max() / len(records))


def _some(records: Records) -> Records:
    return records.take(np.arange(min(len(records), _MOST_RECORDS)))


def _losses(model: Model, release: Weights, records: Records) -> FloatArray:
    """Return every record's loss: cross-entropy, or squared error."""
    means = model.means(model.scores(release, records.x))
    if model.classes is None:
        found = np.square(np.asarray(records.labels, dtype=np.float64) - means[:, 0])
        return np.asarray(found)
    place = {label: i for i, label in enumerate(model.classes)}
    columns = [place.get(label, -1) for label in records.labels.tolist()]
    chosen = means[np.arange(len(means)), columns]
    return np.asarray(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)))
