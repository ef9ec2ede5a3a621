"""Releases of federated learning: a gradient, the change by local steps, a mean over clients."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.protocol.arrays import Array, frozen
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient
from exhume.training.model import Label
from exhume.training.network import Training

if TYPE_CHECKING:
    import torch

    from exhume.derivatives.objective import Objective
    from exhume.training.unknown_draws import UnknownDraws

Forward: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"
"""From records to scores, at the parameters that the gradient is taken at."""
SimulatedStep: TypeAlias = """Callable[
    [Forward, Sequence[torch.Tensor], torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]
]"""
"""What a step sends of a batch x with responses y: one gradient per leaf, with its graph."""
Named: TypeAlias = Mapping[str, Array] | tuple[tuple[str, Array], ...]


class Step(Mechanism):
    """One gradient at parameters that the server knows: plain, or with a defence inside.

    Local steps take several of these; each starts at the end of the previous one.
    """

    @property
    def record_clipping(self) -> tuple[float, float] | None:
        """The clipping norm of each record's gradient, and the noise multiplier.

        Infinity and 0 for a plain gradient; None if the step is no sum of clipped gradients.
        """
        return None

    @abstractmethod
    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the sent gradient (P,) of the (weighted) mean loss on ``data``."""

    def simulated_step(self, objective: Objective, draws: UnknownDraws) -> SimulatedStep:
        """Return the step in the form that an informed adversary differentiates.

        Noise is omitted. Unknown random draws are requested from ``draws``.
        """
        raise InputError(f"a step of {type(self).__name__} can't be simulated")

    def plain(self) -> GradientStep:
        """Return the step without any defence inside."""
        found = gradient_step(self)
        assert found is not None
        return found

    def publish(self, data: Records, *, rng: np.random.Generator) -> Gradient:
        """Return the gradient on ``data`` as one batch."""
        objective = self.plain().objective()
        theta = self.plain().theta(objective, rng)
        return Gradient(objective.named(self.gradient(objective, theta, data, rng)), len(data))

    @abstractmethod
    def describe(self) -> str:
        """Return a short description for the report."""


@dataclass(frozen=True, eq=False)
class GradientStep(Step):
    """Release the gradient of the mean loss of the whole batch, at parameters the server knows.

    The parameters are drawn from ``initial``, or given by name as ``state`` (an already trained
    model). ``buffers`` are arrays that a network has besides its parameters (running statistics of
    batch normalisation); by default they are the network's initial ones. ``batch_norm`` says
    whether normalisation uses the batch's own statistics ("train") or the running ones ("eval").
    Mappings are stored as pairs, so that the mechanism can be sent to other processes.
    """

    network: Network
    classes: tuple[Label, ...] | None
    initial: Initialisation = field(default_factory=Initialisation)
    state: Named | None = field(default=None, repr=False)
    buffers: Named | None = field(default=None, repr=False)
    precision: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    batch_norm: Literal["train", "eval"] = "train"

    def __post_init__(self) -> None:
        wanted = 1 if self.classes is None else len(self.classes)
        if self.network.outputs != wanted:
            raise InputError(
                f"the network has {self.network.outputs} outputs, but there are {wanted} classes"
                if self.classes is not None
                else f"a regression has one output, the network {self.network.outputs}"
            )
        for name in ("state", "buffers"):
            given = getattr(self, name)
            if given is not None:
                pairs = given.items() if isinstance(given, Mapping) else given
                object.__setattr__(self, name, tuple((str(n), frozen(a)) for n, a in pairs))

    @property
    def known(self) -> bool:
        """Whether everybody who knows the mechanism knows the parameters."""
        return self.state is not None or self.initial.known

    @property
    def record_clipping(self) -> tuple[float, float]:
        """Nothing is clipped and there is no noise."""
        return math.inf, 0.0

    def parameters(self) -> dict[str, Array]:
        """Return the public parameters by name; raises InputError if they are secret."""
        if not self.known:
            raise InputError("the parameters are drawn in secret: give the initialisation a seed")
        return self._start(np.random.default_rng(0))

    def objective(self, precision: str | None = None) -> Objective:
        """Return the loss whose gradient is taken, at a flat vector of parameters."""
        import torch

        from exhume.derivatives.objective import Loss, Objective

        return Objective(
            self.network,
            Loss.SQUARED_ERROR if self.classes is None else Loss.CROSS_ENTROPY,
            dtype=getattr(torch, precision or self.precision),
            device=self.device,
            buffers=None if self.buffers is None else dict(self.buffers),
            batch_norm=self.batch_norm,
        )

    def responses(self, labels: Array) -> Array:
        """Return labels as class indices, or as numbers for a regression."""
        return Training(self.network, self.classes).responses(labels)

    def theta(self, objective: Objective, rng: np.random.Generator) -> torch.Tensor:
        """Return the parameters θ (P,); ``rng`` is used only if they are secret."""
        return objective.flat(self._start(rng))

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return ∇θ (P,) of the (weighted) mean loss of ``data``."""
        if not len(data):
            raise InputError("a gradient needs at least one record, got an empty batch")
        weight = None if data.weight is None else objective.tensor(data.weight)
        x, y = objective.tensor(data.x), objective.responses(self.responses(data.labels))
        return objective.gradient(theta, x, y, weight=weight, count=len(data))

    def simulated_step(self, objective: Objective, draws: UnknownDraws) -> SimulatedStep:
        """Return ∇θ of the mean loss."""
        from exhume.training.simulation import plain_step

        return plain_step(objective)

    def describe(self) -> str:
        """Return for example ``one gradient of a 784-10-10 network (elu)``."""
        return f"one gradient of {self.network.describe()}, {self._where()}"

    def _where(self) -> str:
        if self.state is not None:
            return "at given parameters"
        return "at its initialisation" if self.known else "at a secret initialisation"

    def _start(self, rng: np.random.Generator) -> dict[str, Array]:
        if self.state is not None:
            return dict(self.state)
        return dict(self.initial.draw(self.network, rng))


def public_parameters(knowledge: Knowledge) -> Mapping[str, Array] | None:
    """Return the parameters of the gradient if the adversary knows them, or None."""
    if knowledge.initial is not None:
        return knowledge.initial
    step = gradient_step(knowledge.training)
    return step.parameters() if step is not None and step.known else None


def gradient_step(mechanism: Mechanism | None) -> GradientStep | None:
    """Return the gradient step under defences, clients and local steps, or None."""
    core = None if mechanism is None else layers(mechanism)[-1]
    return core if isinstance(core, GradientStep) else None
