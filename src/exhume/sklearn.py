"""The release and an informed adversary's knowledge, from a fitted scikit-learn estimator.

>>> from sklearn.linear_model import Ridge
>>> rng = np.random.default_rng(0)
>>> x = rng.normal(size=(50, 3)); y = x @ [1.0, 2.0, 3.0] + rng.normal(size=50)
>>> published, knowledge = release(Ridge().fit(x, y), fixed_set=(x[1:], y[1:]))
>>> from exhume.attacks import GLM
>>> result = GLM().reconstruct(published, knowledge, rng=0)
>>> bool(np.allclose(result.samples[0], x[0])), bool(np.isclose(result.labels[0], y[0]))
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.families import Family
from exhume.training.glm import GLM, Solver
from exhume.training.penalty import Penalty
from exhume.training.sklearn_solvers import named_parameters

if TYPE_CHECKING:
    from exhume.api import AuditedRun
    from exhume.data.frames import MixedTable
    from exhume.training.frames import Frames

_REFUSED = {
    "GammaRegressor": "its log link is not the Gamma family's canonical one",
    "TweedieRegressor": "its link is not the canonical one of its family",
    "SGDClassifier": "it stops after passes over the data, not at an optimum",
    "SGDRegressor": "it stops after passes over the data, not at an optimum",
    "Lasso": "an L1 penalty has no gradient at zero, so the optimum does not determine it",
    "ElasticNet": "an L1 penalty has no gradient at zero, so the optimum does not determine it",
}

_IN_CLOSED_FORM = ("LinearRegression", "Ridge", "LogisticRegression", "PoissonRegressor")

_AUDIT = "exhume.sklearn.audit takes any estimator and pipeline"


def release(
    estimator: Any,
    *,
    fixed_set: tuple[ArrayLike, ArrayLike],
    sample_weight: tuple[ArrayLike, float] | None = None,
    label: object | None = None,
    known_attributes: KnownAttributes | None = None,
    value_range: tuple[float, float] | None = None,
) -> tuple[Weights, Knowledge]:
    """Return the parameters of a fitted estimator, and the knowledge of an informed adversary.

    ``fixed_set`` holds every training record but one. The estimator is a LinearRegression, Ridge,
    LogisticRegression or PoissonRegressor, or a Pipeline of StandardScaler and one of these. If it
    was fitted with sample weights, ``sample_weight`` gives those of the fixed set and the target's.
    """
    scaler, final = _parts(estimator)
    model = replace(training(final), standardise=scaler is not None)
    x, y = np.asarray(fixed_set[0], dtype=np.float64), np.asarray(fixed_set[1])
    others, own = (None, 1.0) if sample_weight is None else sample_weight
    records = Records(x, _plain_labels(y), None if others is None else np.asarray(others))
    if records.record_shape != (final.n_features_in_,):
        raise InputError(
            f"the estimator was fitted on {final.n_features_in_} features, the fixed set has "
            f"shape {x.shape}"
        )
    _require_labels(model, records.labels, label)
    if scaler is not None and sample_weight is not None:
        raise InputError("a scaler with sample weights is not supported: its mean is weighted too")
    knowledge = Knowledge(
        record_shape=records.record_shape,
        value_range=value_range,
        training=model,
        fixed_set=records,
        labels=None if label is None else np.array([label]),
        target_weight=float(own),
        known_attributes=known_attributes,
    )
    return parameters(estimator), knowledge


def audit(
    estimator: Any,
    x: ArrayLike,
    y: ArrayLike,
    *,
    out: str | Path = "exhume-run",
    targets: int = 20,
    labels: bool = False,
    attacks: Sequence[str] | None = None,
    seed: int = 0,
    workers: int = 1,
    quiet: bool = False,
    attributes: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
) -> AuditedRun:
    """Audit what a fit of any scikit-learn estimator or pipeline holds of single records.

    It is fitted again with each of ``targets`` records in turn, beside all the others, which the
    adversary knows; every fitted attribute is released. ``x`` is an array of numbers or a frame of
    pandas or polars, with columns of every kind; ``columns`` says what some of them are
    (``{"zip": "categorical"}``). ``labels`` says whether the adversary knows the target's label
    too, ``attributes`` which columns. The folder ``out`` has the run; the same call resumes it.
    Linear models are fitted to their optimum, where all targets share the work; to fit with their
    own solver, name an attack on estimators, ``attacks=["refit"]``.
    """
    from exhume.api import audited
    from exhume.audit.in_python import estimator_plan
    from exhume.training.estimator import Estimator
    from exhume.training.unwrapped import unwrapped

    if not hasattr(estimator, "get_params") or not hasattr(estimator, "fit"):
        raise InputError(f"{type(estimator).__name__} is no scikit-learn estimator: it has no fit")
    table, frames = _table(x, y, columns or {})
    rows = frames(table.records.x) if frames is not None else table.records.x
    template = unwrapped(estimator, rows, table.records.labels)
    plan = estimator_plan(
        Estimator(template, frames),
        table.records,
        targets=targets,
        attacks=attacks,
        knows_labels=labels,
        seed=seed,
        attributes=attributes,
        left_out=table.left_out,
        optimum=_optimum(template, table, attacks),
    )
    return audited(plan, Path(out), workers, quiet)


def _optimum(estimator: Any, table: MixedTable, attacks: Sequence[str] | None) -> GLM | None:
    """Return the training of a linear model to its optimum; None where another attack is asked."""
    from sklearn.base import clone

    from exhume.audit.in_python import in_closed_form

    steps = getattr(estimator, "steps", [("", estimator)])
    linear, columns = type(steps[-1][1]).__name__ in _IN_CLOSED_FORM, table.schema.columns
    numbers = all(one.kind.numeric and not one.missing for one in columns)
    if not (linear and numbers and in_closed_form(attacks)):
        return None
    try:
        fitted = clone(estimator).fit(np.asarray(table.records.x), table.records.labels)
        scaler, final = _parts(fitted)
        return replace(training(final), standardise=scaler is not None, solver=Solver())
    except (InputError, ValueError, TypeError):
        # What the closed form refuses, fits show: class_weight="balanced", an L1 penalty.
        return None


def _table(x: Any, y: Any, columns: Mapping[str, str]) -> tuple[MixedTable, Frames | None]:
    """Return records, and how frames are made of them where they came as one."""
    from exhume.data.frames import answers_of, cells_of_frame, is_frame, table_of
    from exhume.data.infer_schema import ColumnWish
    from exhume.training.frames import Frames, dtypes_of

    if np.ndim(y) > 1:
        raise InputError(
            f"y has shape {np.shape(y)}: audit one response per row at a time, y[:, 0] for example"
        )
    if not is_frame(x):
        values = np.asarray(x)
        if values.dtype.kind not in "biuf":
            raise InputError(
                f"x must hold numbers, got {values.dtype}: give text and categories as a frame of "
                "pandas or polars, whose columns have names"
            )
        if columns:
            raise InputError("columns says what columns of a frame are, and x is an array")
        return _plain_table(values, y), None
    cells, library = cells_of_frame(x)
    wishes = {name: ColumnWish(kind) for name, kind in columns.items()}
    answers = answers_of(y)
    name = str(getattr(y, "name", "") or "")
    table = table_of(cells, answers, label=name, wishes=wishes, source="x", library=library)
    return table, Frames(table.schema, library, dtypes_of(x, table.schema))


def _plain_table(values: Array, y: Any) -> MixedTable:
    """Return an array of numbers as records, without names."""
    from exhume.data.frames import MixedTable
    from exhume.protocol.schema import Schema

    records = Records(values.astype(np.float64), _plain_labels(np.asarray(y)))
    return MixedTable(records, Schema(()))


def _require_labels(model: GLM, labels: Array, own: object | None) -> None:
    """Refuse labels that the model was not fitted on, before an attack meets them."""
    if model.classes is None:
        numbers = labels.dtype.kind in "biuf" and isinstance(own, float | int | np.number | None)
        if not numbers:
            first = labels.tolist()[0] if labels.dtype.kind not in "biuf" else own
            raise InputError(f"the model predicts numbers, but a label is {first!r}")
        return
    for one in [*np.unique(labels).tolist(), *([] if own is None else [own])]:
        if one not in model.classes:
            there = ", ".join(map(repr, model.classes))
            raise InputError(f"label {one!r} is none of the model's classes: {there}")


def parameters(estimator: Any) -> Weights:
    """Return the parameters of a fitted estimator, with the names that ``training.GLM`` uses."""
    return named_parameters(*_parts(estimator))


def save(estimator: Any, path: str | Path) -> None:
    """Write a fitted estimator for ``exhume audit``: all of it as .skops.

    As .safetensors, the parameters of a linear model alone. Only the owner can read the file.
    """
    from exhume.data.array_files import write_arrays
    from exhume.data.estimator_files import SKOPS, write_estimator

    path = Path(path)
    if path.suffix == SKOPS:
        _require_fit(estimator)
        write_estimator(path, estimator)
    elif path.suffix == ".safetensors":
        write_arrays(path, dict(parameters(estimator).parameters))
    else:
        raise InputError(
            f"{path}: an estimator is saved as {SKOPS} with all its settings, or as .safetensors "
            "with the parameters of a linear model alone"
        )


def training(estimator: Any) -> GLM:
    """Return the training of a fitted linear estimator; raises InputError if unsupported."""
    name = type(estimator).__name__
    match name:
        case "LinearRegression" | "Ridge":
            return _least_squares(estimator)
        case "LogisticRegression":
            return _logistic(estimator)
        case "PoissonRegressor":
            penalty = Penalty(float(estimator.alpha), averaged=True)
            solver = Solver(estimator.solver, float(estimator.tol), estimator.max_iter)
            return GLM(Family.POISSON, penalty, estimator.fit_intercept, solver=solver)
    reason = _REFUSED.get(name, f"supported: {', '.join(_IN_CLOSED_FORM)}")
    raise InputError(f"{name} can't be attacked in closed form: {reason}; {_AUDIT}")


def _parts(estimator: Any) -> tuple[Any | None, Any]:
    """Split a Pipeline into scaler and model; anything else is a model."""
    if type(estimator).__name__ != "Pipeline":
        _require_fitted(estimator)
        return None, estimator
    steps = [step for _, step in estimator.steps]
    names = [type(step).__name__ for step in steps]
    if len(steps) == 1:
        return _parts(steps[0])
    if len(steps) != 2 or names[0] != "StandardScaler":
        raise InputError(
            f"a Pipeline must be StandardScaler and a linear model, got {' → '.join(names)}; "
            f"{_AUDIT}"
        )
    scaler, final = steps
    _require_fitted(final)
    if not scaler.with_mean or not scaler.with_std:
        raise InputError("the StandardScaler must have with_mean=True and with_std=True")
    return scaler, final


def _require_fitted(estimator: Any) -> None:
    name = type(estimator).__name__
    _require_fit(estimator)
    if name in _REFUSED:
        training(estimator)
    if not hasattr(estimator, "coef_"):
        raise InputError(f"{name} has no coefficients: {_AUDIT}")


def _require_fit(estimator: Any) -> None:
    """Refuse an estimator that is not fitted, and anything that is none."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise InputError(f"the {type(estimator).__name__} is not fitted: fit it first") from None
    except TypeError:
        name = type(estimator).__name__
        raise InputError(f"{name} is no scikit-learn estimator: it has no fit") from None


def _least_squares(estimator: Any) -> GLM:
    if estimator.positive:
        raise InputError("positive=True constrains the optimum: its gradient does not vanish there")
    if np.ndim(estimator.coef_) > 1 and np.shape(estimator.coef_)[0] > 1:
        raise InputError(f"one response at a time: coef_ has shape {np.shape(estimator.coef_)}")
    if type(estimator).__name__ == "LinearRegression":
        return GLM(Family.LINEAR, Penalty(), estimator.fit_intercept, solver=Solver("lstsq"))
    if np.ndim(estimator.alpha) > 0:
        raise InputError("Ridge with one alpha per target is not supported: give a single alpha")
    # `solver_` is the solver that "auto" selected.
    solver = getattr(estimator, "solver_", estimator.solver)
    return GLM(
        Family.LINEAR,
        Penalty(float(estimator.alpha)),
        estimator.fit_intercept,
        solver=Solver(solver, float(estimator.tol), estimator.max_iter),
    )


def _logistic(estimator: Any) -> GLM:
    _require_squared_norm(estimator)
    classes = tuple(estimator.classes_.tolist())
    liblinear = estimator.solver == "liblinear"
    if liblinear and estimator.fit_intercept and estimator.intercept_scaling != 1:
        raise InputError(f"intercept_scaling must be 1, got {estimator.intercept_scaling}")
    if len(classes) > 2 and (liblinear or getattr(estimator, "multi_class", None) == "ovr"):
        raise InputError("one-versus-rest is several binary models: attack them one at a time")
    penalty = Penalty(
        0.0 if _penalty_name(estimator) is None else 1.0 / float(estimator.C), intercept=liblinear
    )
    return GLM(
        Family.LOGISTIC if len(classes) == 2 else Family.MULTINOMIAL,
        penalty,
        estimator.fit_intercept,
        classes=classes,
        class_weights=_class_weights(estimator, classes),
        solver=Solver(estimator.solver, float(estimator.tol), estimator.max_iter),
    )


def _penalty_name(estimator: Any) -> str | None:
    """Return the penalty across versions: ``l1_ratio`` and ``C=inf`` replaced ``penalty``."""
    named = getattr(estimator, "penalty", "deprecated")
    if named is None or named == "none" or not np.isfinite(estimator.C):
        return None
    if named in ("l1", "elasticnet"):
        return str(named)
    return "elasticnet" if (estimator.l1_ratio or 0.0) > 0 else "l2"


def _require_squared_norm(estimator: Any) -> None:
    named = _penalty_name(estimator)
    if named in ("l1", "elasticnet"):
        raise InputError(
            f"a penalty with an L1 part ({named}, l1_ratio={estimator.l1_ratio}) has no gradient "
            "at zero: the optimum does not determine it; only squared-norm penalties are supported"
        )


def _class_weights(estimator: Any, classes: tuple[Any, ...]) -> tuple[float, ...] | None:
    weights = estimator.class_weight
    if weights is None:
        return None
    if not isinstance(weights, dict):
        raise InputError(
            f"class_weight={weights!r} depends on the target's own label: give the weights as a "
            "dictionary of class to weight"
        )
    return tuple(float(weights.get(c, 1.0)) for c in classes)


def _plain_labels(y: Array) -> Array:
    """Return labels without objects inside: strings become a string array."""
    return y.astype(str) if y.dtype.hasobject else y
