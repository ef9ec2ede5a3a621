"""Settings of fitted scikit-learn estimators: every record but the targets is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from exhume.audit.build_mechanism import build_mechanism
from exhume.audit.estimator_of import fitted_columns, require_columns, stored_estimator
from exhume.audit.known_columns import known_entries
from exhume.audit.load_data import Loaded
from exhume.audit.setting import ThreatSetting
from exhume.config import Config, EstimatorReleaseTable, SettingTable
from exhume.data.split import all_but_targets
from exhume.protocol.defence import undefended
from exhume.protocol.errors import InputError
from exhume.training.estimator import Estimator
from exhume.training.fitted_state import state_of
from exhume.training.unwrapped import fitted_inside

__all__ = ["fitted_columns", "refitted", "stored_estimator"]

_SAME = 1e-6


def refitted(
    config: Config, table: SettingTable, loaded: Loaded, stored: Any | None
) -> ThreatSetting:
    """Return the setting of fits with one target each; ``stored`` is the fitted one of a file."""
    assert table.data is not None
    assert isinstance(table.release, EstimatorReleaseTable)
    if table.data.shadow_targets or table.data.shadow_targets_from or table.data.before:
        raise InputError(
            "an estimator is attacked with all other records: leave data.shadow_targets, "
            "shadow_targets_from and before out"
        )
    targets = table.targets or config.audit.targets
    if len(loaded.records) - targets < 2:
        raise InputError(f"{len(loaded.records)} records are too few for {targets} targets")
    if table.release.stored is not None:
        width = int(np.prod(loaded.records.record_shape))
        columns = width if loaded.schema is None else len(loaded.schema.columns)
        require_columns(stored, columns, table.release.stored)
    split = all_but_targets(loaded.records, targets=targets, seed=config.audit.seed)
    mechanism = build_mechanism(
        table, split.fixed_set, seed=config.audit.seed, schema=loaded.schema
    )
    trained = undefended(mechanism)
    assert isinstance(trained, Estimator)
    trained.require_labels(loaded.records)
    origin = ""
    if table.release.stored is not None:
        origin = _origin(stored, trained, loaded, table.release.stored)
    return ThreatSetting(
        table.name,
        table.title or table.name,
        mechanism,
        split.fixed_set,
        None,
        split.targets,
        None,
        table.knowledge.value_range or loaded.value_range,
        table.knowledge.labels,
        known_entries(table, split.fixed_set, loaded.schema),
        schema=loaded.schema,
        left_out=loaded.left_out,
        origin=origin,
    )


def _origin(stored: Any, estimator: Estimator, loaded: Loaded, path: Path) -> str:
    """Say whether the file's numbers are those of a fit on these rows."""
    own = state_of(fitted_inside(stored))
    again = state_of(estimator.fitted(loaded.records))
    numbers = {n: a for n, a in own.items() if a.dtype.kind in "fiub" and a.size}
    differ = [
        name
        for name, array in numbers.items()
        if name not in again
        or again[name].shape != array.shape
        or not np.allclose(again[name], array, rtol=_SAME, atol=_SAME * np.abs(array).max())
    ]
    if not differ:
        return f"A fit on these rows gives the numbers in {path.name}."
    return (
        f"A fit on these rows does not give the numbers in {path.name} ({differ[0]} and "
        f"{len(differ) - 1} others differ): it was fitted on other rows, in another order, or "
        "with other random draws. The audit is about fits on these rows."
    )
