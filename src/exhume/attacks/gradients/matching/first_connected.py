"""The inputs of the first fully connected layer after convolutions, unmixed from its gradient.

∂W = Σ δ ⊗ z over the batch, for any z: features are to that layer what records are to a fully
connected first layer, so the same methods separate them (Kariyappa et al. 2023, section 5).

The unmixing can start from the labels. The error at a layer, δ = D Vᵀ(p − e_y), depends on the
label y far more than on the features, which enter only through the prediction p and the active
units D. So δ at features of the right size and direction is a good start of an unmixing. Unlike
independent components, it needs no dissimilar features. Unlike the method of zeros, it needs no
unit that is inactive for only one record.

Also images from features alone: a problem for the loop without second derivatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from exhume.attacks.gradients.analytic.factorisation import Consistency, Factors, factorise
from exhume.attacks.gradients.analytic.input_layer import Backward, InputLayer, decides
from exhume.attacks.gradients.analytic.sparsity import found_columns
from exhume.attacks.gradients.analytic.unmixing import polished, separate
from exhume.attacks.gradients.matching.head_features import Route, head_features
from exhume.attacks.gradients.matching.loop import MatchedRuns, MatchingProblem
from exhume.attacks.gradients.matching.objectives import total_variation
from exhume.attacks.gradients.matching.problem import MatchableRelease
from exhume.models.base import Network
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.knowledge import Knowledge

_SEARCHED = 12
"""The most records whose zeros are searched for without a guess."""
_TRIALS = 1024
"""Draws of neurons in that search."""
_STRUCTURE = 100.0
"""Limit on singular values beyond the batch size, as a multiple of the noise."""
_CREDIBLE = 0.05
"""Features are credible below this sine between a column of Δ and their own errors."""
_SETTLED = 1e-5
"""Below this sine nothing else is tried; rounding leaves 1e-6 at the true features."""
_STARTS = 12
"""The most unmixings that start from the labels."""


@dataclass(frozen=True, eq=False)
class BatchFeatures:
    """``features`` (n, d) entering ``layer``; row i belongs to the i-th of ``labels`` (n,).

    ``residual`` is the distance from the gradient that they reproduce in the adversary's network.
    """

    features: FloatArray
    layer: str
    route: str
    residual: float
    labels: Array


class _HeadBackward(Backward):
    """The errors at a layer inside the network from inputs chosen by the adversary."""

    def _forward(self, records: FloatArray) -> tuple[Tensor, Tensor]:
        x = self.objective.tensor(records)
        handle = self._layer.register_forward_pre_hook(lambda _, __: (x,))
        try:
            shape = self.objective.network.record_shape
            return super()._forward(np.zeros((len(records), *shape)))
        finally:
            handle.remove()


@lru_cache(maxsize=32)
def first_connected(network: Network) -> InputLayer | str:
    """Return the first fully connected layer after the convolutions, or why there is none.

    It is accepted only if its input determines all scores: no path may bypass it.
    """
    module = network.module().double().eval()
    leaves = [(n, m) for n, m in module.named_modules() if not list(m.children())]
    convolutions = [i for i, (_, m) in enumerate(leaves) if isinstance(m, nn.modules.conv._ConvNd)]
    if not convolutions:
        return f"{network.describe()} has no convolutions: its first layer reveals the records"
    behind = [
        i for i in range(convolutions[-1], len(leaves)) if isinstance(leaves[i][1], nn.Linear)
    ]
    if not behind:
        return f"no fully connected layer follows the convolutions of {network.describe()}"
    (name, layer), after = leaves[behind[0]], [m for _, m in leaves[behind[0] + 1 :]]
    assert isinstance(layer, nn.Linear)
    if not decides(module, layer, network.record_shape):
        return f"the input of {name!r} alone does not determine the scores of {network.describe()}"
    return InputLayer(
        weight=f"{name}.weight",
        bias=None if layer.bias is None else f"{name}.bias",
        width=layer.out_features,
        scale=np.ones(layer.in_features),
        offset=np.zeros(layer.in_features),
        rectified=bool(after) and isinstance(after[0], nn.ReLU),
    )


def batch_features(
    reading: MatchableRelease, labels: Array | None, rng: np.random.Generator
) -> BatchFeatures | str:
    """Return the features of the whole batch, or why they are not determined.

    The layer's gradient is unmixed if a bias determines the scale and another layer follows. If
    this is impossible or not credible, the fit of the head may give the features.
    """
    layer = first_connected(reading.step.network)
    if isinstance(layer, str):
        return layer
    unmixed = _unmixed(reading, layer, labels, rng)
    if isinstance(unmixed, BatchFeatures) and unmixed.residual < _CREDIBLE:
        return unmixed
    head = head_features(reading, labels, rng)
    fits = head is not None and f"{head.layer}.weight" == layer.weight
    if head is None or not fits or head.route is Route.SPAN:
        return unmixed
    own = labels if head.labels is None else head.labels
    if own is None or (isinstance(unmixed, BatchFeatures) and unmixed.residual <= head.residual):
        return unmixed
    return BatchFeatures(head.features, head.layer, head.route.name.lower(), head.residual, own)


def _unmixed(
    reading: MatchableRelease, layer: InputLayer, labels: Array | None, rng: np.random.Generator
) -> BatchFeatures | str:
    """Unmix the layer's gradient from each guess; keep the one that reproduces it best."""
    reason = _unreadable(reading, layer)
    if reason is not None:
        return reason
    weight, bias = reading.arrays[layer.weight], reading.arrays[str(layer.bias)]
    rounding = 2.0 * float(np.finfo(reading.step.precision).eps * np.sqrt(np.mean(weight**2)))
    factors = factorise(weight, bias, reading.count, rounding=rounding)
    if factors.excess > _STRUCTURE:
        return f"the gradient of {layer.weight!r} has more directions than {reading.count} records"
    if factors.rank < reading.count:
        return (
            f"{factors.rank} directions of the gradient of {layer.weight!r} exceed its noise, "
            f"but {reading.count} records need as many"
        )
    backward = _HeadBackward(reading.step, layer, reading.parameters)
    inputs = Knowledge(record_shape=weight.shape[1:])
    against = Consistency(factors, layer, backward, inputs)
    best: FloatArray = np.eye(factors.rank)
    left = np.inf
    for guess in _guesses(reading, against, labels, rounding, rng):
        found, residual = polished(against, guess, rng, enough=_SETTLED)
        if residual.max() < left:
            best, left = found, float(residual.max())
        if left < _SETTLED:
            break
    return _labelled(reading, against, against.normalised(best), layer, labels)


def _guesses(
    reading: MatchableRelease,
    against: Consistency,
    labels: Array | None,
    rounding: float,
    rng: np.random.Generator,
) -> Iterator[FloatArray]:
    """Yield unmixings to refine, most likely first; their residuals decide in the end."""
    layer, rank = against.layer, against.factors.rank
    weight = reading.arrays[layer.weight]
    zeros = _by_zeros(against, weight, rounding, rng) if rank <= _SEARCHED else iter(())
    # After a smooth activation, records of one class have similar errors: zeros work better.
    if not layer.rectified:
        yield from zeros
    responses = _responses(reading, against, labels)
    if responses is not None:
        yield from starts(against, responses, rng, count=_STARTS)
    yield separate(against, (weight.shape[1],), rng, rounds=8).unmixing
    yield from zeros


def _responses(
    reading: MatchableRelease, against: Consistency, labels: Array | None
) -> Array | None:
    """Return the labels as indices, those implied by the scores' bias gradient, or None."""
    if labels is not None:
        return reading.step.responses(labels)
    last, shape = list(reading.step.network.parameter_shapes().items())[-1]
    if last not in reading.arrays or shape != (reading.step.network.outputs,):
        return None
    return likely_responses(against, reading.arrays[last])


def _by_zeros(
    against: Consistency, weight: FloatArray, rounding: float, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Yield unmixings found by zeros alone (Dimitrov et al. 2024): of Δ, and of the features.

    Δ has zeros if a ReLU follows the layer. Features after a ReLU have many zeros themselves,
    whatever follows the layer.
    """
    factors = against.factors
    if against.layer.rectified:
        columns = found_columns(factors, rng, trials=_TRIALS)
        if columns.shape[1] == factors.rank:
            yield np.linalg.pinv(columns)
    turned = factorise(weight.T, np.zeros(weight.shape[1]), factors.rank, rounding=rounding)
    rows = found_columns(turned, rng, trials=_TRIALS)
    if rows.shape[1] == factors.rank:
        yield (turned.left @ rows).T @ np.linalg.pinv(factors.right)


def _labelled(
    reading: MatchableRelease,
    against: Consistency,
    unmixing: FloatArray,
    layer: InputLayer,
    labels: Array | None,
) -> BatchFeatures:
    """Assign features to labels: to those that reproduce each column of Δ best."""
    from scipy.optimize import linear_sum_assignment

    returned = against.returned(unmixing)
    features = against.records(unmixing)
    classes = np.asarray(reading.step.classes)
    if labels is None:
        labels = classes[returned.labels]
    else:
        every = against.backward.directions(features)
        columns = against.factors.left @ np.linalg.pinv(unmixing)
        size = np.linalg.norm(every, axis=2) * np.linalg.norm(columns, axis=0)[:, None]
        cosine = np.einsum("kcm,mk->kc", every, columns) / np.maximum(size, 1e-300)
        responses = reading.step.responses(labels)
        _, order = linear_sum_assignment(-cosine[:, responses].T)
        features = features[order]
    name = layer.weight.removesuffix(".weight")
    return BatchFeatures(features, name, "unmixed", float(returned.residual.max()), labels)


def _unreadable(reading: MatchableRelease, layer: InputLayer) -> str | None:
    """Return why the layer's gradient can't be unmixed, or None."""
    last = list(reading.step.network.parameter_shapes())[-2:]
    if layer.weight in last:
        return (
            f"{layer.weight!r} is the last layer: without a hidden one after the convolutions "
            "features are determined only for labels that all differ"
        )
    for name in (layer.weight, layer.bias):
        if name is None:
            return f"the layer of {layer.weight!r} has no bias, so features have no scale"
        if name not in reading.arrays:
            return f"the gradient of {name!r} was not released"
    shape = reading.arrays[layer.weight].shape
    if reading.count > 1 and reading.count >= min(shape):
        return f"{reading.count} records are too many: {layer.weight!r} has shape {shape}"
    return None


_SPREAD = 0.5
"""Distance between records at a start, relative to the norm of their common part."""


def starts(
    against: Consistency, responses: Array, rng: np.random.Generator, *, count: int
) -> Iterator[FloatArray]:
    """Yield ``count`` unmixings (rank, rank) as starts, for ``responses`` (rank,).

    The first one has equal features if that separates the columns of Δ. The others, and all of them
    if a label occurs twice, have features drawn around it.
    """
    factors, places = against.factors, np.arange(len(responses))
    alone = len(np.unique(responses)) == len(responses)
    for number in range(count):
        unmixing = np.tile(_centre(factors), (len(responses), 1))
        if number > 0 or not alone:
            unmixing = unmixing + _drawn(factors, rng)
        returned = against.backward.directions(against.records(unmixing))
        yield against.explaining(returned[places, responses].T)


def likely_responses(against: Consistency, last_bias: FloatArray) -> Array:
    """Return the label indices (rank,) implied by the gradient of the scores' bias (classes,).

    It is the mean over records of p − e_y; p is taken at the features that records share.
    """
    records = against.records(_centre(against.factors)[None])
    wanted = against.factors.rank * (against.backward.answers(records)[0] - last_bias)
    found = []
    for _ in range(against.factors.rank):
        found.append(int(np.argmax(wanted)))
        wanted[found[-1]] -= 1.0
    return np.array(found)


def _centre(factors: Factors) -> FloatArray:
    """Return the row (rank,) that mixes features like the bias gradient: about their mean."""
    return factors.scale / max(float(factors.scale @ factors.scale), 1e-300)


def _drawn(factors: Factors, rng: np.random.Generator) -> FloatArray:
    """Return rows (rank, rank) to add to the centre: random features of the same scale."""
    centre = _centre(factors)
    rows = rng.normal(size=(factors.rank, factors.rank))
    rows = rows - np.outer(rows @ factors.scale, centre)
    length = np.maximum(np.linalg.norm(rows @ factors.right, axis=1, keepdims=True), 1e-300)
    return np.asarray(_SPREAD * np.linalg.norm(centre @ factors.right) * rows / length)


@dataclass(frozen=True, eq=False, kw_only=True)
class Inversion(MatchingProblem):
    """Finds images with ``features`` (n, d); the release only judges the result.

    The distance is the mean of ‖f(x) − z‖² / ‖z‖² over records.
    """

    def losses(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the whole objective, and the distance of the features alone."""
        distance = self.distances(images).mean()
        if not self.total_variation:
            return distance, distance
        variation = total_variation(images, self.frame.spread)
        return distance + self.total_variation * variation, distance

    def distances(self, images: Tensor) -> Tensor:
        """Return the distance of the features of each image (n,)."""
        assert self.features is not None
        self.simulation.watch.clear()
        self.simulation.objective.module(images)
        off = (self.simulation.watch.features[0] - self.features).square().sum(dim=1)
        return off / self.features.square().sum(dim=1).clamp_min(1e-30)


def pieced_together(problem: Inversion, match: MatchedRuns) -> MatchedRuns:
    """Return the match with each image from the run that is closest to its features.

    Features don't mix images, so each image is a separate search. If a normalisation mixes them
    after all, the best whole run stays.
    """
    with torch.no_grad():
        each = torch.stack([problem.distances(run.images) for run in match.runs])
        stacked = torch.stack([run.images for run in match.runs])
        images = stacked[each.argmin(dim=0), torch.arange(stacked.shape[1])]
        loss, distance = (float(x) for x in problem.losses(images, match.best.labels))
    if not distance < match.best.distance:
        return match
    return replace(match, best=replace(match.best, images=images, loss=loss, distance=distance))
