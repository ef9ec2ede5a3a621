"""The whole mechanism as the adversary knows it, defences included, made differentiable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from exhume.arrays import Array, FloatArray
from exhume.attacks.matching.inner_steps import slopes_of
from exhume.attacks.matching.local_steps import Clients, Unrolled
from exhume.attacks.matching.nuisances import Nuisances
from exhume.attacks.matching.simulation import Around, OneGradient, Simulation
from exhume.defences import (
    Blurring,
    Clipping,
    Defence,
    GradientDropout,
    Pruning,
    Rounding,
    Rounds,
    Sign,
    TopK,
    Transform,
)
from exhume.errors import InputError
from exhume.mechanism import Mechanism
from exhume.training.gradient import Aggregate, GradientStep, LocalSteps, Step
from exhume.training.objective import Objective

SPARSE = (Pruning, TopK, GradientDropout)
"""Defences that send part of the entries: what they hold back is 0."""
_SEE_THROUGH = (*SPARSE, Clipping, Sign, Rounding, Rounds)
"""Defences that leave a 0 what it was."""
_DRAWS = 4
"""Rounds that are simulated with draws of their own; of more than these, the mean is near."""


class Changed(Around):
    """What a client sends instead: a transform, or the entries that are known to be sent.

    ``sent`` maps parameters to where (True) an entry was sent, as far as the release shows it.
    """

    def __init__(self, inner: Simulation, defence: Transform, sent: Mapping[str, Array]) -> None:
        super().__init__(inner)
        self._defence = defence
        device = inner.objective.device
        self._sent = {n: torch.tensor(where, device=device) for n, where in sent.items()}

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the inner release, changed."""
        values = self.inner.part(x, y)
        dropped = isinstance(self._defence, GradientDropout)
        if not self._sent:
            # Holes at random that don't show are right on average: the scaling makes up for them.
            return values if dropped else tuple(self._defence.simulated(values))
        if dropped:
            values = tuple(self._defence.simulated(values))
        hidden = [n for n in self.names if n not in self._sent]
        # Which entries of a parameter were kept does not show where it was not released.
        made = self._defence.simulated(values) if hidden and not dropped else values
        pairs = zip(self.names, values, made, strict=True)
        return tuple(v * self._sent[n] if n in self._sent else m for n, v, m in pairs)


class Repeated(Around):
    """The mean over rounds in which a defence drew anew."""

    def __init__(self, inner: Simulation, rounds: int) -> None:
        super().__init__(inner)
        self._rounds = rounds

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return the mean."""
        found = [self.inner.part(x, y) for _ in range(self._rounds)]
        return tuple(torch.stack(values).mean(dim=0) for values in zip(*found, strict=True))


class Selected(Around):
    """Some parameters of a release whose defence looks at all of them."""

    def __init__(self, inner: Simulation, names: Sequence[str]) -> None:
        super().__init__(inner)
        self._index = [inner.names.index(name) for name in names]
        self.names = tuple(names)

    def part(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """Return those parameters."""
        values = self.inner.part(x, y)
        return tuple(values[index] for index in self._index)


def simulation_of(
    mechanism: Mechanism,
    objective: Objective,
    parameters: Mapping[str, Array],
    arrays: Mapping[str, FloatArray],
) -> Simulation:
    """Return the simulation of ``mechanism`` with all its defences; noise is left out.

    ``arrays`` are what it released: where entries that a defence held back show as zeros, these
    are taken for which they were.
    """
    names = tuple(arrays)
    if not defended(mechanism):
        return _built(mechanism, objective, parameters, names, {})
    every = tuple(objective.shapes)
    sent = {n: a != 0.0 for n, a in arrays.items()}
    if isinstance(mechanism, Pruning | TopK):
        # What it held back shows, and that it is not larger than what was sent is held against it.
        mechanism = mechanism.inner
    found = _built(mechanism, objective, parameters, every, sent)
    return found if names == every else Selected(found, names)


def defended(mechanism: Mechanism) -> bool:
    """Tell whether there is any defence around, between or inside steps."""
    while isinstance(mechanism, LocalSteps | Aggregate):
        mechanism = mechanism.client
    return isinstance(mechanism, Defence)


def shown(mechanism: Mechanism) -> list[Defence]:
    """Return the defences whose zeros are still zeros in what was sent, the outermost first."""
    found: list[Defence] = []
    while isinstance(mechanism, _SEE_THROUGH):
        found.append(mechanism)
        mechanism = mechanism.inner
    return found


def _built(
    mechanism: Mechanism,
    objective: Objective,
    parameters: Mapping[str, Array],
    names: tuple[str, ...],
    sent: Mapping[str, Array],
) -> Simulation:
    """Build from the outside in; ``sent`` is what shows of the entries at this depth."""
    if not isinstance(mechanism, _SEE_THROUGH):
        sent = {}
    match mechanism:
        case Step():
            nuisances = Nuisances(objective.dtype, objective.device)
            slopes = slopes_of(mechanism, objective, nuisances)
            return OneGradient(objective, parameters, names, slopes, nuisances)
        case LocalSteps() as local:
            return Unrolled(objective, parameters, names, local)
        case Aggregate(client, clients):
            inner = _built(client, objective, parameters, names, {})
            plain = isinstance(client, GradientStep) and not _normalised(objective)
            # Without batch statistics the mean over clients is the gradient of all records.
            return inner if plain or clients == 1 else Clients(inner, clients)
        case Transform():
            inner = _built(mechanism.inner, objective, parameters, names, sent)
            return Changed(inner, mechanism, sent if isinstance(mechanism, SPARSE) else {})
        case Rounds(client, rounds):
            inner = _built(client, objective, parameters, names, sent)
            return Repeated(inner, min(rounds, _DRAWS)) if inner.nuisances.expected else inner
        case Blurring():
            return _built(mechanism.inner, objective, parameters, names, sent)
    raise InputError(f"what {type(mechanism).__name__} releases can't be matched")


def _normalised(objective: Objective) -> bool:
    module = objective.module
    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    return bool(norms) and module.training
