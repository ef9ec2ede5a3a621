"""The inputs of a network's last layer, from that layer's own gradient.

If the network ends in a wide two-layer head, its inputs are recovered from the head's gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from exhume.attacks.gradients.features import Head, RecoveredFeatures, recover_features
from exhume.attacks.gradients.features.masked_gradient import sent_factor
from exhume.attacks.gradients.matching.problem import MatchableRelease
from exhume.models.base import Activation, Network
from exhume.protocol.arrays import Array, FloatArray
from exhume.training.gradient import GradientStep

if TYPE_CHECKING:
    from torch import nn


_EXPLAINED = 0.5
"""Features are rejected if they leave more of the head's gradient unexplained than this."""
_HEAD_RANK = 1e-4


class Route(Enum):
    """How features were obtained from a head's gradient."""

    RECOVERED = "recovered from the wide head (first order, then a fit)"
    FIXED_POINT = "fixed point of the linear head"
    SPAN = "span of the linear head's gradient"


@dataclass(frozen=True, eq=False)
class HeadFeatures:
    """``features`` (n, d) entering ``layer``, and the share of its gradient they don't explain.

    Row i belongs to the i-th label. For ``Route.SPAN`` the rows are an orthonormal basis of the
    features' span, in no order. ``labels`` (n,) are the data's own; None if nothing new is known.
    """

    features: FloatArray
    layer: str
    residual: float
    route: Route
    labels: Array | None = None


def head_features(
    reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
) -> HeadFeatures | None:
    """Return the inputs of the network's head, or None if its gradient does not determine them.

    A wide two-layer head reveals its inputs through ``gradients.features`` (Liu et al. 2024,
    section 4.2), even if labels repeat or are unknown. A plain linear head has no hidden units to
    fit. For labels that all differ, a fixed point gives its inputs. Otherwise the span of its
    gradient is used, while the batch is smaller than the number of classes.
    """
    plain = isinstance(reading.mechanism, GradientStep) and reading.count == reading.total
    if not plain or reading.step.classes is None:
        return None
    responses = None if labels is None else reading.step.responses(labels)
    wide = _from_wide_head(reading, responses, rng)
    if wide is not None or responses is None:
        return wide
    return _from_linear_head(reading, responses)


def _from_wide_head(
    reading: MatchableRelease, responses: Array | None, rng: np.random.Generator
) -> HeadFeatures | None:
    from scipy.optimize import linear_sum_assignment

    fit = wide_features(reading, responses, rng)
    if fit is None or not fit[0].loss < _EXPLAINED**2:
        return None
    found, layer = fit
    rows, given = np.arange(reading.count), reading.knowledge.labels is not None
    if responses is not None and (given or not found.certain):
        # A record's own class has the most negative residual.
        _, rows = linear_sum_assignment(found.residuals[:, responses].T)
    labels = None
    if not given and found.certain and found.labels is not None:
        assert reading.step.classes is not None
        labels = np.asarray(reading.step.classes)[found.labels]
    residual = float(np.sqrt(max(found.loss, 0.0)))
    return HeadFeatures(found.features[rows], layer, residual, Route.RECOVERED, labels)


def _from_linear_head(reading: MatchableRelease, responses: Array) -> HeadFeatures | None:
    """Return the features from Rᵀ H: residuals R (n, classes) of the softmax, features H.

    R is (softmax − label)/n. Labels determine R up to the softmax, which follows from the features:
    a fixed point, reached in a few rounds. With two records of one class it is undetermined, but H
    and RᵀH have the same span if R has rank n.
    """
    shapes = reading.step.network.parameter_shapes()
    weight, bias = list(shapes)[-2:] if len(shapes) > 1 else ("", "")
    linear = weight.endswith(".weight") and bias == weight.removesuffix("weight") + "bias"
    if not linear or weight not in reading.arrays or len(shapes[weight]) != 2:
        return None
    layer = weight.removesuffix(".weight")
    if len(set(responses.tolist())) < len(responses):
        basis = gradient_span(reading.arrays[weight], len(responses))
        return None if basis is None else HeadFeatures(basis, layer, 0.0, Route.SPAN)
    weights, offsets = (np.asarray(reading.parameters[n], dtype=np.float64) for n in (weight, bias))
    features, residual = solve_head(reading.arrays[weight], weights, offsets, responses)
    if not residual < _EXPLAINED:
        return None
    return HeadFeatures(features, layer, residual, Route.FIXED_POINT)


def gradient_span(gradient: FloatArray, count: int) -> FloatArray | None:
    """Return an orthonormal basis (count, d) of the rows of a head's gradient (classes, d).

    Returns None if its rank is not ``count``, within single precision: then the rows don't span all
    features.
    """
    classes, dimension = gradient.shape
    if count >= min(classes, dimension):
        return None
    _, sizes, right = np.linalg.svd(gradient, full_matrices=False)
    whole = sizes[count - 1] > _HEAD_RANK * sizes[0] and sizes[count] < 0.1 * sizes[count - 1]
    basis: FloatArray = right[:count]
    return basis if whole else None


def solve_head(
    gradient: FloatArray, weights: FloatArray, offsets: FloatArray, responses: Array
) -> tuple[FloatArray, float]:
    """Return features (n, d) from the head's gradient (classes, d), and the relative residual.

    >>> rng = np.random.default_rng(0)
    >>> weights, features = rng.normal(size=(5, 8)), rng.random((2, 8))
    >>> answers = np.exp(features @ weights.T)
    >>> residuals = (answers / answers.sum(axis=1, keepdims=True) - np.eye(5)[[3, 1]]) / 2
    >>> found, left = solve_head(residuals.T @ features, weights, np.zeros(5), np.array([3, 1]))
    >>> bool(np.allclose(found, features)), left < 1e-9
    (True, True)
    """
    from scipy.special import softmax

    count, classes = len(responses), len(weights)
    truth = np.eye(classes)[responses]
    shares: FloatArray = np.full((count, classes), 1.0 / classes)
    features: FloatArray = np.zeros((count, gradient.shape[1]))
    for _ in range(200):
        residuals = (shares - truth) / count
        features = np.linalg.lstsq(residuals.T, gradient, rcond=None)[0]
        new = softmax(np.clip(features @ weights.T + offsets, -500.0, 500.0), axis=1)
        change = float(np.abs(new - shares).max())
        shares = 0.5 * (shares + new) if change > 0.5 else new
        if change < 1e-12:
            break
    left = np.linalg.norm(((shares - truth) / count).T @ features - gradient)
    return features, float(left / max(float(np.linalg.norm(gradient)), 1e-300))


_COMPOSED = (Activation.SHIFTED_RELU, Activation.SHIFTED_TANH, Activation.RELU_PLUS_TANH)
"""Activations that their module's type does not identify."""


@dataclass(frozen=True)
class WideHead:
    """The last two layers' names, if a network ends in linear, activation, linear."""

    hidden: str
    output: str
    activation: Activation


def wide_head(network: Network) -> WideHead | None:
    """Return the two-layer head at the end of ``network``, or None if there is none.

    The layers are identified by their place in the module, and accepted only if they reproduce the
    module's scores of two random records.
    """
    from torch import nn

    module = network.module().eval()
    leaves = [(n, m) for n, m in module.named_modules() if not list(m.children())][-3:]
    if len(leaves) < 3:
        return None
    (hidden, first), (_, middle), (output, last) = leaves
    types = {type(a.build()): a for a in Activation if a not in _COMPOSED}
    fits = isinstance(first, nn.Linear) and isinstance(last, nn.Linear) and type(middle) in types
    if not fits or not _reproduces(module, network, first, middle, last):
        return None
    return WideHead(hidden, output, types[type(middle)])


def wide_features(
    reading: MatchableRelease, responses: Array | None, rng: np.random.Generator
) -> tuple[RecoveredFeatures, str] | None:
    """Return the inputs of the head and its first layer's name, or None if undetermined.

    ``responses`` (n,) are class indices, or None to infer them too.
    """
    named = wide_head(reading.step.network)
    if named is None or f"{named.output}.weight" not in reading.arrays:
        return None
    head = _known_head(reading, named)
    gradient = reading.arrays[f"{named.output}.weight"] / sent_factor(reading.stack)
    if not determined(head, len(gradient), reading.count) or not gradient.any():
        return None
    found = recover_features(
        gradient,
        head,
        reading.count,
        labels=responses,
        bias_gradient=reading.arrays.get(f"{named.output}.bias"),
        rng=rng,
    )
    return found, named.hidden


def determined(head: Head, outputs: int, count: int) -> bool:
    """Whether the gradient has enough independent entries for ``count`` features.

    A ReLU is inactive on half of all inputs, and residuals of a softmax sum to 0.
    """
    width = len(head.weights)
    active = width // 2 if head.activation is Activation.RELU else width
    return active >= head.dimension and active * (outputs - 1) >= count * head.dimension


def _known_head(reading: MatchableRelease, named: WideHead) -> Head:
    def known(name: str) -> FloatArray | None:
        values = reading.parameters.get(name)
        return None if values is None else np.asarray(values, dtype=np.float64)

    weights, output = known(f"{named.hidden}.weight"), known(f"{named.output}.weight")
    assert weights is not None
    assert output is not None
    return Head(
        weights=weights,
        activation=named.activation,
        offsets=known(f"{named.hidden}.bias"),
        output=output,
        output_offsets=known(f"{named.output}.bias"),
        random=_planted(output, weights.shape[1]),
    )


def _planted(output: FloatArray, dimension: int) -> Array | None:
    """Return which units were planted (Liu et al. 2024, appendix F): their outputs are alike."""
    alike = (output == output[:, -1:]).all(axis=0)
    return alike if alike.sum() > dimension else None


def _reproduces(
    module: nn.Module, network: Network, first: nn.Module, middle: nn.Module, last: nn.Module
) -> bool:
    import torch

    entered: list[torch.Tensor] = []
    hook = first.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    drawn = np.random.default_rng(0).random((2, *network.record_shape))
    dtype = next(module.parameters()).dtype
    with torch.no_grad():
        scores = module(torch.tensor(drawn, dtype=dtype))
        hook.remove()
        if len(entered) != 1 or entered[0].ndim != 2:
            return False
        return bool(torch.allclose(last(middle(first(entered[0]))), scores, rtol=1e-4, atol=1e-6))
