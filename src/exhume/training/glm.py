"""Training of a generalised linear model: the mechanism that the closed-form attack inverts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.families import Family
from exhume.training.model import Label, Model
from exhume.training.newton import Problem, minimise, minimise_each
from exhume.training.penalty import Penalty
from exhume.training.shared_units import SharedUnits, scalers_with


@dataclass(frozen=True)
class Solver:
    """The solver: ``exact`` is Newton to rounding error, others are scikit-learn's.

    ``tolerance`` and ``max_iterations`` are those of scikit-learn; None means its default.
    """

    name: str = "exact"
    tolerance: float | None = None
    max_iterations: int | None = None


_KINDS = {
    Family.LINEAR: "linear regression",
    Family.LOGISTIC: "logistic regression",
    Family.MULTINOMIAL: "multinomial logistic regression",
    Family.POISSON: "Poisson regression",
}


@dataclass(frozen=True)
class GLM(Model):
    """A linear, logistic, multinomial or Poisson model, fitted to (or near) its optimum.

    ``classes`` lists the labels of a classifier in the order of its outputs, and ``class_weights``
    their weights. ``standardise`` fits a StandardScaler on all the data first and releases it too.
    Releases ``coef`` (outputs, features), ``intercept`` (outputs,), and with a scaler its
    ``scaler.mean``, ``scaler.scale`` (features,) and ``scaler.count`` ().
    """

    family: Family
    penalty: Penalty = field(default_factory=Penalty)
    intercept: bool = True
    classes: tuple[Label, ...] | None = None
    class_weights: tuple[float, ...] | None = None
    standardise: bool = False
    solver: Solver = field(default_factory=Solver)

    def __post_init__(self) -> None:
        if self.family.classifies != (self.classes is not None):
            raise InputError(f"a {self.family.value} model and classes={self.classes} don't agree")
        count = len(self.classes or ())
        if self.family is Family.LOGISTIC and count != 2:
            raise InputError(f"a logistic model has exactly 2 classes, got {count}")
        if self.family is Family.MULTINOMIAL and count < 2:
            raise InputError(f"a multinomial model has at least 2 classes, got {count}")
        if self.class_weights is not None and len(self.class_weights) != count:
            raise InputError(f"{count} classes but {len(self.class_weights)} class weights")

    @property
    def outputs(self) -> int:
        """The number of scores of the model."""
        return len(self.classes or ()) if self.family is Family.MULTINOMIAL else 1

    def publish(self, data: Records, *, rng: np.random.Generator) -> Weights:
        """Fit the model on ``data`` and release its parameters."""
        self._check(data)
        if self.solver.name != "exact":
            from exhume.training.sklearn_solvers import fit

            return fit(self, data, seed=int(rng.integers(2**31)))
        scaler = fitted_scaler(data) if self.standardise else {}
        theta = minimise(self.problem(data, scaler))
        return Weights({**self.parameters(theta), **scaler})

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Weights]:
        """Fit with each target added in turn; exact solutions share the fixed set's Hessian."""
        if self._can_share(fixed_set, targets):
            try:
                return self._publish_shared(fixed_set, targets)
            except InputError:
                # The model may be determined with a target but not by the fixed set alone.
                pass
        return [
            self.publish(fixed_set.with_record(targets.take([i])), rng=rng)
            for i, rng in enumerate(rngs)
        ]

    def _publish_shared(self, fixed_set: Records, targets: Records) -> list[Weights]:
        self._check(fixed_set.with_record(targets))
        if self.standardise:
            return self._publish_scaled(fixed_set, targets)
        problem = self.problem(fixed_set, {})
        rows, responses = self.design(targets.x, {}), self.responses(targets.labels)
        thetas = minimise_each(problem, rows, responses)
        return [Weights(self.parameters(theta)) for theta in thetas]

    def _publish_scaled(self, fixed_set: Records, targets: Records) -> list[Weights]:
        """Fit in the units of the fixed set's scaler, which those with a target hardly differ from.

        There, the penalty of a column follows the target's own scale.
        """
        rows, base = np.asarray(fixed_set.x, dtype=np.float64), fitted_scaler(fixed_set)
        rows, own = rows.reshape(len(rows), -1), np.asarray(targets.x, dtype=np.float64)
        scalers = scalers_with(base, rows, own.reshape(len(own), -1))
        units, problem = SharedUnits.of(base, scalers), self.problem(fixed_set, base)
        penalties = np.repeat(problem.penalty[None], len(scalers), axis=0)
        penalties[:, 1:] /= units.ratio**2
        design, responses = self.design(targets.x, base), self.responses(targets.labels)
        thetas = units.outward(minimise_each(problem, design, responses, penalties))
        pairs = zip(thetas, scalers, strict=True)
        return [Weights({**self.parameters(theta), **scaler}) for theta, scaler in pairs]

    def scores(self, release: Weights, x: Array) -> FloatArray:
        """Return the linear predictor (n, outputs) of records ``x``, after any scaler.

        It is not finite where a defence rounded a scale to 0.
        """
        scaler = {name: a for name, a in release.parameters.items() if name.startswith("scaler.")}
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            return np.asarray(self.design(x, scaler) @ self.theta(release.parameters))

    def means(self, scores: FloatArray) -> FloatArray:
        """Return class probabilities (n, classes), or the predicted responses (n, outputs)."""
        means = self.family.mean(scores)
        if self.family is Family.LOGISTIC:
            return np.hstack([self.family.mean(-scores), means])
        return means

    def describe(self) -> str:
        """Return for example ``a linear regression (with intercept, penalty 1)``."""
        details = ["with intercept" if self.intercept else "without intercept"]
        if self.penalty.strength > 0:
            details.append(f"penalty {self.penalty.strength:g}")
        if self.standardise:
            details.append("with its StandardScaler")
        if self.solver.name != "exact":
            tolerance = self.solver.tolerance
            details.append(
                f"solver {self.solver.name}" + (f", tol {tolerance:g}" if tolerance else "")
            )
        return f"a {_KINDS[self.family]} ({', '.join(details)})"

    # The parts of the training that the attack needs, in the terms of the objective.

    def design(self, x: Array, scaler: Mapping[str, Array]) -> FloatArray:
        """Return records as rows, scaled and, with an intercept, with a leading 1."""
        rows = np.asarray(x, dtype=np.float64).reshape(len(x), math.prod(x.shape[1:]))
        if scaler:
            rows = (rows - scaler["scaler.mean"]) / scaler["scaler.scale"]
        columns = [np.ones((len(rows), 1)), rows] if self.intercept else [rows]
        return np.asarray(np.hstack(columns), dtype=np.float64)

    def responses(self, labels: Array) -> FloatArray:
        """Return labels as the mean-response coding (n, outputs): numbers, 0/1 or one-hot."""
        if self.classes is None:
            return np.asarray(labels, dtype=np.float64)[:, None]
        matches = np.asarray(labels)[:, None] == np.asarray(self.classes)[None, :]
        if not matches.any(axis=1).all():
            stranger = np.asarray(labels)[~matches.any(axis=1)][0]
            raise InputError(f"label {stranger} is not one of the model's classes {self.classes}")
        one_hot = matches.astype(np.float64)
        return np.asarray(one_hot[:, 1:] if self.family is Family.LOGISTIC else one_hot)

    def weights_of(self, data: Records) -> FloatArray:
        """Return the weight of each record in the loss."""
        weights = np.ones(len(data)) if data.weight is None else np.asarray(data.weight, np.float64)
        if self.class_weights is None:
            return weights
        index = np.argmax(data.labels[:, None] == np.asarray(self.classes)[None, :], axis=1)
        return np.asarray(weights * np.asarray(self.class_weights)[index])

    def column_penalty(self, features: int, total_weight: float) -> FloatArray:
        """Return the penalty of each column of the design, in the summed convention."""
        strength = self.penalty.summed(1) * (total_weight if self.penalty.averaged else 1.0)
        penalty = np.full(features + self.intercept, strength)
        if self.intercept and not self.penalty.intercept:
            penalty[0] = 0.0
        return penalty

    def problem(
        self, data: Records, scaler: Mapping[str, Array], *, extra_weight: float = 0.0
    ) -> Problem:
        """Return the objective on ``data``; ``extra_weight`` is the weight of missing records."""
        weights = self.weights_of(data)
        design = self.design(data.x, scaler)
        features = design.shape[1] - self.intercept
        penalty = self.column_penalty(features, float(weights.sum()) + extra_weight)
        return Problem(self.family, design, self.responses(data.labels), weights, penalty)

    def parameters(self, theta: FloatArray) -> dict[str, Array]:
        """Return parameters (columns, outputs) under their released names."""
        if not self.intercept:
            return {"coef": theta.T}
        return {"coef": theta[1:].T, "intercept": theta[0]}

    def theta(self, parameters: Mapping[str, Array]) -> FloatArray:
        """Return released parameters as (columns, outputs)."""
        coef = np.atleast_2d(np.asarray(parameters["coef"], dtype=np.float64)).T
        if not self.intercept:
            return coef
        return np.vstack([np.reshape(parameters["intercept"], (1, -1)).astype(np.float64), coef])

    def _can_share(self, fixed_set: Records, targets: Records) -> bool:
        """Whether each target adds one record of weight 1 to an existing optimum."""
        if self.solver.name != "exact" or self.penalty.averaged:
            return False
        if self.standardise and (not self.intercept or self.penalty.intercept or not len(targets)):
            return False
        if self.class_weights is not None or targets.weight is not None:
            return False
        return set(self.classes or ()) <= set(fixed_set.labels.tolist())

    def _check(self, data: Records) -> None:
        labels = data.labels
        if self.classes is not None:
            missing = set(self.classes) - set(labels.tolist())
            if missing:
                raise InputError(
                    f"no training record has class {sorted(map(str, missing))}; every one of "
                    f"{len(self.classes)} classes needs at least one"
                )
        elif self.family is Family.POISSON and float(labels.min()) < 0:
            raise InputError(f"a Poisson response can't be negative, got {labels.min()}")
        if np.ptp(np.asarray(data.x, dtype=np.float64), axis=0).max() == 0:
            raise InputError("every training record is the same: there is nothing to fit")


def fitted_scaler(data: Records) -> dict[str, Array]:
    """Return the contents of a StandardScaler fitted on ``data`` (constant columns: scale 1)."""
    rows = np.asarray(data.x, dtype=np.float64).reshape(len(data), -1)
    scale = rows.std(axis=0)
    scale[scale <= 10 * np.finfo(np.float64).eps * np.abs(rows).max(axis=0)] = 1.0
    return {
        "scaler.mean": rows.mean(axis=0),
        "scaler.scale": scale,
        "scaler.count": np.asarray(len(rows)),
    }
