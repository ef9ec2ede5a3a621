"""Training of a neural network: algorithm A of Balle et al. 2022 and its variations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Literal

import numpy as np

from exhume.models.base import Network
from exhume.models.initialise import Initialisation
from exhume.models.traits import Traits, traits_of
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.batches import Batches, Index
from exhume.training.model import Label, Model
from exhume.training.optimisers import SGD, Optimiser
from exhume.training.refinements import described_refinements, require_refinements
from exhume.training.schedules import RateSchedule

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.derivatives.objective import Objective
    from exhume.training.augmentation import Augmentation
    from exhume.training.loop import TrainingState
    from exhume.training.tape import Tape


@dataclass(frozen=True)
class DPClipping:
    """DP-GD: clips each record's gradient to ``norm``, adds Gaussian noise of norm · multiplier."""

    norm: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        if not 0 < self.norm < float("inf"):
            raise InputError(f"the clipping norm must be a positive number, got {self.norm}")
        if not 0 <= self.noise_multiplier < float("inf"):
            raise InputError(f"noise_multiplier can't be negative, got {self.noise_multiplier}")


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """Parameters θ (P,), the optimiser's input gradient (P,) there, and the records of the step.

    ``chosen`` are records by number, None for all. ``running`` (S,) are the running statistics of
    batch normalisation. After the last step there is no gradient.
    """

    theta: torch.Tensor
    gradient: torch.Tensor | None = None
    chosen: Index | None = None
    running: torch.Tensor | None = None


@dataclass(frozen=True)
class Training(Model):
    """Train ``network`` from ``initial`` on the mean loss of each batch; release its weights.

    ``classes`` lists the labels in the order of the outputs (cross-entropy); None is a regression
    with the squared error. ``batches=None`` is full-batch descent, which is deterministic. A mean
    is over the number of records in the batch or, with ``clipping``, over the expected number,
    which the accounting takes as public. ``class_weights`` and ``label_smoothing`` are those of
    ``torch.nn.CrossEntropyLoss``. ``gradient_norm`` limits the length of the mean gradient.
    ``stop_after`` ends the training after that many steps, which is early stopping at a known step;
    schedules are those of all epochs. ``draw_seed`` seeds PyTorch's stream before the first step,
    from which dropout and augmentation draw; None is a secret stream.
    """

    network: Network
    classes: tuple[Label, ...] | None
    optimiser: Optimiser = field(default_factory=lambda: SGD(0.2, 0.9))
    epochs: int = 100
    batches: Batches | None = None
    initial: Initialisation = field(default_factory=Initialisation)
    clipping: DPClipping | None = None
    precision: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    schedule: RateSchedule | None = None
    gradient_norm: float | None = None
    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None
    stop_after: int | None = None
    augmentation: Augmentation | None = None
    draw_seed: int | None = None

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
        require_refinements(self)

    @cached_property
    def traits(self) -> Traits:
        """The parts of a training step other than the parameters."""
        return traits_of(self.network)

    @property
    def draws(self) -> bool:
        """Whether steps draw random numbers: dropout, augmentation."""
        return self.augmentation is not None or self.traits.draws

    @property
    def draws_known(self) -> bool:
        """Whether everybody who knows the training knows those numbers, or there are none."""
        return self.draw_seed is not None or not self.draws

    @property
    def joined(self) -> bool:
        """Whether a batch's loss is more than the mean of its records' own plain losses."""
        weighted = self.class_weights is not None or self.label_smoothing > 0
        return weighted or self.augmentation is not None or not self.traits.plain

    @property
    def deterministic(self) -> bool:
        """Whether everybody who knows the training can repeat it exactly on the same data."""
        noisy = self.clipping is not None and self.clipping.noise_multiplier > 0
        ordered = self.batches is None or self.batches.known
        return self.initial.known and ordered and not noisy and self.draws_known

    @property
    def refinement(self) -> str | None:
        """Return the first part that plain steps on a mean loss do not have, or None."""
        own = self.optimiser
        found = {
            "a schedule": self.schedule is not None,
            "Nesterov momentum": isinstance(own, SGD) and own.nesterov,
            "decoupled weight decay": isinstance(own, SGD) and own.decoupled,
            "a limit on the gradient's norm": self.gradient_norm is not None,
            "label smoothing": self.label_smoothing > 0,
            "class weights": self.class_weights is not None,
            "augmentation": self.augmentation is not None,
        }
        for name, has_it in found.items():
            if has_it:
                return name
        if self.traits.draws:
            return "dropout"
        return "batch normalisation" if self.traits.normalisations else None

    def publish(self, data: Records, *, rng: np.random.Generator) -> Weights:
        """Train on ``data`` by a plain PyTorch loop, and release parameters and statistics."""
        objective = self.objective()
        *_, end = self.walk(objective, data, rng=rng)
        assert end.running is not None
        return Weights(objective.named(end.theta), objective.named_running(end.running))

    def objective(self, precision: str | None = None) -> Objective:
        """Return the training loss at a flat vector of parameters."""
        import torch

        from exhume.derivatives.objective import Loss, Objective

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
        """Return the trained parameters θ (P,): the slow reference for faster engines.

        ``watch`` is called with θ before every step. A diverging training raises InputError.
        """
        for step in self.walk(objective, data, rng=rng):
            if watch is not None and step.gradient is not None:
                watch(step.theta)
        return step.theta

    def walk(
        self, objective: Objective, data: Records, *, rng: np.random.Generator
    ) -> Iterator[TrainingStep]:
        """Yield every step before it is taken, and at the end the final state."""
        import torch

        from exhume.training.loop import BatchLoss, StepRule

        self.require_records(data)
        if self.clipping is not None and not self.traits.plain:
            raise InputError(
                "clipping needs a gradient of each record alone: no dropout, no batch normalisation"
            )
        x, y = objective.tensor(data.x), objective.responses(self.responses(data.labels))
        weight = None if data.weight is None else objective.tensor(data.weight)
        rule = StepRule(self, objective, len(data))
        place = rule.start(objective.flat(self.initial.draw(self.network, rng)))
        loss = BatchLoss(self, objective, self.tape(rng))
        for step, chosen in enumerate(self.steps(len(data), rng)):
            part = slice(None) if chosen is None else torch.as_tensor(chosen, device=x.device)
            own = None if weight is None else weight[part]
            batch, seen = (x[part], y[part]), place.running
            if self.clipping is None:
                gradient, seen = loss.gradient(step, place.theta, batch, own)
            else:
                gradient = self._private_gradient(objective, place, batch, own, len(data), rng)
            yield TrainingStep(place.theta, gradient, chosen, place.running)
            place = rule(step, place, gradient, seen)
        self.require_converged(bool(torch.isfinite(place.theta).all()))
        yield TrainingStep(place.theta, running=place.running)

    def tape(self, rng: np.random.Generator) -> Tape | None:
        """Return the stream that steps draw from; ``rng`` seeds it only if it is secret."""
        if not self.draws:
            return None
        if self.device != "cpu":
            raise InputError(
                f"dropout and augmentation can be repeated on the CPU alone, not on {self.device}"
            )
        from exhume.training.tape import Tape

        return Tape(int(rng.integers(2**62)) if self.draw_seed is None else self.draw_seed)

    def require_records(self, data: Records) -> None:
        """Raise InputError if there are no records, or if their shape is not the network's."""
        self.require_shape(data.x)
        if len(data) == 0:
            raise InputError("there are no records to train on; at least 1 is needed")

    def require_shape(self, x: Array) -> None:
        """Raise InputError if records ``x`` (n, *record shape) have another shape.

        A network that flattens its input would accept them nevertheless.
        """
        if x.shape[1:] != self.network.record_shape:
            raise InputError(
                f"the records have shape {x.shape[1:]}, "
                f"the network takes {self.network.record_shape}"
            )

    def require_converged(self, finite: bool) -> None:
        """Raise InputError if trained parameters are not ``finite``."""
        if not finite:
            raise InputError(
                f"training diverged to NaN or infinity: {self.optimiser.describe()}; "
                "use a smaller learning rate"
            )

    def steps(self, count: int, rng: np.random.Generator) -> Iterator[Index | None]:
        """Yield each step's records; None means all of them."""
        yield from islice(self._planned(count, rng), self.stop_after)

    def _planned(self, count: int, rng: np.random.Generator) -> Iterator[Index | None]:
        if self.batches is None:
            for _ in range(self.epochs):
                yield None
        else:
            yield from self.batches.steps(count, self.begun_epochs(count), rng)

    def begun_epochs(self, count: int) -> int:
        """Return the number of epochs that are begun on ``count`` records."""
        return -(-self.step_count(count) // self.steps_per_epoch(count))

    def steps_per_epoch(self, count: int) -> int:
        """Return the number of steps per epoch over ``count`` records."""
        return 1 if self.batches is None else self.batches.steps_an_epoch(count)

    def step_count(self, count: int) -> int:
        """Return the number of steps of the whole training on ``count`` records."""
        planned = self.epochs * self.steps_per_epoch(count)
        return planned if self.stop_after is None else min(planned, self.stop_after)

    def scores(self, release: Weights, x: Array) -> FloatArray:
        """Return the network's raw scores (n, outputs).

        Normalisation uses the running statistics if they are released, otherwise those of ``x``.
        """
        import torch

        objective = self.objective()
        theta, records = objective.flat(release.parameters), objective.tensor(x)
        with torch.no_grad():
            if objective.running and release.buffers:
                found = objective.scores_in_use(
                    theta, objective.running_of(release.buffers), records
                )
            else:
                found = objective.scores(theta, records)
        return np.asarray(found.cpu().numpy(), dtype=np.float64)

    def means(self, scores: FloatArray) -> FloatArray:
        """Return class probabilities, or the predicted responses of a regression."""
        from scipy.special import softmax

        return scores if self.classes is None else np.asarray(softmax(scores, axis=1))

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return one Gaussian mechanism per step, Poisson-sampled if batches are drawn in secret.

        An adversary that knows who took part in which step gains nothing from the sampling.
        """
        import dp_accounting

        if self.clipping is None or self.clipping.noise_multiplier == 0:
            return dp_accounting.NonPrivateDpEvent()
        one: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(self.clipping.noise_multiplier)
        steps = self.step_count(records)
        if self.batches is not None and not self.batches.known:
            one = dp_accounting.PoissonSampledDpEvent(min(1.0, self.batches.size / records), one)
        return dp_accounting.SelfComposedDpEvent(one, steps)

    def describe(self) -> str:
        """Return for example ``a 784-10-10 network (elu), gradient descent …, 100 epochs``."""
        parts = [self.network.describe(), self.optimiser.describe(), f"{self.epochs} epochs"]
        if self.batches is not None:
            order = "a known order" if self.batches.known else "a secret order"
            parts.append(f"batches of {self.batches.size} in {order}")
        if not self.initial.known:
            parts.append("from a secret initialisation")
        if self.clipping is not None:
            parts.append(
                f"gradients clipped to {self.clipping.norm:g} with noise "
                f"{self.clipping.noise_multiplier:g}"
            )
        return ", ".join(parts + described_refinements(self))

    def _private_gradient(
        self,
        objective: Objective,
        place: TrainingState,
        batch: tuple[torch.Tensor, torch.Tensor],
        weight: torch.Tensor | None,
        records: int,
        rng: np.random.Generator,
    ) -> torch.Tensor:
        """Return the gradient of one step with every record's own clipped, and the noise."""
        from exhume.derivatives.record_gradients import record_gradients

        assert self.clipping is not None
        count = records if self.batches is None else min(records, self.batches.size)
        each = record_gradients(objective, place.theta, *batch)
        total = each.weighted_sum(each.shares(self.clipping.norm, weight))
        size = self.clipping.norm * self.clipping.noise_multiplier
        noise = size * rng.standard_normal(objective.size)
        noisy: torch.Tensor = total + objective.tensor(noise)
        return noisy / count
