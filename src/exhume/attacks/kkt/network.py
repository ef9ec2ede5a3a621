"""A released network with one hidden layer of ReLUs, as the weights-only attacks read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.defences.base import undefended
from exhume.knowledge import Knowledge
from exhume.models.base import Network
from exhume.release import Release, Weights
from exhume.training.network import Training
from exhume.training.stationary import CENTRE, Stationary


@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """x̄ = (x − centre, 1) → A·relu(W x̄) + c.

    ``first`` is W (h, d + 1) with the bias in its last column, ``output`` A (outputs, h),
    ``output_bias`` c (outputs,) or None, ``centre`` (d,).
    """

    first: FloatArray
    output: FloatArray
    output_bias: FloatArray | None
    centre: FloatArray
    classes: int

    @property
    def outputs(self) -> int:
        """How many scores a record gets."""
        return len(self.output)

    @property
    def scale(self) -> FloatArray:
        """What a record's values are multiplied with before the first layer: nothing here."""
        return np.ones(len(self.centre))

    @property
    def rectified(self) -> bool:
        """Whether a ReLU follows the first layer."""
        return True

    def scores(self, x: FloatArray) -> FloatArray:
        """Return the scores (n, outputs) of records (n, d)."""
        inside = np.column_stack([x - self.centre, np.ones(len(x))]) @ self.first.T
        scores = np.maximum(inside, 0.0) @ self.output.T
        return np.asarray(scores if self.output_bias is None else scores + self.output_bias)

    def combined(self, other: HiddenLayer, own: float, others: float) -> HiddenLayer:
        """Return ``own`` times these parameters and ``others`` times the other's."""
        bias = None
        if self.output_bias is not None and other.output_bias is not None:
            bias = own * self.output_bias + others * other.output_bias
        return HiddenLayer(
            own * self.first + others * other.first,
            own * self.output + others * other.output,
            bias,
            self.centre,
            self.classes,
        )


def trained(knowledge: Knowledge) -> Stationary | Training | None:
    """Return how the network was trained, under whatever defends it; None where not known."""
    training = None if knowledge.training is None else undefended(knowledge.training)
    return training if isinstance(training, Stationary | Training) else None


def known_start(knowledge: Knowledge) -> Mapping[str, Array] | None:
    """Return the initial parameters where they are known, as such or by the training's seed."""
    training = trained(knowledge)
    if knowledge.initial is not None or not isinstance(training, Training):
        return knowledge.initial
    if not training.initial.known:
        return None
    return training.initial.draw(training.network, np.random.default_rng(0))


def decays(knowledge: Knowledge) -> bool:
    """Whether training shrank the weights, so that their start is forgotten in the end."""
    training = trained(knowledge)
    if isinstance(training, Training):
        return training.optimiser.weight_decay > 0
    return isinstance(training, Stationary)


def missing(release: Release, knowledge: Knowledge) -> str | None:
    """Say which parameter of a known network is not in the release, or of another shape."""
    if not isinstance(release, Weights):
        return f"it reads weights, not a release of the kind {type(release).__name__}"
    training = trained(knowledge)
    if training is None:
        return "the architecture must be known (knowledge.training)"
    network = training.network
    if network.record_shape != knowledge.record_shape:
        return (
            f"a record has shape {knowledge.record_shape}, the network takes {network.record_shape}"
        )
    for name, shape in network.parameter_shapes().items():
        if name not in release.parameters:
            return f"there is no parameter {name!r} (shape {shape}) in the release"
        if release.parameters[name].shape != shape:
            return f"{name!r} has shape {release.parameters[name].shape}, expected {shape}"
    centre = release.parameters.get(CENTRE)
    if centre is not None and np.size(centre) != np.prod(knowledge.record_shape):
        return f"{CENTRE!r} has shape {np.shape(centre)}, a record {knowledge.record_shape}"
    return None


def read(release: Release, knowledge: Knowledge) -> HiddenLayer | str:
    """Return a network with one hidden layer of ReLUs, or why it is none."""
    reason = missing(release, knowledge)
    if reason is not None:
        return reason
    training = trained(knowledge)
    assert training is not None
    assert isinstance(release, Weights)
    names = one_hidden_layer(training.network)
    if isinstance(names, str):
        return names
    if names.hidden_bias is None:
        return "the first layer has no bias, and that is what fixes a record's scale"
    values = {n: np.asarray(a, dtype=np.float64) for n, a in release.parameters.items()}
    size = int(np.prod(knowledge.record_shape))
    return HiddenLayer(
        np.column_stack([values[names.hidden], values[names.hidden_bias]]),
        values[names.output],
        None if names.output_bias is None else values[names.output_bias],
        values.get(CENTRE, np.zeros(size)).ravel(),
        1 if training.classes is None else len(training.classes),
    )


@dataclass(frozen=True)
class Names:
    """The parameters' names of a network with one hidden layer; None for a bias it lacks."""

    hidden: str
    hidden_bias: str | None
    output: str
    output_bias: str | None


@lru_cache(maxsize=32)
def one_hidden_layer(network: Network) -> Names | str:
    """Return the names of Linear, ReLU, Linear in a sequence of modules, or why it is not that.

    Whoever made the modules: ours, or a function of the user's own.
    """
    from torch import nn

    module = network.module()
    leaves = [(n, m) for n, m in module.named_modules() if not list(m.children())]
    plain = all(isinstance(m, nn.Sequential) for m in module.modules() if list(m.children()))
    # In evaluation, dropout passes on what it gets.
    idle = (nn.Flatten, nn.Identity, nn.Dropout)
    kinds = [(n, m) for n, m in leaves if not isinstance(m, idle)]
    if not plain or [type(m) for _, m in kinds] != [nn.Linear, nn.ReLU, nn.Linear]:
        if [type(m) for _, m in kinds[::2]] == [nn.Linear, nn.Linear] and len(kinds) == 3:
            return f"the hidden layer must be of ReLUs, not {type(kinds[1][1]).__name__}"
        return "the network must have exactly one hidden layer"
    (hidden, first), _, (output, last) = kinds
    if first.in_features != int(np.prod(network.record_shape)):
        return f"the first layer takes {first.in_features} numbers, not a whole record"
    return Names(
        f"{hidden}.weight",
        None if first.bias is None else f"{hidden}.bias",
        f"{output}.weight",
        None if last.bias is None else f"{output}.bias",
    )
