"""A training that releases its transcript, not only its end."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from exhume.models.base import Network
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Transcript
from exhume.training.local_steps import LocalSteps
from exhume.training.model import Label
from exhume.training.network import Training, TrainingStep

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.derivatives.objective import Objective


@dataclass(frozen=True, eq=False)
class StepRules:
    """The rules of each step of a training: one row per step.

    A step sums the gradients of its records. Each is clipped to ``norms`` (steps, 1), or per
    parameter (steps, parameters); infinite without clipping. Gaussian noise of ``deviations``
    (steps,) is added to each number of the sum, which is divided by ``counts`` (steps,). The record
    in question takes part with probability ``rates`` (steps,).
    """

    norms: FloatArray
    deviations: FloatArray
    counts: FloatArray
    rates: FloatArray

    def take(self, steps: Array) -> StepRules:
        """Return the rules of some steps."""
        return StepRules(
            self.norms[steps], self.deviations[steps], self.counts[steps], self.rates[steps]
        )


class RecordedTraining(Mechanism):
    """A training whose steps are known: its loss, and the rules of its steps."""

    @abstractmethod
    def objective(self) -> Objective:
        """Return the loss that is trained on."""

    @abstractmethod
    def responses(self, labels: Array) -> Array:
        """Return labels as class indices, or as numbers for a regression."""

    @abstractmethod
    def describe(self) -> str:
        """Return a description of what is recorded, for the report."""

    @abstractmethod
    def rules(self, records: int) -> StepRules:
        """Return the rules of all steps on ``records`` records, or raise InputError."""


@dataclass(frozen=True)
class Recorded(RecordedTraining):
    """Releases the transcript of ``inner``: every step, or every ``every``-th.

    The last record of the data is the one in question. The transcript says which of the others took
    part in each step, because the adversary of a bound knows everything except that record. The
    record's own part stays secret: the accounting for Poisson sampling assumes this.
    """

    inner: Training | LocalSteps
    every: int = 1

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"every must be at least 1, got {self.every}")
        batches = self.inner.batches
        if batches is not None and batches.poisson and batches.known:
            raise InputError(
                "the steps of a Poisson-sampled record must be secret: give the batches no seed"
            )

    @property
    def wrapped(self) -> Mechanism:
        """The training that is recorded."""
        return self.inner

    def publish(self, data: Records, *, rng: np.random.Generator) -> Transcript:
        """Train on ``data`` and return the recorded steps; the last record's part is left out."""
        objective = self.objective()
        walked = list(self.inner.walk(objective, data, rng=rng))
        kept = list(enumerate(walked[:-1]))[:: self.every]
        chosen = [step.chosen for _, step in kept]
        return Transcript(
            _stacked(objective, [step.theta for _, step in kept]),
            _stacked(objective, [_gradient(step) for _, step in kept]),
            objective.named(walked[-1].theta),
            np.array([number for number, _ in kept]),
            None if self.inner.batches is None else _members(chosen, len(data) - 1),
        )

    def objective(self) -> Objective:
        """Return the loss that is trained on."""
        inner = self.inner
        return (inner if isinstance(inner, Training) else inner.client.plain()).objective()

    def responses(self, labels: Array) -> Array:
        """Return labels as class indices, or as numbers for a regression."""
        inner = self.inner
        return (inner if isinstance(inner, Training) else inner.client.plain()).responses(labels)

    def rules(self, records: int) -> StepRules:
        """Return the rules of all steps on ``records`` records."""
        inner = self.inner
        norm, noise = _clipping(inner)
        steps = _step_count(inner, records)
        if inner.batches is None:
            return _constant(steps, norm, noise, records, 1.0)
        if not isinstance(inner, Training) or not inner.batches.poisson or inner.clipping is None:
            raise InputError(
                "the share of a record in a mini-batch is known for DP-SGD with Poisson sampling"
            )
        size = min(records, inner.batches.size)
        return _constant(steps, norm, noise, size, size / records)

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the training's own event: it covers every step, and so any of them."""
        return self.inner.event(records)

    def describe(self) -> str:
        """Return for example ``every step of a 784-10-10 network (elu), …``."""
        steps = "every step" if self.every == 1 else f"every {self.every}th step"
        return f"{steps} of {self.inner.describe()}"


@dataclass(frozen=True, eq=False)
class RecordedElsewhere(RecordedTraining):
    """A recorded private training by a user's own code: it can't be repeated.

    ``history`` is the accountant's: noise multiplier, sampling rate and steps, in order.
    ``refused`` says why no guarantee holds; it is empty if one holds.
    """

    network: Network
    classes: tuple[Label, ...] | None
    step_rules: StepRules
    history: tuple[tuple[float, float, int], ...]
    framework: str = ""
    refused: str = ""

    def publish(self, data: Records, *, rng: np.random.Generator) -> Transcript:
        """Refuse: the training code is not available."""
        raise InputError("a recorded training of other code can't be run again")

    def objective(self) -> Objective:
        """Return the loss that was trained on; the program is read once."""
        return self._read

    @cached_property
    def _read(self) -> Objective:
        return Training(self.network, self.classes).objective()

    def responses(self, labels: Array) -> Array:
        """Return labels as class indices, or as numbers for a regression."""
        return Training(self.network, self.classes).responses(labels)

    def rules(self, records: int) -> StepRules:
        """Return the rules that were recorded."""
        return self.step_rules

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the accountant's event; a non-private one if the guarantee is refused."""
        import dp_accounting as dp

        if self.refused or not self.history:
            return dp.NonPrivateDpEvent()
        parts = [
            dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), steps)
            for noise, rate, steps in self.history
        ]
        return dp.ComposedDpEvent(parts)

    def describe(self) -> str:
        """Return for example ``all 90 steps of a network exported to model.pt2, by opacus``."""
        steps = len(self.step_rules.counts)
        trained = f", by {self.framework}" if self.framework else ""
        return f"all {steps:,} steps of {self.network.describe()}{trained}"


def _clipping(inner: Training | LocalSteps) -> tuple[float, float]:
    """Return the clipping norm and the noise multiplier; infinity and 0 without clipping."""
    if isinstance(inner, Training):
        if inner.joined:
            raise InputError(
                "a step must be a sum of each record's own plain loss: no label smoothing, class "
                "weights, augmentation, dropout or batch normalisation"
            )
        clipping = inner.clipping
        return (np.inf, 0.0) if clipping is None else (clipping.norm, clipping.noise_multiplier)
    found = inner.client.record_clipping
    if found is None:
        name = type(inner.client).__name__
        raise InputError(f"the steps of {name} are not sums of clipped gradients with noise")
    return found


def _step_count(inner: Training | LocalSteps, records: int) -> int:
    if isinstance(inner, Training):
        return inner.step_count(records)
    return inner.epochs * (1 if inner.batches is None else inner.batches.steps_an_epoch(records))


def _constant(steps: int, norm: float, noise: float, count: int, rate: float) -> StepRules:
    deviation = norm * noise if noise else 0.0
    columns = [np.full(steps, value, dtype=np.float64) for value in (deviation, count, rate)]
    return StepRules(np.full((steps, 1), norm, dtype=np.float64), *columns)


def _gradient(step: TrainingStep) -> torch.Tensor:
    assert step.gradient is not None
    return step.gradient


def _stacked(objective: Objective, thetas: list[torch.Tensor]) -> dict[str, Array]:
    named = [objective.named(theta) for theta in thetas]
    return {name: np.stack([one[name] for one in named]) for name in objective.shapes}


def _members(chosen: list[Array | None], records: int) -> Array:
    """Return which of the first ``records`` took part in each step."""
    members = np.zeros((len(chosen), records), dtype=bool)
    for row, index in zip(members, chosen, strict=True):
        if index is None:
            row[:] = True
        else:
            row[index[index < records]] = True
    return members
