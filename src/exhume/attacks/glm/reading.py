"""Reading a release of a generalised linear model: parameters, gradient, and how sure of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.glm.extraction import cannot_extract, extract
from exhume.attacks.glm.posterior import Prior
from exhume.defences.base import Blurring
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.mechanism import Mechanism
from exhume.records import Records
from exhume.release import Outputs, Release, Weights
from exhume.training.answers import Answers
from exhume.training.families import Family
from exhume.training.glm import GLM
from exhume.training.newton import Problem


@dataclass(frozen=True, eq=False)
class Pipeline:
    """How the release was made: the model inside, and the blur on parameters and on answers."""

    model: GLM
    parameter_deviation: float
    answer_deviation: float
    clip: Blurring | None


def pipeline(training: Mechanism | None, records: int) -> Pipeline | str:
    """Unwrap the known mechanism down to its linear model, or say why that can't be done."""
    parameter, answer, clip = 0.0, 0.0, None
    pending = 0.0
    while not isinstance(training, GLM):
        if isinstance(training, Blurring):
            pending += training.deviation(records) ** 2
            clip = training
        elif isinstance(training, Answers):
            answer, pending = pending, 0.0
        else:
            name = type(training).__name__
            return f"needs to know the training of a generalised linear model, got {name}"
        training = training.inner
    parameter = pending
    return Pipeline(training, float(np.sqrt(parameter)), float(np.sqrt(answer)), clip)


class Shared:
    """What every target of one fixed set shares: its objective, its solver's slack, its spread."""

    def __init__(self, knowledge: Knowledge, known: Pipeline) -> None:
        assert knowledge.fixed_set is not None
        fixed = knowledge.fixed_set
        self.model = known.model
        self.fixed_set = fixed if known.clip is None else known.clip.prepared(fixed)
        self.extra_weight = knowledge.target_weight

    @cached_property
    def problem(self) -> Problem:
        """The objective on the fixed set, unscaled."""
        return self.model.problem(self.fixed_set, {}, extra_weight=self.extra_weight)

    @cached_property
    def pool(self) -> Pool:
        """The fixed set's spread, unscaled."""
        return Pool(self.problem, self.model.intercept)

    @cached_property
    def slack(self) -> float:
        """The gradient that the solver leaves a coordinate (root mean square): seen on a rehearsal.

        The adversary trains on the fixed set alone with the same solver and settings.
        """
        if self.model.solver.name == "exact":
            return 0.0
        rehearsal = self.model.publish(self.fixed_set, rng=np.random.default_rng(0))
        problem = self.model.problem(self.fixed_set, scaler_of(rehearsal))
        left = problem.gradient(self.model.theta(rehearsal.parameters))
        return float(np.sqrt(np.mean(left**2)))

    def scaled(self, scaler: Mapping[str, Array]) -> Problem:
        """The objective on the fixed set as the released scaler sees it."""
        if not scaler:
            return self.problem
        return self.model.problem(self.fixed_set, scaler, extra_weight=self.extra_weight)


@dataclass(frozen=True, eq=False)
class Pool:
    """The fixed set as the model sees it: what a target like its records would look like."""

    problem: Problem
    intercept: bool

    @cached_property
    def prior(self) -> Prior:
        """A Gaussian fitted to the fixed set, never narrower than a tenth of its mean spread."""
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
        if not self.problem.family.classifies:
            return self.prior
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
class Reading:
    """One release, read: everything that the equations need.

    ``gradient`` (p, outputs) is that of the fixed set's objective; ``gradient_deviation`` the
    noise on each of its coordinates from rounding and an unfinished solver, ``rounding`` the first
    part of it; ``theta_deviation`` (p, outputs) the noise on the parameters themselves. Readings of
    one fixed set share its ``pool``.
    """

    model: GLM
    problem: Problem
    theta: FloatArray
    gradient: FloatArray
    gradient_deviation: float
    rounding: float
    theta_deviation: FloatArray
    scaler: Mapping[str, Array]
    pool: Pool

    @property
    def noisy_parameters(self) -> bool:
        """Whether the parameters carry more noise than double precision."""
        scale = 4e-16 * np.maximum(np.abs(self.theta), 1e-3 * np.abs(self.theta).max())
        return bool((self.theta_deviation > scale).any())

    @cached_property
    def _hessian(self) -> FloatArray:
        return self.problem.hessian(self.theta)

    def noise(self, target: FloatArray | None = None) -> FloatArray:
        """The covariance of the flattened gradient's noise.

        Noise on the parameters passes through the Hessian of all the data: a guess of the target's
        row (p,) adds its share.
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
        """The noise of one coordinate of the gradient, root mean square."""
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


def _covariance(centred: FloatArray) -> FloatArray:
    covariance = centred.T @ centred / len(centred)
    floor = 0.1 * max(float(np.trace(covariance)) / len(covariance), 1e-300)
    return np.asarray(covariance + floor * np.eye(len(covariance)))


def scaler_of(release: Weights) -> dict[str, Array]:
    """Return the scaler's part of a release."""
    return {n: a for n, a in release.parameters.items() if n.startswith("scaler.")}


def unreadable(release: Release, knowledge: Knowledge) -> str | None:
    """Return why this release can't be read as a generalised linear model's, or None."""
    if not isinstance(release, Weights | Outputs):
        return f"reads weights or outputs, not a release of kind {type(release).__name__.lower()}"
    if knowledge.fixed_set is None or knowledge.fixed_set.y is None:
        return "needs the other training records with their labels (the fixed set)"
    known = pipeline(knowledge.training, len(knowledge.fixed_set) + 1)
    reason = known if isinstance(known, str) else _unusable(knowledge.fixed_set, known)
    if reason is not None:
        return reason
    assert isinstance(known, Pipeline)
    if isinstance(release, Outputs):
        if release.queries.shape[1:] != knowledge.record_shape:
            return f"queries have shape {release.queries.shape[1:]}, not {knowledge.record_shape}"
        return cannot_extract(release, known.model)
    return _misfit(release, known.model, int(np.prod(knowledge.record_shape)))


def _unusable(fixed_set: Records, known: Pipeline) -> str | None:
    """Why the fixed set can't have been part of this training, or None."""
    try:
        # Asked for every target: comparing class by class is ten times as fast as coding them.
        seen = [fixed_set.labels == label for label in known.model.classes or ()]
        if seen and not np.logical_or.reduce(seen).all():
            known.model.responses(fixed_set.labels)
        if known.clip is not None:
            known.clip.prepared(fixed_set.take([0]))
    except InputError as error:
        return f"the fixed set does not go with the training: {error}"
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


def is_class(model: GLM) -> bool:
    """Whether labels are classes, so that a recovered response can be snapped."""
    return model.family in (Family.LOGISTIC, Family.MULTINOMIAL)


def label_of(model: GLM, response: FloatArray) -> object:
    """Return the label that a response (outputs,) stands for."""
    if model.classes is None:
        return float(response[0])
    if model.family is Family.LOGISTIC:
        return model.classes[int(response[0] > 0.5)]
    return model.classes[int(np.argmax(response))]


def known_records(knowledge: Knowledge) -> Records:
    """Return the fixed set (``unreadable`` has made sure that there is one)."""
    assert knowledge.fixed_set is not None
    return knowledge.fixed_set
