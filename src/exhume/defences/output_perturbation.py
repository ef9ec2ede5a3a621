"""Output perturbation: train to the optimum, then add Gaussian noise to the parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.protocol.arrays import FloatArray
from exhume.protocol.defence import Blurring, Place
from exhume.protocol.errors import InputError
from exhume.protocol.limits import Positive
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights
from exhume.training.families import Family
from exhume.training.glm import GLM

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True)
class OutputPerturbation(Blurring):
    """Adds Gaussian noise of ``noise_multiplier`` × sensitivity to a classifier's parameters.

    Rows (1, x) are scaled down to norm ``norm_bound`` first, so that the loss is Lipschitz. A
    penalty λ on every parameter, the intercept's included, makes the objective λ-strongly convex.
    Adding or removing one record then moves the optimum by at most Lipschitz constant / λ
    (Chaudhuri, Monteleoni, Sarwate 2011, §3.2, with Gaussian noise and a summed loss). The optimum
    must be exact: the guarantee does not hold for an unfinished solver, so any other solver is
    refused.
    """

    inner: Mechanism
    noise_multiplier: Positive
    norm_bound: Positive
    name: ClassVar[str] = "output-perturbation"
    place: ClassVar[Place] = Place.PARAMETERS

    def __post_init__(self) -> None:
        super().__post_init__()
        reason = _unsuitable(self.inner)
        if reason is not None:
            raise InputError(f"output perturbation needs {reason}")
        if self._model.intercept and self.norm_bound <= 1.0:
            raise InputError(
                "norm_bound must exceed 1, the intercept's own share of a row, "
                f"got {self.norm_bound}"
            )

    @property
    def _model(self) -> GLM:
        assert isinstance(self.inner, GLM)
        return self.inner

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        """Publish the perturbed parameters."""
        release = self._model.publish(self.prepared(data), rng=rng)
        return self._perturbed(release, rng)

    def publish_each(
        self, fixed_set: Records, targets: Records, *, rngs: Sequence[np.random.Generator]
    ) -> Sequence[Release]:
        """Publish with each target in turn; training shares its work, noise is drawn separately."""
        releases = self._model.publish_each(
            self.prepared(fixed_set), self.prepared(targets), rngs=rngs
        )
        return [self._perturbed(r, rng) for r, rng in zip(releases, rngs, strict=True)]

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return one Gaussian mechanism: noise in units of the sensitivity."""
        import dp_accounting

        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    def optimum_moves(self) -> float:
        """Return the largest change of the optimum by one record."""
        lipschitz = 1.0 if self._model.family is Family.LOGISTIC else float(np.sqrt(2.0))
        return lipschitz * self.norm_bound / self._model.penalty.summed(1)

    def deviation(self, records: int) -> float:
        """Return the deviation of the noise on each parameter."""
        return self.noise_multiplier * self.optimum_moves()

    def prepared(self, data: Records) -> Records:
        """Return the records with rows longer than the bound scaled down to it."""
        if data.weight is not None:
            raise InputError("output perturbation's guarantee does not cover weighted records")
        rows = np.asarray(data.x, dtype=np.float64).reshape(len(data), math.prod(data.record_shape))
        room = np.sqrt(self.norm_bound**2 - float(self._model.intercept))
        factor = np.minimum(1.0, room / np.maximum(np.linalg.norm(rows, axis=1), 1e-300))
        x = (rows * factor[:, None]).reshape(data.x.shape)
        return Records(x, data.y)

    def describe(self) -> str:
        """Return a short description."""
        return f"Gaussian noise on the parameters, {self.noise_multiplier:g} × sensitivity"

    def _perturbed(self, release: Weights, rng: np.random.Generator) -> Weights:
        def noise(shape: tuple[int, ...]) -> FloatArray:
            return np.asarray(rng.normal(0.0, self.deviation(0), shape))

        return Weights({n: a + noise(a.shape) for n, a in release.parameters.items()})


def _unsuitable(inner: Mechanism) -> str | None:
    if not isinstance(inner, GLM) or not inner.family.classifies:
        return "a logistic or multinomial model: other losses are not Lipschitz"
    if inner.solver.name != "exact":
        return f"the exact solver, got {inner.solver.name!r}: an unfinished optimum has no bound"
    if inner.penalty.strength <= 0 or (inner.intercept and not inner.penalty.intercept):
        return "a penalty on every parameter, the intercept's included (penalty.intercept = true)"
    if inner.penalty.averaged or inner.standardise or inner.class_weights is not None:
        return "a summed loss without scaler or class weights: these depend on the record as well"
    return None
