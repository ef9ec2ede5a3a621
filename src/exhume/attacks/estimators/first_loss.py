"""What the loss of the first epoch says of the response of a network's unknown record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.protocol.arrays import Array, FloatArray

if TYPE_CHECKING:
    from exhume.attacks.estimators.refit import FittedRelease

_NETWORKS = ("MLPClassifier", "MLPRegressor")
_STOCHASTIC = ("sgd", "adam")
_BATCH = 200
"""scikit-learn's largest batch where none is given."""


def epochs_of(final: Any, attributes: Mapping[str, Array]) -> int | None:
    """Return after how many epochs a network's training ended; None if none ends it early.

    Trainings that are compared have to be as long.
    """
    if type(final).__name__ not in _NETWORKS or final.solver not in _STOCHASTIC:
        return None
    if final.early_stopping or final.learning_rate == "adaptive":
        return None
    found = [a for name, a in attributes.items() if name.rpartition(".")[2] == "n_iter_"]
    return int(found[-1]) if found and int(found[-1]) < final.max_iter else None


@dataclass(frozen=True, eq=False)
class FirstLoss:
    """The squared error of the unknown record before the first step, at known parameters.

    ``steps`` are the released steps before the network, ``initial`` the network before training.
    """

    steps: Any | None
    initial: Any
    problem: FittedRelease
    square: float

    def responses(self) -> list[Callable[[FloatArray], float]]:
        """Return the two responses that a record (features,) may have: above or below."""
        return [_Side(self, sign) for sign in (1.0, -1.0)]

    def predicted(self, x: FloatArray) -> FloatArray:
        """Return the predictions (n,) of the network before training."""
        return _predicted(self.steps, self.initial, self.problem, x)


@dataclass(frozen=True, eq=False)
class _Side:
    first: FirstLoss
    sign: float

    def __call__(self, x: FloatArray) -> float:
        predicted = float(self.first.predicted(x[None])[0])
        return predicted + self.sign * float(np.sqrt(self.first.square))


def first_loss(problem: FittedRelease) -> FirstLoss | None:
    """Return what the loss curve of a fitted MLPRegressor begins with; None if it says nothing.

    The first epoch must be one step on all records, from parameters that everybody can draw.
    """
    final = problem.estimator.final
    losses = [a for name, a in problem.attributes.items() if name.endswith("loss_curve_.0")]
    if type(final).__name__ != "MLPRegressor" or not losses or final.solver not in _STOCHASTIC:
        return None
    count = len(problem.known) + 1
    batch = _BATCH if final.batch_size == "auto" else final.batch_size
    if final.early_stopping or count > batch or not isinstance(final.random_state, int):
        return None
    if getattr(final, "loss", "squared_error") != "squared_error":
        return None
    steps = problem.estimator.steps_before(problem.attributes, problem.known)
    responses = np.asarray(problem.known.labels, dtype=np.float64)
    initial = _untrained(final, _encoded(steps, problem, np.asarray(problem.known.x)), responses)
    predicted = _predicted(steps, initial, problem, np.asarray(problem.known.x))
    penalty = 0.5 * final.alpha * sum(float(np.sum(w**2)) for w in initial.coefs_)
    others = 0.5 * float(np.sum((predicted - responses) ** 2))
    square = 2.0 * (count * float(losses[0]) - penalty - others)
    return FirstLoss(steps, initial, problem, max(square, 0.0))


def _untrained(final: Any, rows: FloatArray, responses: FloatArray) -> Any:
    """Return the network with the parameters that it starts from: a fit without any movement."""
    from sklearn.base import clone

    from exhume.protocol.records import Records
    from exhume.training.estimator import Estimator

    still = clone(final).set_params(max_iter=1, learning_rate_init=1e-300)
    return Estimator(still).fitted(Records(rows, responses))


def _encoded(steps: Any | None, problem: FittedRelease, x: Array) -> FloatArray:
    rows = problem.estimator.rows(x)
    return np.asarray(rows if steps is None else steps.transform(rows), dtype=np.float64)


def _predicted(steps: Any | None, initial: Any, problem: FittedRelease, x: Array) -> FloatArray:
    return np.asarray(initial.predict(_encoded(steps, problem, x)), dtype=np.float64)
