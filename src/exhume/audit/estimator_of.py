"""The scikit-learn estimator that a configuration names: by a function, or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exhume.config import EstimatorReleaseTable
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.schema import Schema
from exhume.training.estimator import Estimator
from exhume.training.frames import Frames
from exhume.training.unwrapped import unwrapped


def stored_estimator(release: EstimatorReleaseTable) -> Any | None:
    """Return the fitted estimator of a file; None if a function of the user's own builds it."""
    from exhume.data.estimator_files import read_estimator

    return None if release.stored is None else read_estimator(release.stored)


def estimator_of(
    release: EstimatorReleaseTable, known: Records, schema: Schema | None
) -> Estimator:
    """Return the mechanism: the unfitted estimator, inside any search of its settings."""
    from exhume.models.own_code import code_named

    template = stored_estimator(release)
    if template is None:
        template = code_named(release.estimator).function()()
    if not hasattr(template, "fit") or not hasattr(template, "get_params"):
        raise InputError(
            f"{release.estimator} must return a scikit-learn estimator, got {type(template)}"
        )
    frames = None if schema is None else Frames(schema)
    rows = Estimator(template, frames).rows(known.x)
    return Estimator(unwrapped(template, rows, known.labels), frames)


def fitted_columns(stored: Any | None) -> tuple[str, ...] | None:
    """Return the names of the columns that an estimator was fitted on, None if it has no names."""
    names = getattr(stored, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def require_columns(stored: Any, count: int, path: Path) -> None:
    """Refuse a table that an estimator without columns' names was not fitted on."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(stored)
    except NotFittedError:
        raise InputError(
            f"{path}: the {type(stored).__name__} in it is not fitted; save it after fit"
        ) from None
    fitted_on = getattr(stored, "n_features_in_", count)
    if fitted_on != count:
        raise InputError(
            f"{path}: was fitted on {fitted_on} columns, the table has {count} beside the label; "
            'leave the others out: [data.columns] name = "ignored"'
        )
