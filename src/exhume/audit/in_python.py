"""Plans of audits of objects in Python: a loop and its records, a release and knowledge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exhume.attacks.catalogue import names_for
from exhume.audit.build_setting import dealt
from exhume.audit.load_data import Loaded, task_of
from exhume.audit.plan import Plan, live_plan
from exhume.audit.setting import Range, ThreatSetting
from exhume.config import AuditTable, Config, KnowledgeTable, NetworkReleaseTable
from exhume.config.audit import SettingTable
from exhume.config.reading import from_tables
from exhume.config.release import EstimatorReleaseTable, LinearReleaseTable
from exhume.models.own_code import OwnCode
from exhume.protocol.attack import ThreatModel
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Outputs, Release, Update, Weights
from exhume.protocol.schema import Schema
from exhume.training.answers import trained_model
from exhume.training.estimator import Estimator
from exhume.training.glm import GLM

_HERE = "(in Python)"
_AT_OPTIMUM = (
    "Every fit ends at the optimum of {}: its own solver may end before it, and then shows less."
)


def training_plan(
    code: OwnCode, records: Records, value_range: Range | None, tables: dict[str, Any]
) -> Plan:
    """Return the plan of an audit of a loop, on ``records`` in place of a data set.

    ``tables`` are those of a TOML file: data (without a source), release, knowledge and audit.
    """
    tables = {
        **tables,
        "data": {"name": _HERE, **tables.get("data", {})},
        "release": {"training": code.source, **tables.get("release", {})},
    }
    config = from_tables(tables, source="audit_training")
    table = config.setting[0]
    setting = dealt(config, table, Loaded(records, value_range, task_of(records)))
    return live_plan(config, [setting])


def estimator_plan(
    estimator: Estimator,
    records: Records,
    *,
    targets: int,
    attacks: Sequence[str] | None,
    knows_labels: bool,
    seed: int,
    attributes: Sequence[str] = (),
    left_out: int = 0,
    optimum: GLM | None = None,
) -> Plan:
    """Return the plan of an audit of an estimator: all records but the targets are known.

    ``attributes`` are the columns that are known of a target; ``left_out`` rows had no label. With
    ``optimum``, the same training to its optimum, targets share their fits and closed forms.
    """
    from exhume.data.split import all_but_targets

    if targets < 1 or len(records) - targets < 2:
        raise InputError(f"{targets} targets of {len(records)} records: at least 2 must be left")
    split = all_but_targets(records, targets=targets, seed=seed)
    own = estimator.describe()
    release: Any = EstimatorReleaseTable.model_construct(estimator=own)
    if optimum is not None:
        release = LinearReleaseTable.model_construct(model=own, standardise=optimum.standardise)
    known = KnowledgeTable(labels=knows_labels, attributes=tuple(attributes))
    table = SettingTable.model_construct(name="estimator", release=release, knowledge=known)
    estimator.require_labels(records)
    audit = AuditTable(
        attacks=None if attacks is None else tuple(attacks), seed=seed, targets=targets
    )
    setting = ThreatSetting(
        table.name,
        own,
        estimator if optimum is None else optimum,
        split.fixed_set,
        None,
        split.targets,
        None,
        None,
        knows_labels,
        _entries(estimator.schema, attributes),
        schema=estimator.schema,
        left_out=left_out,
        origin="" if optimum is None else _AT_OPTIMUM.format(own),
    )
    config = Config.model_construct(setting=(table,), audit=audit)
    return live_plan(config, [setting])


def in_closed_form(attacks: Sequence[str] | None) -> bool:
    """Whether attacks on linear models are asked for: by name, or because none is named."""
    return set(attacks or ()) <= set(names_for(ThreatModel.LINEAR_MODEL))


def _entries(schema: Schema | None, attributes: Sequence[str]) -> tuple[int, ...]:
    """Return the entries of a record that these columns take."""
    if not attributes:
        return ()
    if schema is None:
        raise InputError("attributes by name need a table with named columns")
    return schema.entries_of(attributes)


@dataclass(frozen=True, eq=False)
class GivenSetting(ThreatSetting):
    """One release that was handed over, with all that the adversary knows."""

    known: Knowledge | None = None

    def knowledge(self, *members: int) -> Knowledge:
        """Return what was handed over, whatever is asked about."""
        assert self.known is not None
        return self.known


def release_plan(
    release: Release,
    knowledge: Knowledge,
    *,
    truth: Records | None,
    records: int | None,
    attacks: Sequence[str] | None,
    seed: int,
) -> Plan:
    """Return the plan of an audit of one release; ``truth`` are the records that it is about."""
    batch = _batch(release, knowledge, truth, records)
    wanted = batch or 1
    if truth is not None and (truth.record_shape != knowledge.record_shape or len(truth) != wanted):
        raise InputError(
            f"truth must be {wanted} records of shape {knowledge.record_shape}, got {len(truth)} "
            f"of {truth.record_shape}"
        )
    if knowledge.training is None:
        raise InputError(
            "knowledge.training is missing: give at least the architecture, as "
            "exhume.training.Training, GLM, or what exhume.torch returns"
        )
    table = _table(release, knowledge, batch)
    audit = AuditTable(attacks=None if attacks is None else tuple(attacks), seed=seed)
    config = Config.model_construct(
        setting=(table,), audit=audit.model_copy(update={"authenticity": 0})
    )
    setting = GivenSetting(
        table.name,
        table.name,
        knowledge.training,
        knowledge.fixed_set or Records(np.empty((0, *knowledge.record_shape))),
        knowledge.shadow_targets,
        truth,
        None,
        knowledge.value_range,
        knowledge.labels is not None,
        _known_columns(knowledge),
        release,
        knowledge.initial,
        batch,
        knowledge.batch_norm is not None,
        known=knowledge,
    )
    return live_plan(config, [setting])


def _batch(
    release: Release, knowledge: Knowledge, truth: Records | None, records: int | None
) -> int | None:
    """Return how many records a release is about, None for one beside a fixed set."""
    if isinstance(release, Gradient | Update):
        return release.batch_size
    if knowledge.fixed_set is not None:
        return None
    found = records or (None if truth is None else len(truth))
    if found is None:
        raise InputError(
            "without knowledge.fixed_set, say how many records the model was trained on: records = "
        )
    return found


def _table(release: Release, knowledge: Knowledge, batch: int | None) -> SettingTable:
    """Return a table that says of the objects what stages ask tables about."""
    kinds = {Weights: "weights", Outputs: "outputs", Gradient: "gradient", Update: "update"}
    kind, file = kinds.get(type(release)), Path(_HERE)
    if kind is None:
        raise InputError(
            "audit_release takes weights, answers, a gradient or an update, not "
            f"{type(release).__name__}; a transcript is audited from a file or a recording"
        )
    assert knowledge.training is not None
    known = KnowledgeTable(labels=knowledge.labels is not None)
    if knowledge.known_attributes is not None:
        known = known.model_copy(update={"attributes": _known_columns(knowledge)})
    own: dict[str, Any] = {"kind": kind, "file": file, "model": _HERE}
    if isinstance(trained_model(knowledge.training), GLM):
        made: Any = LinearReleaseTable.model_construct(**own)
    else:
        made = NetworkReleaseTable.model_construct(**own, batch_size=batch)
    return SettingTable.model_construct(name="release", release=made, knowledge=known)


def _known_columns(knowledge: Knowledge) -> tuple[int, ...]:
    known = knowledge.known_attributes
    return () if known is None else tuple(np.flatnonzero(known.mask.ravel()).tolist())
