"""Straight from a fitted scikit-learn estimator: its release, and what an informed adversary knows.

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

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from exhume.arrays import Array
from exhume.errors import InputError
from exhume.knowledge import Knowledge, KnownAttributes
from exhume.records import Records
from exhume.release import Weights
from exhume.training.families import Family
from exhume.training.glm import GLM, Solver
from exhume.training.penalty import Penalty

_REFUSED = {
    "GammaRegressor": "its log link is not the Gamma family's canonical one",
    "TweedieRegressor": "its link is not the canonical one of its family",
    "SGDClassifier": "it stops after passes over the data, not at an optimum",
    "SGDRegressor": "it stops after passes over the data, not at an optimum",
    "Lasso": "an L1 penalty has no gradient at zero, so that the optimum does not fix it",
    "ElasticNet": "an L1 penalty has no gradient at zero, so that the optimum does not fix it",
}


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

    ``fixed_set`` holds every training record but one. LinearRegression, Ridge, LogisticRegression,
    PoissonRegressor, or a Pipeline of StandardScaler and one of these. Where the estimator was
    fitted with sample weights, ``sample_weight`` gives those of the fixed set and the target's.
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


def parameters(estimator: Any) -> Weights:
    """Return what a fitted estimator holds, under the names that ``training.GLM`` publishes."""
    scaler, final = _parts(estimator)
    arrays: dict[str, Array] = {"coef": np.atleast_2d(final.coef_)}
    if final.fit_intercept:
        arrays["intercept"] = np.atleast_1d(np.asarray(final.intercept_, dtype=np.float64))
    if scaler is not None:
        arrays |= {
            "scaler.mean": scaler.mean_,
            "scaler.scale": scaler.scale_,
            "scaler.count": np.asarray(scaler.n_samples_seen_),
        }
    return Weights(arrays)


def save(estimator: Any, path: Path) -> None:
    """Write a fitted estimator's parameters as safetensors, for ``exhume audit`` to read."""
    from exhume.audit.files import write_arrays

    write_arrays(Path(path), dict(parameters(estimator).parameters))


def training(estimator: Any) -> GLM:
    """Return the training that a fitted linear estimator stands for, or refuse with the reason."""
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
    reason = _REFUSED.get(
        name, "supported: LinearRegression, Ridge, LogisticRegression, PoissonRegressor"
    )
    raise InputError(f"{name} can't be attacked in closed form: {reason}")


def fit(model: GLM, data: Records, *, seed: int) -> Weights:
    """Fit with the scikit-learn solver that ``model`` names, and return the parameters."""
    import warnings

    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    estimator = _estimator(model, float(model.weights_of(data).sum()), seed)
    rows = np.asarray(data.x, dtype=np.float64).reshape(len(data), -1)
    whole = make_pipeline(StandardScaler(), estimator) if model.standardise else estimator
    weights = {}
    if data.weight is not None:
        # The weights are the loss's alone: the scaler counts every record once.
        name = f"{whole.steps[-1][0]}__sample_weight" if model.standardise else "sample_weight"
        weights[name] = data.weight
    with warnings.catch_warnings():
        # An unfinished solver is what the audit measures, and shows in the attack's own estimate.
        warnings.simplefilter("ignore")
        try:
            whole.fit(rows, data.labels, **weights)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"scikit-learn refuses this training: {reason}") from None
    return parameters(whole)


def _estimator(model: GLM, total_weight: float, seed: int) -> Any:
    from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge

    strength = model.penalty.summed(1) * (total_weight if model.penalty.averaged else 1.0)
    name = model.solver.name
    common: dict[str, Any] = {"fit_intercept": model.intercept}
    if model.solver.tolerance is not None:
        common["tol"] = model.solver.tolerance
    if model.solver.max_iterations is not None:
        common["max_iter"] = model.solver.max_iterations
    match model.family:
        case Family.LINEAR if strength == 0.0:
            return LinearRegression(fit_intercept=model.intercept)
        case Family.LINEAR:
            return Ridge(alpha=strength, solver=name, random_state=seed, **common)
        case Family.POISSON:
            return PoissonRegressor(alpha=strength / total_weight, solver=name, **common)
    weights = model.class_weights
    return LogisticRegression(
        C=np.inf if strength == 0.0 else 1.0 / strength,
        solver=name,
        random_state=seed,
        class_weight=None
        if weights is None
        else dict(zip(model.classes or (), weights, strict=True)),
        **common,
    )


def _parts(estimator: Any) -> tuple[Any | None, Any]:
    """Split a Pipeline of a scaler and a model; anything else is a model."""
    if type(estimator).__name__ != "Pipeline":
        _require_fitted(estimator)
        return None, estimator
    steps = [step for _, step in estimator.steps]
    names = [type(step).__name__ for step in steps]
    if len(steps) == 1:
        return _parts(steps[0])
    if len(steps) != 2 or names[0] != "StandardScaler":
        raise InputError(f"a Pipeline must be StandardScaler and a linear model, got {names}")
    scaler, final = steps
    _require_fitted(final)
    if not scaler.with_mean or not scaler.with_std:
        raise InputError("the StandardScaler must have with_mean=True and with_std=True")
    return scaler, final


def _require_fitted(estimator: Any) -> None:
    name = type(estimator).__name__
    if name in _REFUSED:
        training(estimator)
    if not hasattr(estimator, "coef_"):
        raise InputError(f"{name} has no coefficients: fit it first, or give a linear model")


def _least_squares(estimator: Any) -> GLM:
    if estimator.positive:
        raise InputError("positive=True constrains the optimum: its gradient does not vanish there")
    if np.ndim(estimator.coef_) > 1 and np.shape(estimator.coef_)[0] > 1:
        raise InputError(f"one response at a time: coef_ has shape {np.shape(estimator.coef_)}")
    if type(estimator).__name__ == "LinearRegression":
        return GLM(Family.LINEAR, Penalty(), estimator.fit_intercept, solver=Solver("lstsq"))
    if np.ndim(estimator.alpha) > 0:
        raise InputError("Ridge with one alpha a target is not supported: give a single alpha")
    # `solver_` says what "auto" came to.
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
    """What is penalised, across versions: ``penalty`` gave way to ``l1_ratio`` and ``C=inf``."""
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
            "at zero: the optimum does not fix it; only squared-norm penalties can be inverted"
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
    """Labels without objects inside: strings become a string array."""
    return y.astype(str) if y.dtype.hasobject else y
