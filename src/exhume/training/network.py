"""Training a neural network: Balle et al. 2022's algorithm A and its variations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.errors import InputError
from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.records import Records
from exhume.release import Weights
from exhume.training.batches import Batches, Index
from exhume.training.model import Label, Model
from exhume.training.optimisers import SGD, Optimiser

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.training.objective import Objective


@dataclass(frozen=True)
class Clipping:
    """DP-GD: each record's gradient cut to ``norm``, Gaussian noise of norm · multiplier added."""

    norm: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not 0 < self.norm < float("inf"):
            raise InputError(f"the clipping norm must be a positive number, got {self.norm}")
        if not 0 <= self.noise_multiplier < float("inf"):
            raise InputError(f"noise_multiplier can't be negative, got {self.noise_multiplier}")


@dataclass(frozen=True)
class Training(Model):
    """Train ``network`` from ``initial`` on the mean loss of each batch; release its weights.

    ``classes`` lists the labels in the order of the outputs (cross-entropy); None is a regression
    on the squared error. ``batches`` None is full-batch descent: deterministic. The denominator of
    a mean is the number of records in the batch, under ``clipping`` the expected number, which the
    accounting takes as public.
    """

    network: Network
    classes: tuple[Label, ...] | None
    optimiser: Optimiser = field(default_factory=lambda: SGD(0.2, 0.9))
    epochs: int = 100
    batches: Batches | None = None
    initial: Initialisation = field(default_factory=Initialisation)
    clipping: Clipping | None = None
    precision: Literal["float32", "float64"] = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise InputError(f"epochs must be at least 1, got {self.epochs}")
        wanted = 1 if self.classes is None else len(self.classes)
        if self.network.outputs != wanted:
            raise InputError(
                f"the network has {self.network.outputs} outputs, but there are {wanted} classes"
                if self.classes is not None
                else f"a regression has one output, the network {self.network.outputs}"
            )
        if self.clipping is not None and self.batches is not None and not self.batches.poisson:
            raise InputError(
                "mini-batches under clipping must be drawn by Poisson sampling (poisson = true): "
                "no accounting here covers shuffled ones"
            )

    @property
    def deterministic(self) -> bool:
        """Whether everybody who knows the training can repeat it exactly on the same data."""
        noisy = self.clipping is not None and self.clipping.noise_multiplier > 0
        return self.initial.known and (self.batches is None or self.batches.known) and not noisy

    def publish(self, data: Records, *, rng: np.random.Generator) -> Weights:
        """Train on ``data``, one plain loop in PyTorch, and release the parameters."""
        objective = self.objective()
        theta = self.run(objective, data, rng=rng)
        return Weights(objective.named(theta))

    def objective(self, precision: str | None = None) -> Objective:
        """Return the loss that is trained on, at a flat vector of parameters."""
        import torch

        from exhume.training.objective import Loss, Objective

        loss = Loss.SQUARED_ERROR if self.classes is None else Loss.CROSS_ENTROPY
        dtype: torch.dtype = getattr(torch, precision or self.precision)
        return Objective(self.network, loss, dtype=dtype, device=self.device)

    def run(
        self,
        objective: Objective,
        data: Records,
        *,
        rng: np.random.Generator,
        watch: Callable[[torch.Tensor], None] | None = None,
    ) -> torch.Tensor:
        """Return the trained parameters θ (P,): the slow, plain way that faster ones are held to.

        ``watch`` is shown θ before every step. A training whose loss runs away raises InputError.
        """
        import torch

        self.require_records(data)
        x, y = objective.tensor(data.x), objective.responses(self.responses(data.labels))
        weight = None if data.weight is None else objective.tensor(data.weight)
        theta = objective.flat(self.initial.draw(self.network, rng))
        state = self.optimiser.start(theta)
        for chosen in self.steps(len(data), rng):
            part = slice(None) if chosen is None else torch.as_tensor(chosen, device=x.device)
            own = None if weight is None else weight[part]
            if watch is not None:
                watch(theta)
            gradient = self._gradient(objective, theta, (x[part], y[part]), own, len(data), rng)
            theta, state = self.optimiser.step(theta, gradient, state)
        self.require_converged(bool(torch.isfinite(theta).all()))
        return theta

    def require_records(self, data: Records) -> None:
        """Raise InputError where records are none, or not of the network's shape."""
        self.require_shape(data.x)
        if len(data) == 0:
            raise InputError("there are no records to train on; at least 1 is needed")

    def require_shape(self, x: Array) -> None:
        """Raise InputError where records ``x`` (n, *record shape) are not of the network's shape.

        A network that flattens its input would take them all the same.
        """
        if x.shape[1:] != self.network.record_shape:
            raise InputError(
                f"the records have shape {x.shape[1:]}, "
                f"the network takes {self.network.record_shape}"
            )

    def require_converged(self, finite: bool) -> None:
        """Raise InputError where trained parameters are not ``finite``."""
        if not finite:
            raise InputError(
                f"training diverged to NaN or infinity: {self.optimiser.describe()}; "
                "a smaller learning rate would be right"
            )

    def steps(self, count: int, rng: np.random.Generator) -> Iterator[Index | None]:
        """Yield each step's records; None means all of them."""
        if self.batches is None:
            for _ in range(self.epochs):
                yield None
        else:
            yield from self.batches.steps(count, self.epochs, rng)

    def responses(self, labels: Array) -> Array:
        """Return labels as class indices, or as numbers for a regression."""
        if self.classes is None:
            return np.asarray(labels, dtype=np.float64)
        matches = np.asarray(labels)[:, None] == np.asarray(self.classes)[None, :]
        if not matches.any(axis=1).all():
            stranger = np.asarray(labels)[~matches.any(axis=1)][0]
            raise InputError(f"label {stranger} is none of the model's classes {self.classes}")
        return np.asarray(matches.argmax(axis=1))

    def scores(self, release: Weights, x: Array) -> FloatArray:
        """Return the network's raw scores (n, outputs)."""
        import torch

        objective = self.objective()
        with torch.no_grad():
            found = objective.scores(objective.flat(release.parameters), objective.tensor(x))
        return np.asarray(found.cpu().numpy(), dtype=np.float64)

    def means(self, scores: FloatArray) -> FloatArray:
        """Return class probabilities, or the predicted responses of a regression."""
        from scipy.special import softmax

        return scores if self.classes is None else np.asarray(softmax(scores, axis=1))

    def event(self, records: int) -> dp_accounting.DpEvent:
        """A Gaussian mechanism a step, Poisson-sampled where batches are."""
        import dp_accounting

        if self.clipping is None or self.clipping.noise_multiplier == 0:
            return dp_accounting.NonPrivateDpEvent()
        one: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(self.clipping.noise_multiplier)
        steps = self.epochs
        if self.batches is not None:
            steps *= self.batches.steps_an_epoch(records)
            one = dp_accounting.PoissonSampledDpEvent(min(1.0, self.batches.size / records), one)
        return dp_accounting.SelfComposedDpEvent(one, steps)

    def describe(self) -> str:
        """Return for example ``a 784-10-10 network (elu), gradient descent …, 100 epochs``."""
        parts = [self.network.describe(), self.optimiser.describe(), f"{self.epochs} epochs"]
        if self.batches is not None:
            order = "a known order" if self.batches.known else "an order of its own"
            parts.append(f"batches of {self.batches.size} in {order}")
        if not self.initial.known:
            parts.append("from an initialisation of its own")
        if self.clipping is not None:
            parts.append(
                f"gradients clipped to {self.clipping.norm:g} with noise "
                f"{self.clipping.noise_multiplier:g}"
            )
        return ", ".join(parts)

    def _gradient(
        self,
        objective: Objective,
        theta: torch.Tensor,
        batch: tuple[torch.Tensor, torch.Tensor],
        weight: torch.Tensor | None,
        records: int,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """Return the gradient of one step, clipped and noisy where the training is."""
        if self.clipping is None:
            # A Poisson-sampled batch may be empty: its gradient is 0, not 0 / 0.
            count = max(1, len(batch[1]))
            return objective.gradient(theta, *batch, weight=weight, count=count)
        count = records if self.batches is None else min(records, self.batches.size)
        each = objective.gradients_each(theta, *batch)
        if weight is not None:
            each = each * weight[:, None]
        factor = (self.clipping.norm / each.norm(dim=1).clamp_min(1e-30)).clamp_max(1.0)
        total = (each * factor[:, None]).sum(dim=0)
        size = self.clipping.norm * self.clipping.noise_multiplier
        noise = size * rng.standard_normal(objective.size)
        noisy: torch.Tensor = total + objective.tensor(noise)
        return noisy / count
