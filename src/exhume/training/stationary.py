"""Training to convergence, which the weights-only attacks assume of a released network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.model import Label, Model

if TYPE_CHECKING:
    import torch

    from exhume.derivatives.objective import Objective

CENTRE = "centre"
"""The released array that is subtracted from every record before the network sees it."""


@dataclass(frozen=True)
class Stationary(Model):
    """Minimise the mean loss + (``weight_decay`` / 2)·‖θ‖² of centred records; release θ and mean.

    With two ``classes`` and one output, the loss is the logistic loss of the score, and the second
    class is the positive one. Otherwise it is the cross-entropy with one output per class. The
    optimiser is ``steps`` of gradient descent with momentum, then ``rounds`` of 200 L-BFGS steps.
    """

    network: Network
    classes: tuple[Label, ...]
    weight_decay: float = 3e-3
    learning_rate: float = 0.2
    momentum: float = 0.9
    steps: int = 400
    rounds: int = 3
    initial: Initialisation = field(default_factory=lambda: Initialisation(seed=None))

    def __post_init__(self) -> None:
        wanted = (1, 2) if len(self.classes) == 2 else (len(self.classes),)
        if len(self.classes) < 2 or self.network.outputs not in wanted:
            raise InputError(
                f"{len(self.classes)} classes need {' or '.join(map(str, wanted))} outputs "
                f"(at least 2 classes), the network has {self.network.outputs}"
            )
        if not 0 < self.weight_decay < float("inf"):
            raise InputError(f"weight_decay must be a positive number, got {self.weight_decay}")
        if self.steps < 0 or self.rounds < 0:
            raise InputError(f"steps and rounds can't be negative: {self.steps}, {self.rounds}")

    def publish(self, data: Records, *, rng: np.random.Generator) -> Weights:
        """Train on ``data`` and release the parameters, and the mean under ``centre``."""
        import torch

        from exhume.derivatives.objective import Objective

        if not len(data):
            raise InputError("there are no records to train on; at least 1 is needed")
        objective = Objective(self.network)
        x = np.asarray(data.x, dtype=np.float64)
        centre = x.mean(axis=0)
        records = objective.tensor(x - centre)
        classes = objective_labels(self.classes, data.labels)
        theta = objective.flat(self.initial.draw(self.network, rng)).requires_grad_()
        descent = torch.optim.SGD([theta], self.learning_rate, momentum=self.momentum)
        for _ in range(self.steps):
            descent.zero_grad()
            self.loss(objective, theta, records, classes).backward()  # type: ignore[no-untyped-call]
            descent.step()
        for _ in range(self.rounds):
            self._polish(objective, theta, records, classes)
        if not bool(torch.isfinite(theta).all()):
            raise InputError(
                "training diverged to NaN or infinity; use a learning rate below "
                f"{self.learning_rate}"
            )
        return Weights({CENTRE: centre, **objective.named(theta.detach())})

    def scores(self, release: Weights, x: Array) -> FloatArray:
        """Return the network's raw scores (n, outputs) of records before centring."""
        import torch

        from exhume.derivatives.objective import Objective

        objective = Objective(self.network)
        named = {name: release.parameters[name] for name in objective.shapes}
        centred = np.asarray(x) - release.parameters.get(CENTRE, 0.0)
        with torch.no_grad():
            found = objective.scores(objective.flat(named), objective.tensor(centred))
        return np.asarray(found.numpy(), dtype=np.float64)

    def means(self, scores: FloatArray) -> FloatArray:
        """Return class probabilities (n, classes)."""
        from scipy.special import expit, softmax

        if scores.shape[1] > 1:
            return np.asarray(softmax(scores, axis=1))
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])

    def describe(self) -> str:
        """Return for example ``a 784-200-1 network (relu), trained to convergence, …``."""
        decay = f"weight decay {self.weight_decay:g}"
        return f"{self.network.describe()}, trained to convergence, {decay}"

    def loss(
        self, objective: Objective, theta: torch.Tensor, x: torch.Tensor, classes: torch.Tensor
    ) -> torch.Tensor:
        """Return the training objective, for class indices (n,)."""
        from torch.nn import functional

        scores = objective.scores(theta, x)
        if self.network.outputs == 1:
            signs = 2.0 * classes.to(scores.dtype) - 1.0
            mean = functional.softplus(-signs * scores[:, 0]).mean()
        else:
            mean = functional.cross_entropy(scores, classes)
        total: torch.Tensor = mean + 0.5 * self.weight_decay * theta.square().sum()
        return total

    def _polish(
        self, objective: Objective, theta: torch.Tensor, x: torch.Tensor, classes: torch.Tensor
    ) -> None:
        """Take 200 steps of L-BFGS in place."""
        import torch

        polish = torch.optim.LBFGS(
            [theta],
            max_iter=200,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-9,
            tolerance_change=1e-12,
        )

        def closure() -> torch.Tensor:
            polish.zero_grad()
            value = self.loss(objective, theta, x, classes)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        polish.step(closure)  # type: ignore[no-untyped-call]


def objective_labels(classes: tuple[Label, ...], labels: Array) -> torch.Tensor:
    """Return labels as class indices (n,)."""
    import torch

    matches = np.asarray(labels)[:, None] == np.asarray(classes)[None, :]
    if not matches.any(axis=1).all():
        stranger = np.asarray(labels)[~matches.any(axis=1)][0]
        raise InputError(f"label {stranger} is not one of the model's classes {classes}")
    return torch.tensor(matches.argmax(axis=1), dtype=torch.long)
