"""Fits of linear models by the solvers of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.families import Family

if TYPE_CHECKING:
    from exhume.training.glm import GLM


def named_parameters(scaler: Any | None, estimator: Any) -> Weights:
    """Return the parameters of a fitted model and its scaler, named as ``GLM`` publishes them."""
    arrays: dict[str, Array] = {"coef": np.atleast_2d(estimator.coef_)}
    if estimator.fit_intercept:
        arrays["intercept"] = np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64))
    if scaler is not None:
        arrays |= {
            "scaler.mean": scaler.mean_,
            "scaler.scale": scaler.scale_,
            "scaler.count": np.asarray(scaler.n_samples_seen_),
        }
    return Weights(arrays)


def fit(model: GLM, data: Records, *, seed: int) -> Weights:
    """Fit with the scikit-learn solver that ``model`` names, and return the parameters."""
    import warnings

    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    estimator = _estimator(model, float(model.weights_of(data).sum()), seed)
    rows = np.asarray(data.x, dtype=np.float64).reshape(len(data), -1)
    scaler = StandardScaler() if model.standardise else None
    whole = estimator if scaler is None else make_pipeline(scaler, estimator)
    weights = {}
    if data.weight is not None:
        # The weights apply to the loss alone: the scaler counts every record once.
        name = f"{whole.steps[-1][0]}__sample_weight" if model.standardise else "sample_weight"
        weights[name] = data.weight
    with warnings.catch_warnings():
        # An unfinished solver is part of what the audit measures; the attack's own estimate shows
        # it.
        warnings.simplefilter("ignore")
        try:
            whole.fit(rows, data.labels, **weights)
        except ValueError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"scikit-learn refuses this training: {reason}") from None
    return named_parameters(scaler, estimator)


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
