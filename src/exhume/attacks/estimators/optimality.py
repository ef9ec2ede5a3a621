"""Where a search starts: what an optimum or a sum is missing beside the known records.

At the optimum, the records' gradients and the penalty's add up to zero. The one that is missing is
a multiple of the unknown record with a 1 for the intercept: the ratio of both is the record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.attacks.estimators.network_gradient import FittedNetwork
from exhume.attacks.estimators.prior_mean import PriorMean
from exhume.protocol.arrays import Array, FloatArray

if TYPE_CHECKING:
    from exhume.attacks.estimators.refit import FittedRelease

_LEAST = 1e-9
"""A missing part smaller than this share of the known ones is rounding: no record shows."""
_ALIKE = 0.5
"""How far the margins of a record may be from those that its part shows, as a share."""
_BEYOND = 1.2
"""Where a response counts as an outlier, in units of the limit: further out it makes no change."""


@dataclass(frozen=True, eq=False)
class MissingPart:
    """The missing multiple of [record, 1] per output, (outputs, features) and (outputs,)."""

    record: FloatArray
    one: FloatArray

    def solved(self) -> FloatArray:
        """Return the record (features,) by least squares over the outputs."""
        return np.asarray(self.one @ self.record / (self.one @ self.one))


@dataclass(frozen=True, eq=False)
class LinearFit:
    """A fitted linear model: settings, released numbers by name, and the known rows it saw."""

    settings: Any
    numbers: Mapping[str, Array]
    rows: FloatArray
    labels: Array

    def missing(self, pulls: FloatArray, weights: FloatArray, biases: FloatArray) -> MissingPart:
        """Return what sums of ``pulls`` (n, outputs) lack, given the penalty's part of each."""
        record, one = weights - pulls.T @ self.rows, biases - pulls.sum(axis=0)
        return MissingPart(np.atleast_2d(record), np.atleast_1d(one))

    @property
    def coefficients(self) -> FloatArray:
        """The weights (outputs, features)."""
        return np.atleast_2d(np.asarray(self.numbers["coef_"], dtype=np.float64))

    @property
    def intercepts(self) -> FloatArray:
        """The intercepts (outputs,)."""
        return np.atleast_1d(np.asarray(self.numbers["intercept_"], dtype=np.float64))

    def predicted(self, rows: FloatArray) -> FloatArray:
        """Return the scores (n, outputs)."""
        return np.asarray(rows @ self.coefficients.T + self.intercepts)


Found = tuple[FloatArray, object]
"""A record as the model saw it, and its label or response."""


def optimal_record(problem: FittedRelease) -> Found | None:
    """Return the record that completes the optimum, in the user's columns; None if none shows."""
    from exhume.attacks.estimators.encoded_rows import EncodedRows

    solve = _SOLVED.get(type(problem.estimator.final).__name__)
    if solve is None or not problem.labelled:
        return None
    encoded = EncodedRows(problem)
    steps = len(getattr(problem.estimator.template, "steps", ()))
    prefix = f"steps.{steps - 1}.1." if steps else ""
    own = {
        name.removeprefix(prefix): array
        for name, array in problem.attributes.items()
        if name.startswith(prefix)
    }
    fit = LinearFit(problem.estimator.final, own, encoded.rows, np.asarray(problem.known.labels))
    try:
        found = solve(fit)
    except KeyError:
        return None
    if found is None or not np.isfinite(found[0]).all():
        return None
    back = encoded.back(found[0])
    return (back[0], found[1]) if len(back) else None


def counted_record(problem: FittedRelease) -> Found | None:
    """Return the record that is left of released counts; None where nothing is counted."""
    if type(problem.estimator.final).__name__ != "CategoricalNB":
        return None
    return optimal_record(problem)


def _least_squares(fit: LinearFit) -> Found | None:
    """Ordinary least squares, on the inliers that the model names if it names some."""
    inliers = fit.numbers.get("inlier_mask_")
    if inliers is not None:
        if not inliers[-1]:
            return None
        inside = np.asarray(inliers[:-1], dtype=bool)
        nested = {name.removeprefix("estimator_."): a for name, a in fit.numbers.items()}
        fit = LinearFit(fit.settings, nested, fit.rows[inside], fit.labels[inside])
    rest = fit.labels[:, None] - fit.predicted(fit.rows)
    part = fit.missing(rest, np.zeros(fit.rows.shape[1]), np.zeros(1))
    if abs(part.one[0]) <= _LEAST * np.abs(rest).sum():
        return None
    x = part.solved()
    return x, float(fit.predicted(x[None])[0, 0] + part.one[0])


def _active_set(fit: LinearFit) -> Found | None:
    """An L1 penalty, or a selection: columns with a weight show the record, others go with them."""
    own, weights = fit.settings, fit.coefficients[0]
    alpha = float(fit.numbers.get("alpha_", np.asarray(getattr(own, "alpha", 0.0))))
    share = float(fit.numbers.get("l1_ratio_", np.asarray(getattr(own, "l1_ratio", 1.0))))
    active = weights != 0
    if not own.fit_intercept or not active.any():
        return None
    rest = fit.labels[:, None] - fit.predicted(fit.rows)
    strength = (len(fit.rows) + 1) * alpha
    penalty = strength * (share * np.sign(weights) + (1.0 - share) * weights)
    part = fit.missing(rest, penalty, np.zeros(1))
    if abs(part.one[0]) <= _LEAST * np.abs(rest).sum():
        return None
    x = PriorMean.of(fit.rows).given(part.solved(), active)
    return x, float(fit.predicted(x[None])[0, 0] + part.one[0])


def _huber(fit: LinearFit) -> Found | None:
    scale, limit = float(fit.numbers["scale_"]), float(fit.settings.epsilon)
    rest = (fit.labels[:, None] - fit.predicted(fit.rows)) / scale
    pulls = np.clip(rest, -limit, limit)
    # The gradient in the weights is −2 Σ pull·x, the penalty's 2·alpha·w.
    part = fit.missing(pulls, fit.settings.alpha * fit.coefficients[0], np.zeros(1))
    own = float(part.one[0])
    if abs(own) <= _LEAST * np.abs(pulls).sum():
        return None
    x = part.solved()
    far = own if abs(own) < limit else np.sign(own) * _BEYOND * limit
    return x, float(fit.predicted(x[None])[0, 0] + far * scale)


def _support_vectors(fit: LinearFit) -> Found | None:
    """The squared hinge of LinearSVC, one class against the rest; its intercept is penalised."""
    own = fit.settings
    if own.loss != "squared_hinge" or own.penalty != "l2" or own.class_weight is not None:
        return None
    classes = np.unique(fit.labels)
    positive = classes[1:] if len(classes) == 2 else classes
    if not own.fit_intercept or own.multi_class != "ovr":
        return None
    sides = np.where(fit.labels[:, None] == positive, 1.0, -1.0)
    pulls = np.maximum(0.0, 1.0 - sides * fit.predicted(fit.rows)) * sides
    biases = fit.intercepts / own.intercept_scaling**2 / (2.0 * own.C)
    part = fit.missing(pulls, fit.coefficients / (2.0 * own.C), biases)
    if np.abs(part.one).max() <= _LEAST * np.abs(pulls).sum():
        return None
    place = int(np.argmax(part.one))
    label = positive[place] if part.one[place] > 0 else classes[0]
    x, side = part.solved(), np.where(positive == label, 1.0, -1.0)
    expected = np.maximum(0.0, 1.0 - side * fit.predicted(x[None])[0]) * side
    # Of a record beyond every margin nothing shows but what the solver left undone.
    apart = np.linalg.norm(expected - part.one)
    return (x, label) if apart <= _ALIKE * np.linalg.norm(part.one) else None


def _counted(fit: LinearFit) -> Found | None:
    """Counts of categories per class: those of the known records leave the record's own."""
    classes = np.unique(fit.labels)
    own = np.rint(fit.numbers["class_count_"]) - [np.sum(fit.labels == one) for one in classes]
    if np.count_nonzero(own) != 1 or own.max() != 1:
        return None
    place = int(np.argmax(own))
    inside = fit.rows[fit.labels == classes[place]].astype(np.int64)
    x = np.zeros(fit.rows.shape[1])
    for column in range(len(x)):
        counts = np.rint(fit.numbers[f"category_count_.{column}"][place])
        left = counts - np.bincount(inside[:, column], minlength=len(counts))
        if np.count_nonzero(left) != 1:
            return None
        x[column] = float(np.argmax(left))
    return x, classes[place]


def _network(fit: LinearFit) -> Found | None:
    """A network that L-BFGS trained: the gradient vanishes as far as the solver went."""
    own = fit.settings
    if own.solver != "lbfgs" or getattr(own, "loss", "squared_error") == "poisson":
        return None
    classes = np.unique(fit.labels) if type(own).__name__ == "MLPClassifier" else None
    network = FittedNetwork.read(own, fit.numbers, classes)
    return network.missing(fit.rows, fit.labels, float(own.alpha))


_SOLVED: Mapping[str, Callable[[LinearFit], Found | None]] = {
    "CategoricalNB": _counted,
    "ElasticNet": _active_set,
    "ElasticNetCV": _active_set,
    "HuberRegressor": _huber,
    "Lars": _least_squares,
    "LarsCV": _active_set,
    "Lasso": _active_set,
    "LassoCV": _active_set,
    "LassoLars": _active_set,
    "LassoLarsCV": _active_set,
    "LassoLarsIC": _active_set,
    "LinearRegression": _least_squares,
    "LinearSVC": _support_vectors,
    "MLPClassifier": _network,
    "MLPRegressor": _network,
    "OrthogonalMatchingPursuit": _active_set,
    "OrthogonalMatchingPursuitCV": _active_set,
    "RANSACRegressor": _least_squares,
}
