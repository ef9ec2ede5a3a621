"""What a similar target looks like to a released model: the fixed set in the model's units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from exhume.attacks.linear.gradient_noise import Prior
from exhume.attacks.linear.moments import KnownMoments
from exhume.protocol.arrays import FloatArray
from exhume.training.newton import Problem


@dataclass(frozen=True, eq=False)
class Pool:
    """The fixed set in the model's own units: what a similar target looks like.

    ``make`` is called where rows are needed in these units: of every scaler, they are many. Where a
    scaler hardly differs from that of a ``neighbour``, the neighbour's prior is moved instead.
    """

    make: Callable[[], Problem]
    responses: FloatArray
    moments: Callable[[], KnownMoments]
    intercept: bool
    classifies: bool
    neighbour: Neighbour | None = None

    @cached_property
    def problem(self) -> Problem:
        """The objective on the fixed set, in the model's own units."""
        return self.make()

    @cached_property
    def prior(self) -> Prior:
        """A Gaussian fitted to the fixed set; no width is below a tenth of the mean width."""
        if self.neighbour is not None:
            return self.neighbour.moved(self.neighbour.pool.prior)
        rows = self._rows
        mean = rows.mean(axis=0)
        y = self.problem.responses[:, 0]
        return Prior(
            mean,
            np.linalg.inv(_covariance(rows - mean)),
            float(np.mean(rows.var(axis=0))),
            float(y.mean()),
            3.0 * float(y.std()),
        )

    def prior_of(self, response: FloatArray) -> Prior:
        """The same around the mean of the response's own class, where there are classes."""
        if not self.classifies:
            return self.prior
        if self.neighbour is not None:
            return self.neighbour.moved(self.neighbour.pool.prior_of(response))
        key = response.tobytes()
        if key not in self._class_priors:
            same = np.all(self.problem.responses == response, axis=1)
            rows = self._rows[same] if same.any() else self._rows
            mean = rows.mean(axis=0)
            precision = np.linalg.inv(_covariance(rows - mean))
            self._class_priors[key] = replace(self.prior, mean=mean, precision=precision)
        return self._class_priors[key]

    @cached_property
    def _class_priors(self) -> dict[bytes, Prior]:
        return {}

    @property
    def _rows(self) -> FloatArray:
        return self.problem.design[:, int(self.intercept) :]


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A pool in other units: its rows are ratio·z + shift in ours, ``ratio`` close to 1 (d,)."""

    pool: Pool
    ratio: FloatArray
    shift: FloatArray

    def moved(self, prior: Prior) -> Prior:
        """Return the neighbour's prior in our units."""
        precision = prior.precision / np.outer(self.ratio, self.ratio)
        variance = prior.variance * float(np.mean(self.ratio**2))
        mean = self.ratio * prior.mean + self.shift
        return replace(prior, mean=mean, precision=precision, variance=variance)


def _covariance(centred: FloatArray) -> FloatArray:
    covariance = centred.T @ centred / len(centred)
    floor = 0.1 * max(float(np.trace(covariance)) / len(covariance), 1e-300)
    return np.asarray(covariance + floor * np.eye(len(covariance)))
