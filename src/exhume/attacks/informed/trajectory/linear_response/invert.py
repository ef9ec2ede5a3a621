"""One target: predicted, trained for real, corrected along that training, judged by what is left.

A correction takes the record's gradients along the last real training and explains what that left
of the release. So predictions need be right only about differences, which become ever smaller.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.linear_response.adjoint import Response
from exhume.attacks.informed.trajectory.linear_response.engine import LinearResponse
from exhume.attacks.informed.trajectory.linear_response.fit import EffectProblem, FittedRecord
from exhume.attacks.informed.trajectory.linear_response.record_prior import known_entries
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status

CERTIFICATE = 0.02
"""A real training that ends this close to the release, in units of the effect, confirms it."""
_DONE = 1e-3
_LIKELY = 0.1
_VAGUE = 0.2
"""An error above this share of the fixed set's deviation certifies nothing."""
_SHARP = 0.5
"""Errors are taken as this part of the measured ones: the fit may follow the release closely."""
_EACH_LABEL, _BEST_LABELS, _MORE, _FULL, _CORRECTION = 10, 3, 15, 60, 60


@dataclass(frozen=True, eq=False)
class _TrainedWith:
    """A record's coordinates, the path of a real training with it, and what that left, (P,)."""

    coordinates: Tensor
    path: Tensor
    left: Tensor
    residual: float


class TargetSearch:
    """Rebuilds the one unknown record behind released parameters θ* (P,)."""

    def __init__(
        self,
        engine: LinearResponse,
        released: Tensor,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> None:
        self.engine, self.knowledge, self.rng = engine, knowledge, rng
        self.observed = engine.effect(released)
        self.scale = max(float(self.observed.norm()), 1e-300)
        self.entries = known_entries(knowledge.known_attributes, engine.prior.mean)
        self.origin = torch.zeros_like(engine.prior.mean)
        self.trainings = 0

    def run(self, retrainings: int) -> Reconstruction:
        """Return the record whose real training came closest, out of ``retrainings``."""
        label, found = self._predicted()
        best = self._tried(found.coordinates, label)
        if best is None:
            return self._unconfirmed(label, found)
        damping = 1.0
        for _ in range(retrainings - 1):
            if best.residual <= _DONE:
                break
            found = self._corrected(best, label, damping)
            tried = self._tried(found.coordinates, label)
            if tried is None or tried.residual >= best.residual:
                damping *= 3.0
                continue
            crawls = tried.residual > 0.5 * best.residual
            best, damping = tried, 1.0
            if crawls and best.residual <= CERTIFICATE:
                break
        return self._answer(label, best)

    def _predicted(self) -> tuple[int, FittedRecord]:
        """FittedRecord the prediction under every label shortly, under the best ones longer."""
        problem = self._problem(self.engine.response, self.observed, self.scale, self.origin)
        labels = self._labels()
        fits = {label: problem.fit(label, self.origin, _EACH_LABEL) for label in labels}
        for label in sorted(fits, key=lambda one: fits[one].cost)[:_BEST_LABELS]:
            if len(fits) > 1:
                fits[label] = problem.fit(label, fits[label].coordinates, _MORE)
        best = min(fits, key=lambda one: fits[one].cost)
        return best, problem.fit(best, fits[best].coordinates, _FULL)

    def _labels(self) -> list[int]:
        training = self.engine.training
        if self.knowledge.labels is not None:
            return [int(training.responses(self.knowledge.labels)[0])]
        return list(range(training.network.outputs))

    def _problem(
        self, response: Response, observed: Tensor, size: float, centre: Tensor
    ) -> EffectProblem:
        """Return the fit of effects of this ``size``, whose errors are those of the calibration."""
        return EffectProblem(
            response,
            self.engine.prior,
            self.entries,
            self.knowledge.record_shape,
            observed,
            _SHARP * size * self.engine.calibration.deviation,
            centre,
        )

    def _corrected(self, tried: _TrainedWith, label: int, damping: float) -> FittedRecord:
        problem = self._around(tried, label, damping * tried.residual * self.scale)
        return problem.fit(label, tried.coordinates, _CORRECTION)

    def _around(self, tried: _TrainedWith, label: int, size: float) -> EffectProblem:
        """Return the fit of what a real training left, along its own path."""
        response = self.engine.along(tried.path)
        at = self._record(tried.coordinates).view(self.knowledge.record_shape)
        return self._problem(response, tried.left + response(at, label), size, tried.coordinates)

    def _error(self, tried: _TrainedWith, label: int) -> float:
        """Estimate the root-mean-square error: the distance of a draw from the posterior.

        The draw solves the last fit with its observations and its prior moved at random. Directions
        that the release does not determine keep the prior's draw.
        """
        problem = self._around(tried, label, tried.residual * self.scale)
        moved = problem.observed + problem.deviation * self._normal(problem.observed)
        centre = tried.coordinates + self._normal(tried.coordinates)
        drawn = replace(problem, observed=moved, centre=centre).fit(label, centre, _CORRECTION)
        away = self._record(drawn.coordinates) - self._record(tried.coordinates)
        return float(away.square().mean().sqrt())

    def _normal(self, like: Tensor) -> Tensor:
        return torch.as_tensor(self.rng.standard_normal(like.shape), dtype=like.dtype)

    def _tried(self, coordinates: Tensor, label: int) -> _TrainedWith | None:
        """Train for real with the record; None if that diverges."""
        self.trainings += 1
        path = self.engine.retraining.path(self._sample(coordinates), self._named(label))
        if path is None:
            return None
        left = self.observed - self.engine.effect(path.end)
        within = self.engine.prior.coordinates(self._record(coordinates))
        return _TrainedWith(within, path.kept, left, float(left.norm()) / self.scale)

    def _record(self, coordinates: Tensor) -> Tensor:
        """Return the record (D,) within the range of values."""
        record = self.entries.filled(self.engine.prior.record(coordinates))
        low, high = self.knowledge.value_range or (-math.inf, math.inf)
        return record.clamp(low, high)

    def _sample(self, coordinates: Tensor) -> FloatArray:
        record = self._record(coordinates).cpu().numpy().astype(np.float64)
        return record.reshape(1, *self.knowledge.record_shape)

    def _named(self, label: int) -> Array:
        assert self.engine.training.classes is not None
        return np.asarray(self.engine.training.classes)[[label]]

    def _answer(self, label: int, best: _TrainedWith) -> Reconstruction:
        error = self._error(best, label)
        status, message = self._judged(best.residual, error)
        return self._reconstruction(label, best.coordinates, status, message, best.residual, error)

    def _unconfirmed(self, label: int, found: FittedRecord) -> Reconstruction:
        message = f"the training with the predicted record diverges; {self._accuracy}"
        status = Status.NOT_CONVERGED
        return self._reconstruction(label, found.coordinates, status, message, math.inf, math.inf)

    def _judged(self, residual: float, error: float) -> tuple[Status, str]:
        """Return the status and why: a certificate needs the release and the record determined."""
        if residual > CERTIFICATE:
            status = Status.APPROXIMATE if residual <= _LIKELY else Status.NOT_CONVERGED
            missed = f"training with this record misses the release by {residual:.2g} of its effect"
            return status, f"{missed}; {self._accuracy}"
        if error > _VAGUE * self.engine.prior.spread:
            return Status.APPROXIMATE, f"the release leaves an error of {error:.1e} in the record"
        reached = f"training with this record again ends within {residual:.1e} of the release"
        return Status.CONVERGED, reached

    @property
    def _accuracy(self) -> str:
        return self.engine.describe()

    def _reconstruction(
        self,
        label: int,
        coordinates: Tensor,
        status: Status,
        message: str,
        residual: float,
        error: float,
    ) -> Reconstruction:
        return Reconstruction(
            self._sample(coordinates),
            status,
            labels=self._named(label),
            confidence=np.array([1.0 / (1.0 + residual / CERTIFICATE)]),
            error_estimate=np.array([error]),
            message=message,
            stats={
                "relative_residual": residual,
                "response_error": self.engine.error,
                "simulations": self.trainings,
            },
        )
