"""From answers to parameters: if a linear model only answers, solve for its parameters first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from exhume.protocol.arrays import FloatArray
from exhume.protocol.release import Answer, Outputs
from exhume.training.families import Family
from exhume.training.glm import GLM

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Extracted:
    """Parameters (columns, outputs) solved from answers, and the deviation of each parameter."""

    theta: FloatArray
    deviation: FloatArray


def cannot_extract(release: Outputs, training: GLM) -> str | None:
    """Return why these answers don't determine the model, or None."""
    design = training.design(release.queries, {})
    columns, outputs = design.shape[1], training.outputs
    if len(design) < columns:
        return f"{len(design)} answers do not determine the {columns} parameters per score"
    if np.linalg.matrix_rank(design) < columns:
        return f"the queries span fewer than {columns} dimensions: use queries in general position"
    probabilities = release.answer is Answer.PROBABILITIES
    if probabilities and not training.family.classifies:
        return f"a {training.family.value} model does not answer with probabilities"
    if release.answer is Answer.MEANS and training.family.classifies:
        return "a classifier answers with scores or probabilities, not means"
    expected = {outputs, 2} if training.family is Family.LOGISTIC and probabilities else {outputs}
    if release.values.shape[1] not in expected:
        return f"{release.values.shape[1]} values per answer, but the model has {outputs} outputs"
    if training.standardise and training.penalty.strength > 0:
        return (
            "the scaler's statistics are not in the answers, and the penalty is not defined "
            "without them"
        )
    if training.standardise and not training.intercept:
        return (
            "the scaler's mean shifts every answer, and without an intercept in the model that "
            "shift is not distinguishable from its parameters"
        )
    if probabilities and not ((release.values > 0) & (release.values < 1)).all():
        return (
            "an answer is exactly 0 or 1: its score is unknown; use queries nearer to the boundary"
        )
    return None


def extract(release: Outputs, training: GLM, *, deviation: float = 0.0) -> Extracted:
    """Solve for the parameters by least squares over all answers.

    ``deviation`` is the known noise that a defence added to each answer. With more answers than
    parameters, the misfit gives the parameters' own deviation. Otherwise the precision of the
    answers gives it.
    """
    design = training.design(release.queries, {})
    scores, precision = _scores(release, training, deviation)
    theta, _, _, values = np.linalg.lstsq(design, scores, rcond=None)
    inverse = np.linalg.pinv(design)
    spread = np.sqrt((inverse**2) @ precision**2)
    surplus = len(design) - design.shape[1]
    if surplus > 0:
        misfit = np.sqrt(np.sum((scores - design @ theta) ** 2, axis=0) / surplus)
        spread = np.maximum(spread, np.linalg.norm(inverse, axis=1)[:, None] * misfit[None, :])
    rounding = np.finfo(np.float64).eps * float(values[0] / values[-1]) * np.abs(theta).max()
    return Extracted(theta, np.sqrt(spread**2 + (rounding / np.sqrt(len(theta))) ** 2))


def _scores(release: Outputs, training: GLM, deviation: float) -> tuple[FloatArray, FloatArray]:
    """Scores (queries, outputs), and their deviation due to the precision of the answers."""
    values = np.asarray(release.values, dtype=np.float64)
    kind = release.values.dtype if release.values.dtype.kind == "f" else np.dtype(np.float64)
    unit = np.finfo(kind).eps / np.sqrt(12.0)
    error = np.hypot(unit * np.abs(values), deviation)
    if training.family is Family.POISSON and release.answer is Answer.MEANS:
        return np.log(np.maximum(values, _TINY)), error / np.maximum(np.abs(values), _TINY)
    if release.answer is not Answer.PROBABILITIES:
        return values, error
    if training.family is Family.LOGISTIC:
        p, error = values[:, -1:], error[:, -1:]
        return np.asarray(logit(p)), error / (p * (1.0 - p))
    logs = np.log(values)
    # Only differences between classes matter: the mean over the classes is arbitrary.
    return logs - logs.mean(axis=1, keepdims=True), error / values
