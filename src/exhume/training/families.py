"""The families of generalised linear models with their canonical links."""

from __future__ import annotations

from enum import Enum

import numpy as np
from scipy.special import expit, softmax

from exhume.protocol.arrays import FloatArray


class Family(Enum):
    """A generalised linear model, named as in TOML. The link is the canonical one."""

    LINEAR = "linear"
    LOGISTIC = "logistic"
    MULTINOMIAL = "multinomial"
    POISSON = "poisson"

    @property
    def classifies(self) -> bool:
        """Whether the response is a class."""
        return self in (Family.LOGISTIC, Family.MULTINOMIAL)

    def mean(self, scores: FloatArray) -> FloatArray:
        """Return the mean response at ``scores`` (..., outputs)."""
        match self:
            case Family.LINEAR:
                return scores
            case Family.LOGISTIC:
                return np.asarray(expit(scores))
            case Family.POISSON:
                # Beyond e^500 a damped Newton step is rejected anyway; the limit avoids overflow.
                return np.exp(np.minimum(scores, 500.0))
            case Family.MULTINOMIAL:
                return np.asarray(softmax(scores, axis=-1))

    def slope(self, scores: FloatArray) -> FloatArray:
        """Return the derivative of the mean of a one-output family."""
        match self:
            case Family.LINEAR:
                return np.ones_like(scores)
            case Family.LOGISTIC:
                return np.asarray(expit(scores) * expit(-scores))
            case Family.POISSON:
                return self.mean(scores)
            case Family.MULTINOMIAL:
                raise AssertionError("the multinomial slope is a matrix: see curvature")

    def bend(self, score: float) -> float:
        """Return the second derivative of the mean of a one-output family at one score."""
        match self:
            case Family.LINEAR:
                return 0.0
            case Family.LOGISTIC:
                p = float(expit(score))
                return p * (1.0 - p) * (1.0 - 2.0 * p)
            case _:
                return float(self.slope(np.array([score]))[0])

    def curvature(self, scores: FloatArray) -> FloatArray:
        """Return the derivative of the mean as matrices (n, outputs, outputs)."""
        if self is not Family.MULTINOMIAL:
            return self.slope(scores)[..., None]
        p = self.mean(scores)
        curvature: FloatArray = p[..., :, None] * (np.eye(p.shape[-1]) - p[..., None, :])
        return curvature

    def loss(self, scores: FloatArray, responses: FloatArray) -> FloatArray:
        """Return the negative log-likelihood of each record, up to a constant of the response."""
        match self:
            case Family.LINEAR:
                loss = 0.5 * (scores - responses) ** 2
            case Family.LOGISTIC:
                loss = np.logaddexp(0.0, scores) - responses * scores
            case Family.POISSON:
                loss = self.mean(scores) - responses * scores
            case Family.MULTINOMIAL:
                top = scores.max(axis=-1, keepdims=True)
                log_sum = top + np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
                loss = responses * (log_sum - scores)
        return np.asarray(loss.sum(axis=-1))
