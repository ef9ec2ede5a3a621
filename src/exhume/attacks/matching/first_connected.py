"""What enters the first fully connected layer behind convolutions, unmixed from its gradient.

∂W = Σ δ ⊗ z over the batch, whatever made z: to that layer features are what records are to a
fully connected first layer, so they come apart the same way (Kariyappa et al. 2023, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from torch import Tensor, nn

from exhume.arrays import Array, FloatArray
from exhume.attacks.analytic.consistency import Consistency
from exhume.attacks.analytic.factor import factorise
from exhume.attacks.analytic.layer import Backward, InputLayer, decides
from exhume.attacks.analytic.separation import polished, separate
from exhume.attacks.analytic.sparsity import found_columns
from exhume.attacks.matching.head import Route, head_features
from exhume.attacks.matching.label_starts import likely_responses, starts
from exhume.attacks.matching.reading import Reading
from exhume.knowledge import Knowledge
from exhume.models.base import Network

_SEARCHED = 12
"""The most records whose zeros are searched for without a guess."""
_TRIALS = 1024
"""Draws of neurons in that search."""
_STRUCTURE = 100.0
"""How far singular values beyond the batch's size may rise above the noise."""
_CREDIBLE = 0.05
"""The sine between a column of Δ and what its features return, below which they are believed."""
_SETTLED = 1e-5
"""The same, below which nothing else is tried; at the true features arithmetic leaves 1e-6."""
_STARTS = 12
"""The most unmixings begun at the labels."""


@dataclass(frozen=True, eq=False)
class BatchFeatures:
    """``features`` (n, d) entering ``layer``, row i of the i-th of ``labels`` (n,).

    ``residual`` is how far they are from returning what was seen, by the adversary's own network.
    """

    features: FloatArray
    layer: str
    route: str
    residual: float
    labels: Array


class _HeadBackward(Backward):
    """What comes back to a layer inside the network from inputs that the adversary makes up."""

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
    """Return the first fully connected layer behind the convolutions, or why there is none.

    It is believed only if all scores follow from what enters it: nothing may lead around it.
    """
    module = network.module().double().eval()
    leaves = [(n, m) for n, m in module.named_modules() if not list(m.children())]
    convolutions = [i for i, (_, m) in enumerate(leaves) if isinstance(m, nn.modules.conv._ConvNd)]
    if not convolutions:
        return f"{network.describe()} has no convolutions: a first layer gives the records away"
    behind = [
        i for i in range(convolutions[-1], len(leaves)) if isinstance(leaves[i][1], nn.Linear)
    ]
    if not behind:
        return f"no fully connected layer follows the convolutions of {network.describe()}"
    (name, layer), after = leaves[behind[0]], [m for _, m in leaves[behind[0] + 1 :]]
    assert isinstance(layer, nn.Linear)
    if not decides(module, layer, network.record_shape):
        return f"the scores of {network.describe()} don't follow from what enters {name!r} alone"
    return InputLayer(
        weight=f"{name}.weight",
        bias=None if layer.bias is None else f"{name}.bias",
        width=layer.out_features,
        scale=np.ones(layer.in_features),
        offset=np.zeros(layer.in_features),
        rectified=bool(after) and isinstance(after[0], nn.ReLU),
    )


def batch_features(
    reading: Reading, labels: Array | None, rng: np.random.Generator
) -> BatchFeatures | str:
    """Return the features of the whole batch, or why they can't be told.

    The layer's gradient is unmixed where a bias fixes the scale and something follows the layer;
    where that is not believed, or not possible, the head's own fit may give the features.
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
    reading: Reading, layer: InputLayer, labels: Array | None, rng: np.random.Generator
) -> BatchFeatures | str:
    """Unmix the layer's gradient from every guess in turn; keep what returns best what was seen."""
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
            f"{factors.rank} directions of the gradient of {layer.weight!r} rise above its noise, "
            f"and {reading.count} records need as many"
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
    reading: Reading,
    against: Consistency,
    labels: Array | None,
    rounding: float,
    rng: np.random.Generator,
) -> Iterator[FloatArray]:
    """Yield unmixings to polish, the likeliest first; which of them is right shows in the end."""
    layer, rank = against.layer, against.factors.rank
    weight = reading.arrays[layer.weight]
    zeros = _by_zeros(against, weight, rounding, rng) if rank <= _SEARCHED else iter(())
    # Behind a smooth activation records of one class return nearly the same: zeros tell better.
    if not layer.rectified:
        yield from zeros
    responses = _responses(reading, against, labels)
    if responses is not None:
        yield from starts(against, responses, rng, count=_STARTS)
    yield separate(against, (weight.shape[1],), rng, rounds=8).unmixing
    yield from zeros


def _responses(reading: Reading, against: Consistency, labels: Array | None) -> Array | None:
    """Return the labels as indices, those that the scores' bias gradient says, or None."""
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

    Δ has some where a ReLU follows the layer; features behind a ReLU are themselves zero in many
    places, whatever follows the layer.
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
    reading: Reading,
    against: Consistency,
    unmixing: FloatArray,
    layer: InputLayer,
    labels: Array | None,
) -> BatchFeatures:
    """Put features beside their labels: the ones that return each column of Δ best."""
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


def _unreadable(reading: Reading, layer: InputLayer) -> str | None:
    """Say why the layer's gradient can't be unmixed."""
    last = list(reading.step.network.parameter_shapes())[-2:]
    if layer.weight in last:
        return (
            f"{layer.weight!r} is the last layer: without a hidden one behind the convolutions "
            "features are told only for labels that all differ"
        )
    for name in (layer.weight, layer.bias):
        if name is None:
            return f"the layer of {layer.weight!r} has no bias, which would give features a scale"
        if name not in reading.arrays:
            return f"the gradient of {name!r} was not released"
    shape = reading.arrays[layer.weight].shape
    if reading.count > 1 and reading.count >= min(shape):
        return f"{reading.count} records are too many: {layer.weight!r} has shape {shape}"
    return None
