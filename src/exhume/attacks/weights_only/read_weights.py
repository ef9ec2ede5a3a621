"""A released network with one hidden layer of ReLUs, as the weights-only attacks read it.

Also any released network that can be differentiated, and a network before and after training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from exhume.attacks.weights_only.folding import folded, forgets_shifts, normalisations
from exhume.models.base import Network, misfits
from exhume.models.exported import without_layers
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Lacking, Refusal
from exhume.protocol.defence import undefended
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.release import Release, Weights
from exhume.training.network import Training
from exhume.training.stationary import CENTRE, Stationary

if TYPE_CHECKING:
    from exhume.attacks.gradients.analytic.input_layer import InputLayer


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
        """The number of scores per record."""
        return len(self.output)

    @property
    def scale(self) -> FloatArray:
        """The factor on a record's values before the first layer: 1 here."""
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
        """Return ``own`` times these parameters plus ``others`` times the other's."""
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
    """Return the training under any defence around it, or None if it is not known."""
    training = None if knowledge.training is None else undefended(knowledge.training)
    return training if isinstance(training, Stationary | Training) else None


def without_entrance(knowledge: Knowledge, reason: str) -> Refusal:
    """Refuse a network whose first layer is not as needed, or can't be seen."""
    training = trained(knowledge)
    hidden = None if training is None else without_layers(training.network)
    return Refusal(hidden or reason)


def known_start(knowledge: Knowledge) -> Mapping[str, Array] | None:
    """Return the initial parameters if they are known directly or from the training seed."""
    training = trained(knowledge)
    if knowledge.initial is not None or not isinstance(training, Training):
        return knowledge.initial
    if not training.initial.known:
        return None
    return training.initial.draw(training.network, np.random.default_rng(0))


def decays(knowledge: Knowledge) -> bool:
    """Whether training shrank the weights, so that the initial ones are forgotten in the end."""
    training = trained(knowledge)
    if isinstance(training, Training):
        return training.optimiser.weight_decay > 0
    return isinstance(training, Stationary)


@dataclass(frozen=True, eq=False)
class KnownWeights:
    """The released parameters of a network whose training is known."""

    training: Stationary | Training
    parameters: Mapping[str, Array]
    """With the running statistics of batch normalisation, if they are released."""

    @property
    def centre(self) -> FloatArray:
        """What the release says is subtracted from every record (d,)."""
        size = int(np.prod(self.training.network.record_shape))
        found = self.parameters.get(CENTRE, np.zeros(size))
        return np.asarray(found, dtype=np.float64).ravel()

    @property
    def classes(self) -> int:
        """How many classes there are; 1 for a regression."""
        return 1 if self.training.classes is None else len(self.training.classes)

    def hidden_layer(self) -> HiddenLayer | Refusal:
        """Return a network with one hidden layer of ReLUs, or why the release is not one."""
        names = one_hidden_layer(self.training.network)
        if isinstance(names, str):
            return Refusal(names)
        if names.hidden_bias is None:
            return Refusal(
                "the first layer has no bias, so the scale of a record is not determined"
            )
        values = self._named()
        return HiddenLayer(
            np.column_stack([values[names.hidden], values[names.hidden_bias]]),
            values[names.output],
            None if names.output_bias is None else values[names.output_bias],
            self.centre,
            self.classes,
        )

    def module(self) -> GeneralNetwork | Refusal:
        """Return the network as a module, or why a record has no gradient in it."""
        reason = _inseparable(self.training.network)
        return self._module() if reason is None else Refusal(reason)

    def _module(self) -> GeneralNetwork:
        network, centre = self.training.network, self.centre
        bare = GeneralNetwork(network, {}, centre, centre, np.ones(len(centre)), self.classes)
        return _general(bare, folded(network, self._named(), self.parameters))

    def entrance(self) -> Released | Refusal:
        """Return the network for attacks that read its first layer alone.

        The rows of that layer are sums of records also where records meet in a normalisation
        further on.
        """
        network = self.training.network
        if not normalisations(network):
            return self.released()
        found = self._module()
        if found.first is not None and forgets_shifts(network, found.first_name):
            return Refusal(
                f"batch normalisation follows the first layer {found.first_name!r}: its rows are "
                "sums of differences of records, so the scale of a record is not determined"
            )
        return found

    def released(self) -> Released | Refusal:
        """Return the network, with an explicit gradient if there is one, else as a module."""
        known = self.hidden_layer()
        return self.module() if isinstance(known, Refusal) else known

    def _named(self) -> dict[str, FloatArray]:
        names = self.training.network.parameter_shapes()
        return {n: np.asarray(self.parameters[n], dtype=np.float64) for n in names}


def known_weights(release: Release, knowledge: Knowledge) -> KnownWeights | Refusal:
    """Return the released parameters of a known network, or what is missing of them."""
    if not isinstance(release, Weights):
        return Refusal(f"it reads weights, not a release of the kind {type(release).__name__}")
    training = trained(knowledge)
    if training is None:
        return Refusal(Lacking("the architecture must be known", "knowledge.training"))
    network = training.network
    if network.record_shape != knowledge.record_shape:
        return Refusal(
            f"a record has shape {knowledge.record_shape}, the network takes {network.record_shape}"
        )
    for reason in misfits(network.parameter_shapes(), release.parameters, more=True):
        return Refusal(reason)
    centre = release.parameters.get(CENTRE)
    if centre is not None and np.size(centre) != np.prod(knowledge.record_shape):
        shape = np.shape(centre)
        return Refusal(f"{CENTRE!r} has shape {shape}, a record {knowledge.record_shape}")
    return KnownWeights(training, {**release.parameters, **release.buffers})


@dataclass(frozen=True)
class Names:
    """Parameter names of a network with one hidden layer; None for a missing bias."""

    hidden: str
    hidden_bias: str | None
    output: str
    output_bias: str | None


@lru_cache(maxsize=32)
def one_hidden_layer(network: Network) -> Names | str:
    """Return the names of Linear, ReLU, Linear in a sequence of modules, or why it is not one.

    The modules may be Exhume's or come from a user's own function.
    """
    from torch import nn

    module = network.module()
    leaves = [(n, m) for n, m in module.named_modules() if not list(m.children())]
    plain = all(isinstance(m, nn.Sequential) for m in module.modules() if list(m.children()))
    # In evaluation mode, dropout is the identity.
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


@dataclass(frozen=True, eq=False)
class GeneralNetwork:
    """A network of any kind with its parameters by name, evaluated through the module itself.

    The module's input is x − ``subtracted``. ``first`` (h, d + 1) is its first layer, if that is
    fully connected and sees whole records; the last column is the bias (zeros if it has none). The
    layer's input is ``scale``·(x − ``centre``), and ``rectified`` says whether a ReLU follows.
    """

    network: Network
    parameters: Mapping[str, FloatArray]
    subtracted: FloatArray
    centre: FloatArray
    scale: FloatArray
    classes: int
    first: FloatArray | None = None
    first_name: str = ""
    rectified: bool = False

    @property
    def outputs(self) -> int:
        """The number of scores per record."""
        return self.network.outputs

    def scores(self, x: FloatArray) -> FloatArray:
        """Return the scores (n, outputs) of records (n, d)."""
        import torch

        from exhume.derivatives.objective import Objective

        objective = Objective(self.network, dtype=torch.float64, batch_norm="eval")
        records = (x - self.subtracted).reshape(len(x), *self.network.record_shape)
        with torch.no_grad():
            found = objective.scores(objective.flat(self.parameters), torch.tensor(records))
        return np.asarray(found.numpy())

    def combined(self, other: GeneralNetwork, own: float, others: float) -> GeneralNetwork:
        """Return ``own`` times these parameters plus ``others`` times the other's."""
        parameters = {n: own * p + others * other.parameters[n] for n, p in self.parameters.items()}
        return _general(self, parameters)


Released: TypeAlias = HiddenLayer | GeneralNetwork
"""A network as these attacks read it: one with an explicit gradient, or any other."""


@dataclass(frozen=True, eq=False)
class Move:
    """A network before and after training: ``change`` is what training added to it."""

    initial: Released
    final: Released

    @property
    def change(self) -> Released:
        """The difference of all parameters."""
        return self._combined(1.0, -1.0)

    @property
    def middle(self) -> Released:
        """The mean of both: closer than either to most of the training path."""
        return self._combined(0.5, 0.5)

    def _combined(self, after: float, before: float) -> Released:
        match self.final, self.initial:
            case HiddenLayer() as final, HiddenLayer() as initial:
                return final.combined(initial, after, before)
            case GeneralNetwork() as deep, GeneralNetwork() as start:
                return deep.combined(start, after, before)
        raise TypeError("the network must be of the same kind before and after training")


_Reading: TypeAlias = Callable[[KnownWeights], Released | Refusal]


def read_move(
    release: Release, knowledge: Knowledge, read: _Reading = KnownWeights.released
) -> Move | Refusal:
    """Return the network before and after training, or why it can't be read."""
    weights = known_weights(release, knowledge)
    if isinstance(weights, Refusal):
        return weights
    final = read(weights)
    if isinstance(final, Refusal):
        return final
    start = known_start(knowledge)
    if start is None:
        return Refusal(Lacking("needs the initial parameters", "knowledge.initial"))
    centre = {n: a for n, a in weights.parameters.items() if n == CENTRE}
    initial = read_any(Weights({**centre, **start}), knowledge, read)
    if isinstance(initial, Refusal):
        return Refusal(f"of the initial parameters: {initial.reason}")
    before, after = initial.first, final.first
    if before is not None and after is not None and np.array_equal(before, after):
        return Refusal("the first layer did not change since the initial parameters")
    return Move(initial, final)


def read_any(
    release: Release, knowledge: Knowledge, read: _Reading = KnownWeights.released
) -> Released | Refusal:
    """Return the network, with an explicit gradient if there is one, else as a module."""
    weights = known_weights(release, knowledge)
    return weights if isinstance(weights, Refusal) else read(weights)


def _general(like: GeneralNetwork, parameters: Mapping[str, FloatArray]) -> GeneralNetwork:
    """Return a copy of ``like`` with these parameters and with its first layer identified."""
    layer = _whole_entrance(like.network)
    if layer is None:
        return GeneralNetwork(
            *(like.network, parameters, like.subtracted),
            *(like.subtracted, np.ones(len(like.subtracted)), like.classes),
        )
    weight = parameters[layer.weight]
    bias = np.zeros(len(weight)) if layer.bias is None else parameters[layer.bias]
    return GeneralNetwork(
        *(like.network, parameters, like.subtracted),
        like.subtracted - layer.offset / layer.scale,
        layer.scale,
        like.classes,
        np.column_stack([weight, bias]),
        layer.weight.removesuffix(".weight"),
        layer.rectified,
    )


@lru_cache(maxsize=32)
def _whole_entrance(network: Network) -> InputLayer | None:
    """Return the fully connected first layer if the whole input passes through it."""
    from exhume.attacks.gradients.analytic.input_layer import decides, input_layer_of

    layer = input_layer_of(network)
    if isinstance(layer, str):
        return None
    module = network.module().double().eval()
    first = module.get_submodule(layer.weight.removesuffix(".weight"))
    return layer if decides(module, first, network.record_shape) else None


def _inseparable(network: Network) -> str | None:
    """Return why a record's gradient depends on other records or does not exist, or None."""
    for name in normalisations(network):
        return (
            f"{name!r} normalises by the batch: a record has no gradient of its own, and that of "
            "the weights in front is orthogonal to them, so they are no sum of gradients"
        )
    return None
