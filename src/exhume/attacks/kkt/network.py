"""A released network with one hidden layer of ReLUs, as the weights-only attacks read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.knowledge import Knowledge
from exhume.models.base import Activation
from exhume.models.mlp import MLP
from exhume.models.two_layer import TwoLayer
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

    def scores(self, x: FloatArray) -> FloatArray:
        """Return the scores (n, outputs) of records (n, d)."""
        inside = np.column_stack([x - self.centre, np.ones(len(x))]) @ self.first.T
        scores = np.maximum(inside, 0.0) @ self.output.T
        return np.asarray(scores if self.output_bias is None else scores + self.output_bias)


@dataclass(frozen=True, eq=False)
class Move:
    """A network before and after training: ``change`` is what training added to it."""

    initial: HiddenLayer
    final: HiddenLayer

    @property
    def change(self) -> HiddenLayer:
        """The differences of all parameters."""
        return self._combined(1.0, -1.0)

    @property
    def middle(self) -> HiddenLayer:
        """The mean of both: nearer than either to where the training spent its time."""
        return self._combined(0.5, 0.5)

    def _combined(self, after: float, before: float) -> HiddenLayer:
        final, initial = self.final, self.initial
        bias = None
        if final.output_bias is not None and initial.output_bias is not None:
            bias = after * final.output_bias + before * initial.output_bias
        return HiddenLayer(
            after * final.first + before * initial.first,
            after * final.output + before * initial.output,
            bias,
            final.centre,
            final.classes,
        )


def known_start(knowledge: Knowledge) -> Mapping[str, Array] | None:
    """Return the initial parameters where they are known, as such or by the training's seed."""
    training = knowledge.training
    if knowledge.initial is not None or not isinstance(training, Training):
        return knowledge.initial
    if not training.initial.known:
        return None
    return training.initial.draw(training.network, np.random.default_rng(0))


def decays(knowledge: Knowledge) -> bool:
    """Whether training shrank the weights, so that their start is forgotten in the end."""
    training = knowledge.training
    if isinstance(training, Training):
        return training.optimiser.weight_decay > 0
    return isinstance(training, Stationary)


def read_move(release: Release, knowledge: Knowledge) -> Move | str:
    """Return the network before and after training, or why it can't be read."""
    final = read(release, knowledge)
    if isinstance(final, str):
        return final
    start = known_start(knowledge)
    if start is None:
        return "the initial parameters must be known (knowledge.initial)"
    initial = read(Weights(start), knowledge)
    if isinstance(initial, str):
        return f"of the initial parameters: {initial}"
    if np.array_equal(initial.first, final.first):
        return "the first layer did not move since the initial parameters"
    return Move(initial, final)


def read(release: Release, knowledge: Knowledge) -> HiddenLayer | str:
    """Return the network, or why these attacks can't read it."""
    if not isinstance(release, Weights):
        return f"it reads weights, not a release of the kind {type(release).__name__}"
    training = knowledge.training
    if not isinstance(training, Stationary | Training):
        return "the architecture must be known (knowledge.training)"
    network = training.network
    names = _names(network)
    if isinstance(names, str):
        return names
    shapes = network.parameter_shapes()
    for name, shape in shapes.items():
        if name not in release.parameters:
            return f"there is no parameter {name!r} (shape {shape}) in the release"
        if release.parameters[name].shape != shape:
            return f"{name!r} has shape {release.parameters[name].shape}, expected {shape}"
    if names.hidden_bias not in shapes:
        return "the first layer has no bias, and that is what fixes a record's scale"
    size = int(np.prod(knowledge.record_shape))
    centre = np.asarray(release.parameters.get(CENTRE, np.zeros(size)), dtype=np.float64).ravel()
    if shapes[names.hidden][1] != size or len(centre) != size:
        return f"a record has {size} values, the first layer {shapes[names.hidden][1]} inputs"
    values = {n: np.asarray(release.parameters[n], dtype=np.float64) for n in shapes}
    return HiddenLayer(
        np.column_stack([values[names.hidden], values[names.hidden_bias]]),
        values[names.output],
        values.get(names.output_bias),
        centre,
        1 if training.classes is None else len(training.classes),
    )


@dataclass(frozen=True)
class _Names:
    hidden: str
    hidden_bias: str
    output: str
    output_bias: str


def _names(network: object) -> _Names | str:
    """Return the parameters' names of a network with one hidden layer of ReLUs."""
    if isinstance(network, TwoLayer):
        names = _Names("hidden.weight", "hidden.bias", "output.weight", "output.bias")
    elif isinstance(network, MLP) and len(network.hidden) == 1:
        names = _Names("1.weight", "1.bias", "3.weight", "3.bias")
    else:
        return "the network must have exactly one hidden layer"
    if network.activation is not Activation.RELU:
        return f"the hidden layer must be of ReLUs, not {network.activation.value}"
    return names
