"""What all targets of one training share: its path without them, its curvature, its prior."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.linear_response.adjoint import Response, adjoint_weights
from exhume.attacks.informed.trajectory.linear_response.calibrate import ResponseErrors, calibrated
from exhume.attacks.informed.trajectory.linear_response.chain import Chain, unchained
from exhume.attacks.informed.trajectory.linear_response.ekfac import measured_curvature
from exhume.attacks.informed.trajectory.linear_response.record_prior import fitted_prior
from exhume.attacks.informed.trajectory.linear_response.retrain import RealTrainings
from exhume.protocol.records import Records
from exhume.training.network import Training
from exhume.training.optimisers import SGD

MOST_ERROR = 2.0
"""Corrections start from predictions up to this far off: they mend what has the right direction."""
_FAR = 0.7
_CURVATURE_RECORDS = 1000
_LEAST_RECORDS = 20


class LinearResponse:
    """Predicts the effect of a record on the trained parameters; prepared once per training.

    ``calibration`` compares predictions with real trainings on two records of the fixed set, twice
    in the set: ``error`` is what the engine knows of its own accuracy. Real trainings run in the
    training's own precision. Raises InputError if the training without the record diverges.
    """

    def __init__(self, retraining: RealTrainings) -> None:
        self.retraining, self.training = retraining, retraining.training
        objective, fixed_set = retraining.objective, retraining.fixed_set
        assert isinstance(self.training.optimiser, SGD)
        self.share = retraining.target_weight / retraining.count
        self.base = retraining.without()
        nodes = retraining.nodes
        rows = np.linspace(0, len(fixed_set) - 1, min(len(fixed_set), _CURVATURE_RECORDS))
        self.curvature = measured_curvature(
            Chain(objective),
            self.base.kept[1::2],
            nodes[1::2],
            objective.tensor(fixed_set.x[rows.astype(int)]),
            retraining.mass,
        )
        self.weights = adjoint_weights(
            self.curvature, self.training.optimiser, retraining.steps, nodes
        )
        self.response = self.along(self.base.kept)
        self.calibration = self._calibrated(fixed_set)
        self.prior = fitted_prior(fixed_set, objective.dtype)

    @property
    def error(self) -> float:
        """Return the relative error of predicted effects."""
        return self.calibration.error

    @property
    def usable(self) -> bool:
        """Whether real trainings agree enough to start from predictions."""
        return self.error <= MOST_ERROR

    def describe(self) -> str:
        """Return what the engine knows of its own accuracy."""
        if not math.isfinite(self.error):
            return "linear response can't be calibrated: training diverges with one record twice"
        found = f"linear response is {self.error:.0%} off real trainings"
        if self.error <= _FAR:
            return found
        return f"{found}: near the edge of stability, descent amplifies the effect of one record"

    def along(self, path: Tensor) -> Response:
        """Return the response of records met along ``path`` (k, P)."""
        return Response(self.curvature, self.weights, path, self.share)

    def effect(self, theta: Tensor) -> Tensor:
        """Return what a record did to the trained parameters θ (P,), in rotated coordinates."""
        return self.curvature.rotated(theta - self.base.end)

    def _calibrated(self, fixed_set: Records) -> ResponseErrors:
        labels = self.training.responses(fixed_set.labels)
        first = 0
        others = np.flatnonzero(labels != labels[first])
        guesses, truths = [], []
        for row in (first, int(others[0]) if len(others) else len(labels) - 1):
            x = fixed_set.x[row : row + 1]
            path = self.retraining.path(x, fixed_set.labels[row : row + 1])
            guess = self.response(self.retraining.objective.tensor(x)[0], int(labels[row]))
            guesses.append(guess)
            lost = torch.full_like(guess, torch.nan)
            truths.append(lost if path is None else self.effect(path.end))
        return calibrated(self.curvature, guesses, truths)


def unresponsive(training: Training, records: int) -> str | None:
    """Return why the effect of one record can't be predicted in this way, or None."""
    optimiser = training.optimiser
    if training.classes is None:
        return "a regression's effects are not predicted"
    if not isinstance(optimiser, SGD) or training.batches is not None:
        return "only gradient descent on all records is predicted"
    if training.clipping is not None or training.refinement is not None or training.joined:
        return "only plain steps on a mean loss are predicted"
    if training.device != "cpu":
        return f"effects are predicted on the CPU alone, not on {training.device}"
    if records < _LEAST_RECORDS:
        return f"curvature is measured on at least {_LEAST_RECORDS} records, there are {records}"
    return unchained(training.objective())
