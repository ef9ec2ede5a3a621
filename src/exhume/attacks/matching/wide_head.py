"""A network that ends in a wide two-layer head: its inputs, recovered from the head's gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.features import Head, RecoveredFeatures, recover_features
from exhume.attacks.features.observed import sent_factor
from exhume.attacks.matching.reading import Reading
from exhume.models.base import Activation, Network

if TYPE_CHECKING:
    from torch import nn

_COMPOSED = (Activation.SHIFTED_RELU, Activation.SHIFTED_TANH, Activation.RELU_PLUS_TANH)
"""Activations that can't be told by their module's type."""


@dataclass(frozen=True)
class WideHead:
    """The last two layers' names, where a network ends in linear, activation, linear."""

    hidden: str
    output: str
    activation: Activation


def wide_head(network: Network) -> WideHead | None:
    """Return the two-layer head that ``network`` ends in, None where it ends otherwise.

    The layers are taken by their place in the module, and believed only if they reproduce the
    module's own scores of two random records.
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
    reading: Reading, responses: Array | None, rng: np.random.Generator
) -> tuple[RecoveredFeatures, str] | None:
    """Return what enters the head and the head's first layer, None where the head can't tell.

    ``responses`` (n,) are class indices, None where they are to be found along.
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
    """Tell whether the gradient has enough independent entries for ``count`` features.

    A ReLU is silent on half of all inputs, and residuals of a softmax sum to 0.
    """
    width = len(head.weights)
    active = width // 2 if head.activation is Activation.RELU else width
    return active >= head.dimension and active * (outputs - 1) >= count * head.dimension


def _known_head(reading: Reading, named: WideHead) -> Head:
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
