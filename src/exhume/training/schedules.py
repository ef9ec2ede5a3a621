"""Schedules: the optimiser's settings at each step, as in ``torch.optim.lr_scheduler``.

A schedule maps (optimiser, moment of the training) to an optimiser with another learning rate. The
optimiser's own rate is the base rate; for ``OneCycle`` it is the highest.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

from exhume.protocol.errors import InputError
from exhume.training.optimisers import Optimiser

Unit: TypeAlias = Literal["step", "epoch"]
"""How often a schedule changes the rate: ``scheduler.step()`` is called once per unit."""


@dataclass(frozen=True)
class Moment:
    """A ``step`` of a training that was planned for ``steps``, ``per_epoch`` of them per epoch."""

    step: int
    steps: int
    per_epoch: int

    def now(self, unit: Unit) -> int:
        """Return the number of completed units."""
        return self.step if unit == "step" else self.step // self.per_epoch

    def planned(self, unit: Unit) -> int:
        """Return the number of units of the whole training."""
        return self.steps if unit == "step" else self.steps // self.per_epoch

    def later(self, start: int, unit: Unit) -> Moment:
        """Return the same moment for a schedule that began after ``start`` units."""
        gone = start * (1 if unit == "step" else self.per_epoch)
        return Moment(self.step - gone, self.steps - gone, self.per_epoch)


class RateSchedule(ABC):
    """The learning rate over a training."""

    @abstractmethod
    def at(self, optimiser: Optimiser, moment: Moment) -> Optimiser:
        """Return the optimiser that takes the step at ``moment``."""

    @abstractmethod
    def describe(self) -> str:
        """Return a short description for the report."""


@dataclass(frozen=True)
class StepDecay(RateSchedule):
    """The rate times ``factor`` each ``every`` units, or after each of ``after`` (MultiStepLR).

    >>> from exhume.training.optimisers import SGD
    >>> decayed = StepDecay(every=2).at(SGD(1.0), Moment(step=5, steps=9, per_epoch=1))
    >>> round(decayed.learning_rate, 12)
    0.01
    """

    every: int | None = None
    after: tuple[int, ...] = ()
    factor: float = 0.1
    per: Unit = "epoch"

    def __post_init__(self) -> None:
        if (self.every is None) == (not self.after):
            raise InputError("a step schedule needs every or after, one of the two")
        if min(self.after or (self.every or 0,)) < 1:
            raise InputError(f"every and after must be at least 1, got {self.after or self.every}")
        if not 0 < self.factor < math.inf:
            raise InputError(f"factor must be a positive number, got {self.factor}")

    def at(self, optimiser: Optimiser, moment: Moment) -> Optimiser:
        """Return the optimiser with the decayed rate."""
        now = moment.now(self.per)
        drops = sum(one <= now for one in self.after) if self.after else now // (self.every or 1)
        return optimiser.at(optimiser.learning_rate * self.factor**drops)

    def describe(self) -> str:
        """Return for example ``the rate times 0.1 every 30 epochs``."""
        when = ", ".join(map(str, self.after)) if self.after else str(self.every)
        word = "after" if self.after else "every"
        return f"the rate times {self.factor:g} {word} {when} {self.per}s"


@dataclass(frozen=True)
class CosineDecay(RateSchedule):
    """From the base rate to ``lowest`` along half a cosine (``CosineAnnealingLR``).

    ``over`` is the number of units that it takes; None is the whole training.
    """

    over: int | None = None
    lowest: float = 0.0
    per: Unit = "epoch"

    def __post_init__(self) -> None:
        if self.over is not None and self.over < 1:
            raise InputError(f"over must be at least 1, got {self.over}")
        if not 0 <= self.lowest < math.inf:
            raise InputError(f"lowest can't be negative, got {self.lowest}")

    def at(self, optimiser: Optimiser, moment: Moment) -> Optimiser:
        """Return the optimiser with the annealed rate."""
        over = self.over or max(1, moment.planned(self.per))
        share = 0.5 * (1.0 + math.cos(math.pi * moment.now(self.per) / over))
        return optimiser.at(self.lowest + (optimiser.learning_rate - self.lowest) * share)

    def describe(self) -> str:
        """Return for example ``the rate along a cosine to 0``."""
        return f"the rate along a cosine to {self.lowest:g}"


@dataclass(frozen=True)
class OneCycle(RateSchedule):
    """Up to the optimiser's rate and down again, one step at a time (``OneCycleLR``).

    Starts at rate / ``start_divisor``, rises for ``rising`` of all steps, and ends at the start
    divided by ``end_divisor``. Meanwhile the momentum (Adam: ``beta1``) falls from the first to the
    second number of ``momentum`` and rises again; None leaves it alone.
    """

    rising: float = 0.3
    start_divisor: float = 25.0
    end_divisor: float = 1e4
    momentum: tuple[float, float] | None = (0.95, 0.85)
    linear: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rising <= 1:
            raise InputError(f"rising must be in [0, 1], got {self.rising}")
        if min(self.start_divisor, self.end_divisor) <= 0:
            raise InputError("start_divisor and end_divisor must be positive numbers")
        if self.momentum is not None and not all(0 <= m < 1 for m in self.momentum):
            raise InputError(f"momentum must be two numbers in [0, 1), got {self.momentum}")

    def at(self, optimiser: Optimiser, moment: Moment) -> Optimiser:
        """Return the optimiser with the rate and the momentum of this step."""
        highest = optimiser.learning_rate
        start = highest / self.start_divisor
        turn, end = self.rising * moment.steps - 1, float(moment.steps - 1)
        if moment.step <= turn:
            share, rates, up = moment.step / turn if turn > 0 else 1.0, (start, highest), True
        else:
            share = (moment.step - turn) / (end - turn)
            rates, up = (highest, start / self.end_divisor), False
        rate = self._between(*rates, share)
        if self.momentum is None:
            return optimiser.at(rate)
        first, last = self.momentum if up else self.momentum[::-1]
        return optimiser.at(rate, self._between(first, last, share))

    def _between(self, first: float, last: float, share: float) -> float:
        if self.linear:
            return first + (last - first) * share
        return last + (first - last) / 2.0 * (1.0 + math.cos(math.pi * share))

    def describe(self) -> str:
        """Return ``the rate in one cycle``."""
        return "the rate in one cycle"


@dataclass(frozen=True)
class WarmUp(RateSchedule):
    """A line from ``start`` · rate to the rate over ``over`` units, then the schedule ``then``.

    This is ``LinearLR``, with ``SequentialLR`` for the next schedule, whose time starts after the
    warm-up.
    """

    over: int
    start: float = 1.0 / 3.0
    then: RateSchedule | None = None
    per: Unit = "epoch"

    def __post_init__(self) -> None:
        if self.over < 1:
            raise InputError(f"a warm-up must last at least 1 {self.per}, got {self.over}")
        if not 0 <= self.start <= 1:
            raise InputError(f"a warm-up starts at a share of the rate in [0, 1], got {self.start}")

    def at(self, optimiser: Optimiser, moment: Moment) -> Optimiser:
        """Return the optimiser with the rate of the line, or of what follows it."""
        now = moment.now(self.per)
        if now < self.over:
            share = self.start + (1.0 - self.start) * now / self.over
            return optimiser.at(optimiser.learning_rate * share)
        if self.then is None:
            return optimiser
        return self.then.at(optimiser, moment.later(self.over, self.per))

    def describe(self) -> str:
        """Return for example ``a warm-up of 5 epochs, then the rate along a cosine to 0``."""
        then = "" if self.then is None else f", then {self.then.describe()}"
        return f"a warm-up of {self.over} {self.per}s{then}"
