"""Reads a release of a generalised linear model: parameters, gradient, and their accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from exhume.attacks.linear.answers_to_parameters import cannot_extract, extract
from exhume.attacks.linear.gradient_noise import Prior
from exhume.attacks.linear.moments import KnownMoments
from exhume.attacks.linear.pool import Neighbour, Pool
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Lacking, Refusal
from exhume.protocol.defence import Blurring
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.protocol.release import Outputs, Release, Weights
from exhume.training.answers import Answers
from exhume.training.families import Family
from exhume.training.glm import GLM, fitted_scaler
from exhume.training.newton import Problem, readings_each
from exhume.training.shared_units import SharedUnits

_NEAR = 0.1
"""Scalers are near to each other if no column's scale differs by more than this share."""


@dataclass(frozen=True, eq=False)
class Pipeline:
    """How the release was made: the model inside, and the noise on parameters and on answers."""

    model: GLM
    parameter_deviation: float
    answer_deviation: float
    clip: Blurring | None


def pipeline(training: Mechanism | None, records: int) -> Pipeline | str:
    """Return the linear model inside the known mechanism, or the reason why there is none."""
    answer, pending, clip = 0.0, 0.0, None
    for one in (None,) if training is None else layers(training):
        if isinstance(one, GLM):
            return Pipeline(one, float(np.sqrt(pending)), float(np.sqrt(answer)), clip)
        if isinstance(one, Blurring):
            pending += one.deviation(records) ** 2
            clip = one
        elif isinstance(one, Answers):
            answer, pending = pending, 0.0
        else:
            break
    name = type(one).__name__
    return f"needs to know the training of a generalised linear model, got {name}"


class Shared:
    """What all targets of one fixed set share: the objective, the solver's error, the spread."""

    def __init__(self, knowledge: Knowledge, known: Pipeline) -> None:
        assert knowledge.fixed_set is not None
        fixed = knowledge.fixed_set
        self.model, self.unprepared = known.model, fixed
        self.fixed_set = fixed if known.clip is None else known.clip.prepared(fixed)
        self.extra_weight = knowledge.target_weight

    @cached_property
    def problem(self) -> Problem:
        """The objective on the fixed set, unscaled."""
        return self.model.problem(self.fixed_set, {}, extra_weight=self.extra_weight)

    @cached_property
    def pool(self) -> Pool:
        """The fixed set's spread, unscaled."""
        return self._pool(lambda: self.problem)

    def scaled_pool(self, scaler: Mapping[str, Array]) -> Pool:
        """The fixed set's spread, scaled by a released scaler."""
        pool = self._pool(lambda: self.scaled(scaler))
        units = SharedUnits.of(self.base[0], [scaler])
        if np.abs(units.ratio - 1.0).max() > _NEAR:
            return pool
        return replace(pool, neighbour=Neighbour(self.base_pool, units.ratio[0], units.shift[0]))

    def _pool(self, make: Callable[[], Problem]) -> Pool:
        model = self.model
        return Pool(make, self.responses, self._moments, model.intercept, model.family.classifies)

    @cached_property
    def base_pool(self) -> Pool:
        """The fixed set's spread, scaled by its own scaler."""
        return self._pool(lambda: self.base[1])

    @cached_property
    def responses(self) -> FloatArray:
        """The responses of the fixed set, as the model codes them."""
        return self.model.responses(self.fixed_set.labels)

    def _moments(self) -> KnownMoments:
        return self.moments

    @cached_property
    def moments(self) -> KnownMoments:
        """The sums of the fixed set, as a scaler sees it."""
        return KnownMoments.of(self.unprepared)

    @cached_property
    def base(self) -> tuple[Mapping[str, Array], Problem]:
        """The scaler of the fixed set alone, and the objective without penalty in its units."""
        scaler = fitted_scaler(self.fixed_set)
        problem = self.scaled(scaler)
        return scaler, replace(problem, penalty=np.zeros_like(problem.penalty))

    def readings(
        self, thetas: FloatArray, scalers: Sequence[Mapping[str, Array]]
    ) -> tuple[FloatArray, FloatArray]:
        """Return gradients with released scalers, and their rounding: one pass over the data."""
        base, problem = self.base
        units = SharedUnits.of(base, scalers)
        if not self.model.intercept or np.abs(units.ratio - 1.0).max() > _NEAR:
            pairs = [(self.scaled(s), theta) for s, theta in zip(scalers, thetas, strict=True)]
            own = np.stack([one.gradient(theta) for one, theta in pairs])
            return own, np.array([one.rounding(theta) for one, theta in pairs])
        gradients, rounding = readings_each(problem, units.inward(thetas))
        total = float(problem.weights.sum()) + self.extra_weight
        penalty = self.model.column_penalty(thetas.shape[1] - 1, total)
        largest = 1.0 + _NEAR + np.abs(units.shift).max(axis=1)
        return units.gradients(gradients) + penalty[None, :, None] * thetas, rounding * largest

    @cached_property
    def slack(self) -> float:
        """Return the root mean square of the gradient that the solver leaves in a coordinate.

        The adversary measures it: it trains on the fixed set alone with the same solver and
        settings.
        """
        if self.model.solver.name == "exact":
            return 0.0
        rehearsal = self.model.publish(self.fixed_set, rng=np.random.default_rng(0))
        problem = self.model.problem(self.fixed_set, scaler_of(rehearsal))
        left = problem.gradient(self.model.theta(rehearsal.parameters))
        return float(np.sqrt(np.mean(left**2)))

    def scaled(self, scaler: Mapping[str, Array]) -> Problem:
        """The objective on the fixed set, scaled by the released scaler."""
        if not scaler:
            return self.problem
        return self.model.problem(self.fixed_set, scaler, extra_weight=self.extra_weight)


@dataclass(frozen=True, eq=False)
class Reading:
    """One release in the form that the equations need.

    ``gradient`` (p, outputs) is that of the fixed set's objective. ``gradient_deviation`` is the
    noise on each of its coordinates from rounding and from an unfinished solver; ``rounding`` is
    the part from rounding. ``theta_deviation`` (p, outputs) is the noise on the parameters
    themselves. Readings of one fixed set share its ``pool``.
    """

    model: GLM
    theta: FloatArray
    gradient: FloatArray
    gradient_deviation: float
    rounding: float
    theta_deviation: FloatArray
    scaler: Mapping[str, Array]
    pool: Pool

    @property
    def problem(self) -> Problem:
        """The objective on the fixed set, in the model's own units."""
        return self.pool.problem

    @property
    def noisy_parameters(self) -> bool:
        """Whether the parameters have more noise than double precision."""
        scale = 4e-16 * np.maximum(np.abs(self.theta), 1e-3 * np.abs(self.theta).max())
        return bool((self.theta_deviation > scale).any())

    @cached_property
    def _hessian(self) -> FloatArray:
        return self.problem.hessian(self.theta)

    def noise(self, target: FloatArray | None = None) -> FloatArray:
        """The covariance of the flattened gradient's noise.

        Noise on the parameters passes through the Hessian of all the data. A guess of the target's
        row (p,) adds the target's share of it.
        """
        size = self.gradient.size
        covariance = np.eye(size) * self.gradient_deviation**2
        if self.noisy_parameters:
            hessian = self._hessian
            if target is not None:
                curvature = self.model.family.curvature((target @ self.theta)[None, :])[0]
                own = target[:, None, None, None] * target[None, None, :, None]
                own = own * curvature[None, :, None, :]
                hessian = hessian + own.reshape(size, size)
            covariance += (hessian * self.theta_deviation.reshape(-1) ** 2) @ hessian
        return covariance

    def precision(self, target: FloatArray | None = None) -> FloatArray:
        """The inverse of that covariance, (p, outputs, p, outputs)."""
        from scipy.linalg import cho_factor, cho_solve

        size, covariance = self.gradient.size, self.noise(target)
        covariance += 1e-14 * float(np.trace(covariance)) / size * np.eye(size)
        inverse = cho_solve(cho_factor(covariance, lower=True), np.eye(size))
        return np.asarray(inverse).reshape(*self.gradient.shape, *self.gradient.shape)

    @cached_property
    def coordinate_deviation(self) -> float:
        """The noise of one coordinate of the gradient (root mean square)."""
        if not self.noisy_parameters:
            return self.gradient_deviation
        return float(np.sqrt(np.trace(self.noise()) / self.gradient.size))

    @property
    def prior(self) -> Prior:
        """A Gaussian fitted to the fixed set."""
        return self.pool.prior

    def prior_of(self, response: FloatArray) -> Prior:
        """The same around the mean of the response's own class, where there are classes."""
        return self.pool.prior_of(response)


def scaler_of(release: Weights) -> dict[str, Array]:
    """Return the scaler's part of a release."""
    return {n: a for n, a in release.parameters.items() if n.startswith("scaler.")}


@dataclass(frozen=True, eq=False)
class LinearRelease:
    """A release of a linear model, how it was made, and every record of its training but one."""

    release: Weights | Outputs
    made: Pipeline
    fixed_set: Records
    knowledge: Knowledge


def readable(release: Release, knowledge: Knowledge) -> LinearRelease | Refusal:
    """Return the release of a generalised linear model, or why it can't be read as one."""
    if not isinstance(release, Weights | Outputs):
        kind = type(release).__name__.lower()
        return Refusal(f"reads weights or outputs, not a release of kind {kind}")
    fixed = knowledge.fixed_set
    if fixed is None or fixed.y is None:
        return Refusal(
            Lacking("needs the other training records with their labels", "knowledge.fixed_set")
        )
    made = pipeline(knowledge.training, len(fixed) + 1)
    if isinstance(made, str):
        return Refusal(made)
    reason = _unusable(fixed, made) or _unlike(release, made.model, knowledge.record_shape)
    return LinearRelease(release, made, fixed, knowledge) if reason is None else Refusal(reason)


def _unlike(release: Weights | Outputs, model: GLM, shape: tuple[int, ...]) -> str | None:
    """Return why the model can't give this release, or None."""
    if isinstance(release, Weights):
        return _misfit(release, model, int(np.prod(shape)))
    if release.queries.shape[1:] != shape:
        return f"queries have shape {release.queries.shape[1:]}, not {shape}"
    return cannot_extract(release, model)


def _unusable(fixed_set: Records, known: Pipeline) -> str | None:
    """Return why the fixed set can't have been part of this training, or None."""
    try:
        # This runs for every target: comparing class by class is ten times as fast as encoding
        # them.
        seen = [fixed_set.labels == label for label in known.model.classes or ()]
        if seen and not np.logical_or.reduce(seen).all():
            known.model.responses(fixed_set.labels)
        if known.clip is not None:
            known.clip.prepared(fixed_set.take([0]))
    except InputError as error:
        return f"the fixed set does not fit the training: {error}"
    return None


def _misfit(release: Weights, model: GLM, features: int) -> str | None:
    expected = {"coef": model.outputs * features}
    if model.intercept:
        expected["intercept"] = model.outputs
    if model.standardise:
        expected |= {"scaler.mean": features, "scaler.scale": features, "scaler.count": 1}
    for name, size in expected.items():
        if name not in release.parameters:
            return f"the release lacks '{name}', which this training publishes"
        if release.parameters[name].size != size:
            return f"'{name}' has {release.parameters[name].size} entries, the model has {size}"
    strangers = sorted(set(release.parameters) - set(expected))
    if strangers:
        return f"the release has '{strangers[0]}', which this training does not publish"
    return None


def parameters_of(
    release: Weights | Outputs, known: Pipeline
) -> tuple[FloatArray, FloatArray, dict[str, Array]]:
    """Return parameters (p, outputs), the deviation of each, and the scaler."""
    if isinstance(release, Outputs):
        found = extract(release, known.model, deviation=known.answer_deviation)
        return found.theta, found.deviation, {}
    theta = known.model.theta(release.parameters)
    deviation = np.full(theta.shape, known.parameter_deviation)
    unit = np.finfo(np.result_type(release.parameters["coef"], np.float16)).eps / np.sqrt(12.0)
    if unit > np.finfo(np.float64).eps:
        deviation = np.hypot(deviation, unit * np.abs(theta))
    scaler = {n: np.asarray(a, dtype=np.float64) for n, a in scaler_of(release).items()}
    return theta, deviation, scaler


def label_of(model: GLM, response: FloatArray) -> object:
    """Return the label that a response (outputs,) stands for."""
    if model.classes is None:
        return float(response[0])
    if model.family is Family.LOGISTIC:
        return model.classes[int(response[0] > 0.5)]
    return model.classes[int(np.argmax(response))]
