"""Any released network that can be differentiated, and one before and after its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.kkt.network import HiddenLayer, known_start, missing, read, trained
from exhume.knowledge import Knowledge
from exhume.models.base import Network
from exhume.release import Release, Weights
from exhume.training.stationary import CENTRE

if TYPE_CHECKING:
    from exhume.attacks.analytic.layer import InputLayer


@dataclass(frozen=True, eq=False)
class General:
    """A network of any kind with its parameters by name, seen through the module itself.

    The module gets x − ``subtracted``. Where its first layer is fully connected and sees whole
    records, that layer is ``first`` (h, d + 1) with the bias in its last column (zeros where it has
    none), it gets ``scale``·(x − ``centre``), and ``rectified`` tells whether a ReLU follows.
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
        """How many scores a record gets."""
        return self.network.outputs

    def scores(self, x: FloatArray) -> FloatArray:
        """Return the scores (n, outputs) of records (n, d)."""
        import torch

        from exhume.training.objective import Objective

        objective = Objective(self.network, dtype=torch.float64, batch_norm="eval")
        records = (x - self.subtracted).reshape(len(x), *self.network.record_shape)
        with torch.no_grad():
            found = objective.scores(objective.flat(self.parameters), torch.tensor(records))
        return np.asarray(found.numpy())

    def combined(self, other: General, own: float, others: float) -> General:
        """Return ``own`` times these parameters and ``others`` times the other's."""
        parameters = {n: own * p + others * other.parameters[n] for n, p in self.parameters.items()}
        return _general(self, parameters)


Released: TypeAlias = HiddenLayer | General
"""A network as these attacks read it: the one they know by heart, or any other."""


@dataclass(frozen=True, eq=False)
class Move:
    """A network before and after training: ``change`` is what training added to it."""

    initial: Released
    final: Released

    @property
    def change(self) -> Released:
        """The differences of all parameters."""
        return self._combined(1.0, -1.0)

    @property
    def middle(self) -> Released:
        """The mean of both: nearer than either to where the training spent its time."""
        return self._combined(0.5, 0.5)

    def _combined(self, after: float, before: float) -> Released:
        match self.final, self.initial:
            case HiddenLayer() as final, HiddenLayer() as initial:
                return final.combined(initial, after, before)
            case General() as deep, General() as start:
                return deep.combined(start, after, before)
        raise TypeError("a network is of one kind before and after its training")


def read_move(release: Release, knowledge: Knowledge) -> Move | str:
    """Return the network before and after training, or why it can't be read."""
    final = read_any(release, knowledge)
    if isinstance(final, str):
        return final
    start = known_start(knowledge)
    if start is None:
        return "the initial parameters must be known (knowledge.initial)"
    initial = read_any(Weights({**_centre(release), **start}), knowledge)
    if isinstance(initial, str):
        return f"of the initial parameters: {initial}"
    before, after = initial.first, final.first
    if before is not None and after is not None and np.array_equal(before, after):
        return "the first layer did not move since the initial parameters"
    return Move(initial, final)


def read_any(release: Release, knowledge: Knowledge) -> Released | str:
    """Return the network: with its gradient written out where known, else as a module."""
    reason = missing(release, knowledge)
    if reason is not None:
        return reason
    known = read(release, knowledge)
    return read_general(release, knowledge) if isinstance(known, str) else known


def read_general(release: Release, knowledge: Knowledge) -> General | str:
    """Return the network as a module, whatever it is, or why a record has no gradient in it."""
    reason = missing(release, knowledge)
    if reason is not None:
        return reason
    training = trained(knowledge)
    assert training is not None
    assert isinstance(release, Weights)
    reason = _inseparable(training.network)
    if reason is not None:
        return reason
    size = int(np.prod(knowledge.record_shape))
    subtracted = np.asarray(release.parameters.get(CENTRE, np.zeros(size)), dtype=np.float64)
    names = training.network.parameter_shapes()
    bare = General(
        training.network,
        {},
        subtracted.ravel(),
        subtracted.ravel(),
        np.ones(size),
        1 if training.classes is None else len(training.classes),
    )
    values = {n: np.asarray(release.parameters[n], dtype=np.float64) for n in names}
    return _general(bare, values)


def _general(like: General, parameters: Mapping[str, FloatArray]) -> General:
    """Return a network like another one with these parameters, its first layer found."""
    layer = _whole_entrance(like.network)
    if layer is None:
        return General(
            *(like.network, parameters, like.subtracted),
            *(like.subtracted, np.ones(len(like.subtracted)), like.classes),
        )
    weight = parameters[layer.weight]
    bias = np.zeros(len(weight)) if layer.bias is None else parameters[layer.bias]
    return General(
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
    """Return the fully connected first layer where all that the network sees goes through it."""
    from exhume.attacks.analytic.layer import decides, input_layer

    layer = input_layer(network)
    if isinstance(layer, str):
        return None
    module = network.module().double().eval()
    first = module.get_submodule(layer.weight.removesuffix(".weight"))
    return layer if decides(module, first, network.record_shape) else None


def _inseparable(network: Network) -> str | None:
    """Say why a record's gradient depends on other records, or does not exist."""
    from torch import nn

    for name, module in network.module().named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return f"{name!r} normalises by the batch: a record has no gradient of its own"
    return None


def _centre(release: Release) -> dict[str, FloatArray]:
    """Return what a release says is subtracted from every record, by its name."""
    assert isinstance(release, Weights)
    return {n: a for n, a in release.parameters.items() if n == CENTRE}
