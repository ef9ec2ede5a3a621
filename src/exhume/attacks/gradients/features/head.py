"""The wide two-layer head A·σ(Wz + b) + c whose gradient reveals its inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from exhume.derivatives.activations import HOMOGENEOUS, value_and_slope
from exhume.models.base import Activation
from exhume.protocol.arrays import Array, FloatArray, require_finite
from exhume.protocol.errors import InputError


class ResponseKind(Enum):
    """The training target of the head."""

    CLASSES = "classes"
    """Cross-entropy of the softmax; responses are class indices."""
    NUMBERS = "numbers"
    """½ (score − y)²; responses are numbers."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Head:
    """The adversary's knowledge of a head: ``weights`` W (m, d), and optionally the rest.

    ``offsets`` b (m,) are the hidden biases, None for none. ``output`` A (K, m) and
    ``output_offsets`` c (K,) determine the head's scores, and so the residual of a response.
    ``random`` (m,) marks the hidden units with Gaussian weights; moments use only these, fits use
    all units.
    """

    weights: FloatArray
    activation: Activation = Activation.RELU
    response: ResponseKind = ResponseKind.CLASSES
    offsets: FloatArray | None = None
    output: FloatArray | None = None
    output_offsets: FloatArray | None = None
    random: Array | None = None

    def __post_init__(self) -> None:
        weights = _real("weights", self.weights, 2)
        object.__setattr__(self, "weights", weights)
        width = len(weights)
        if not weights.any():
            raise InputError("the hidden weights are all 0: no input reaches the output")
        for name, shape in (("offsets", (width,)), ("random", (width,))):
            values = getattr(self, name)
            if values is not None and np.shape(values) != shape:
                raise InputError(f"{name} must have shape {shape}, got {np.shape(values)}")
        if self.offsets is not None:
            object.__setattr__(self, "offsets", _real("offsets", self.offsets, 1))
        if self.random is not None:
            object.__setattr__(self, "random", np.asarray(self.random, dtype=bool))
        if self.output is not None:
            output = _real("output", self.output, 2)
            if output.shape[1] != width:
                raise InputError(f"output must have shape (outputs, {width}), got {output.shape}")
            object.__setattr__(self, "output", output)

    @property
    def dimension(self) -> int:
        """d, the number of values per feature."""
        return int(self.weights.shape[1])

    @property
    def scale_free(self) -> bool:
        """Whether z with residual r and cz with r/c give the same gradient of A."""
        plain = self.offsets is None or not self.offsets.any()
        return plain and self.activation in HOMOGENEOUS

    @property
    def moment_rows(self) -> Array:
        """The hidden units (m,) that moments use."""
        return np.ones(len(self.weights), dtype=bool) if self.random is None else self.random

    def standardised(self) -> tuple[Head, float]:
        """Return the head with weights of mean square 1, and the factor on its inputs."""
        size = float(np.sqrt(np.mean(self.weights[self.moment_rows] ** 2)))
        return replace(self, weights=self.weights / size), size

    def part(self, rows: Array) -> Head:
        """Return the head restricted to the hidden units ``rows`` (m,), without its outputs."""
        offsets = None if self.offsets is None else self.offsets[rows]
        return replace(self, weights=self.weights[rows], offsets=offsets, output=None, random=None)

    def hidden(self, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the hidden values and slopes, each (m, B), of ``features`` (B, d)."""
        answers = self.weights @ features.T
        if self.offsets is not None:
            answers += self.offsets[:, None]
        return value_and_slope(self.activation, answers)

    def scores(self, values: FloatArray) -> FloatArray | None:
        """Return the scores (B, K) of hidden values (m, B), or None if A is not known."""
        if self.output is None:
            return None
        scores = (self.output @ values).T
        return scores if self.output_offsets is None else scores + self.output_offsets

    def residuals(self, values: FloatArray, responses: Array, outputs: int) -> FloatArray:
        """Return ∂ℓ/∂scores (B, K) at hidden values (m, B): p − e_y, or score − y.

        If A is not known, classes count as equally likely and scores as 0.
        """
        scores = self.scores(values)
        if scores is None:
            scores = np.zeros((len(responses), outputs))
        if self.response is ResponseKind.NUMBERS:
            return scores - np.asarray(responses, dtype=np.float64).reshape(len(scores), -1)
        from scipy.special import softmax

        shares: FloatArray = softmax(scores, axis=1)
        shares[np.arange(len(responses)), responses] -= 1.0
        return shares

    def gradient(self, features: FloatArray, responses: Array, outputs: int) -> FloatArray:
        """Return ∂L/∂Aᵀ (m, K) of the mean loss over ``features`` (B, d) with ``responses``."""
        values, _ = self.hidden(features)
        return values @ self.residuals(values, responses, outputs) / len(features)


def planted_head(
    hidden: FloatArray,
    output: FloatArray,
    *,
    width: int,
    feature_norm: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, Array]:
    """Widen a trained head to ``width`` units by random ones (Liu et al. 2024, appendix F).

    ``hidden`` (trained, d) and ``output`` (K, trained) stay unchanged. The v new units have weights
    N(0, I), and output k weights each of them by k/(v · feature_norm): features with norms far
    above 1 would saturate the softmax, where the gradient vanishes. Returns W, A and the mask of
    the random units.
    """
    trained, dimension = hidden.shape
    new = width - trained
    if new < 1:
        raise InputError(f"a width of {width} leaves no random unit beside {trained} trained ones")
    if not 0 < feature_norm < float("inf"):
        raise InputError(f"feature_norm must be a positive number, got {feature_norm}")
    fresh = np.arange(len(output), dtype=np.float64)[:, None] / (new * feature_norm)
    weights = np.concatenate([hidden, rng.standard_normal((new, dimension))])
    outputs = np.concatenate([output, np.repeat(fresh, new, axis=1)], axis=1)
    return weights, outputs, np.arange(width) >= trained


def _real(name: str, values: FloatArray, dimensions: int) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != dimensions or not array.size:
        raise InputError(f"{name} must have {dimensions} dimension(s), got shape {array.shape}")
    require_finite(array, name)
    return array
