"""What trainings cost that take one model at a time: one of them is timed, the others are counted.

Trying attacks would train many models. Everything else that an audit does on such a setting is
small beside them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from exhume.audit.loops import loop_of
from exhume.audit.plan import Plan, Unit
from exhume.audit.stages.attack import units_left
from exhume.audit.stages.expense import (
    Cost,
    FinishedWork,
    TriedExpense,
    peak_memory,
    seconds_of,
    start_seconds,
)
from exhume.audit.stages.measure import UTILITY_RELEASES
from exhume.config import NetworkReleaseTable
from exhume.training import Training
from exhume.training.answers import trained_model

if TYPE_CHECKING:
    from exhume.audit.costs import Estimate

_STARTS = 4
"""How often workers start: for released models, shadow models, attacks; and the measuring."""
_TEST_MODELS = 64
"""Shadow models per candidate that the membership test which is tried last trains unasked."""
_SLOW_SECONDS = 1.0
"""A training that is faster is not counted: attacks are tried."""
_FEW, _MORE = 2, 12
"""Steps of a training: the difference of their times is the time of a step."""


class CountedTrainings(TriedExpense):
    """The trainings of one setting."""

    def label(self, plan: Plan) -> str:
        """Return what they are."""
        return "(trainings)"

    def planned(self, plan: Plan) -> int:
        """Return how many there are."""
        targets = plan.planned(self.setting) * self.per_target(plan)
        return targets + self.checks(plan) + self.shadows(plan) + self.games(plan)

    def left(self, estimate: Estimate) -> int:
        """Return all of them until every trial is done."""
        units = units_left(estimate.plan, estimate.done.keys)
        own = any(unit.setting == self.setting for unit in units)
        return self.planned(estimate.plan) if own else 0

    def stored(self, plan: Plan, done: FinishedWork) -> Cost | None:
        """Return nothing: no run says how long one training took."""
        return None

    def alone(self, estimate: Estimate) -> float:
        """Return the time of the membership games, which one process plays."""
        if not self.left(estimate):
            return 0.0
        cost = self.cost(estimate)
        return cost.once + self.games(estimate.plan) * cost.each

    @abstractmethod
    def checks(self, plan: Plan) -> int:
        """Return how many there are beside those of targets, shadow models and games."""

    @abstractmethod
    def per_target(self, plan: Plan) -> int:
        """Return how many trainings one target takes."""

    @abstractmethod
    def games(self, plan: Plan) -> int:
        """Return how many trainings the membership games take."""

    def shadows(self, plan: Plan) -> int:
        """Return the most shadow models that an attack asks for: attacks share them."""
        from exhume.shadows import OrdersShadows

        attacks = plan.attacks_on(Unit(self.setting, (0,)))
        asked = [getattr(one, "shadows", 0) for one in attacks if isinstance(one, OrdersShadows)]
        found = plan.setting(self.setting).shadow_targets
        return min(max(asked, default=0), 0 if found is None else len(found))

    def _shadow_games(self, plan: Plan) -> int:
        """Return the trainings of games that are decided by shadow models."""
        audit = plan.config.audit
        pairs = min(audit.membership_pairs, plan.targets(self.setting) // 2)
        return audit.membership + 2 * pairs * (audit.membership_models or _TEST_MODELS)


class LoopTrainings(CountedTrainings):
    """Trainings by a loop of the user's own."""

    def label(self, plan: Plan) -> str:
        """Return what they are."""
        return "(trainings of your loop)"

    def tried(self, plan: Plan) -> Cost:
        """Train once; what this process took to start, workers take in every stage."""
        import torch

        setting = plan.setting(self.setting)
        loop = loop_of(setting)
        assert loop is not None
        # The first optimiser of a process takes seconds to import what it needs.
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        once = _STARTS * start_seconds()
        each = seconds_of(lambda: loop.trained(setting.fixed_set, 0))
        return Cost(once, each, 1, peak_memory())

    def checks(self, plan: Plan) -> int:
        """Return three: two with one seed, and one that shows what the loop returns."""
        return 3

    def per_target(self, plan: Plan) -> int:
        """Return one: its own."""
        return 1

    def games(self, plan: Plan) -> int:
        """Return how many trainings the membership games take."""
        return self._shadow_games(plan) if plan.config.audit.membership else 0


class NetworkTrainings(CountedTrainings):
    """Trainings of a network by a description, if they are slow and not done many at a time."""

    def tried(self, plan: Plan) -> Cost:
        """Train a few steps and a few more: the difference is the time of a step."""
        once = _STARTS * start_seconds()
        setting, training = plan.setting(self.setting), self.training(plan)
        assert training is not None
        steps = training.step_count(setting.records)
        few, more = (min(count, steps) for count in (_FEW, _MORE))
        data = setting.fixed_set

        def taken(count: int) -> float:
            short = replace(training, stop_after=count)
            return seconds_of(lambda: short.publish(data, rng=np.random.default_rng(0)))

        first, second = taken(few), taken(more)
        step = max(0.0, second - first) / max(1, more - few)
        return Cost(once, second + (steps - more) * step, 1, peak_memory())

    def alone(self, estimate: Estimate) -> float:
        """Return the time of what one process does: games, and the first few models."""
        cost = self.cost(estimate)
        return super().alone(estimate) + (
            self.checks(estimate.plan) * cost.each if self.left(estimate) else 0.0
        )

    def training(self, plan: Plan) -> Training | None:
        """Return the training, where the audit runs it, one model at a time."""
        from exhume.training.simulator import one_at_a_time

        release = plan.config.setting[self.setting].release
        if not isinstance(release, NetworkReleaseTable) or release.batched or release.file:
            return None
        if release.kind == "transcript":
            return None
        model = trained_model(plan.setting(self.setting).mechanism)
        return model if isinstance(model, Training) and one_at_a_time(model) else None

    def checks(self, plan: Plan) -> int:
        """Return the models whose accuracy is measured, and one that shadow models are like."""
        return min(UTILITY_RELEASES, plan.targets(self.setting)) + 1

    def per_target(self, plan: Plan) -> int:
        """Return its own training, and those that an attack repeats to invert it."""
        training = self.training(plan)
        assert training is not None
        attacks = plan.attacks_on(Unit(self.setting, (0,)))
        return 1 + sum(one.trainings for one in attacks if training.deterministic)

    def repeated(self, plan: Plan) -> bool:
        """Whether an attack repeats the training: how often, each target decides."""
        return self.per_target(plan) > 1

    def games(self, plan: Plan) -> int:
        """Return the trainings of the membership games; a repeatable one is run per candidate."""
        training, audit = self.training(plan), plan.config.audit
        assert training is not None
        if not audit.membership:
            return 0
        return 3 * audit.membership if training.deterministic else self._shadow_games(plan)

    def longest(self, estimate: Estimate) -> float:
        """Return what the busiest worker does: shadow models and targets come in chunks."""
        from exhume.shadows.maker import CHUNK as SHADOWS

        plan = estimate.plan
        if not self.left(estimate):
            return 0.0
        chunk = plan.chunk(self.setting)
        whole = ((SHADOWS, self.shadows(plan)), (chunk, plan.planned(self.setting)))
        turns = [min(n, c * math.ceil(math.ceil(n / c) / estimate.workers)) for c, n in whole]
        return self.cost(estimate).each * (turns[0] + turns[1] * self.per_target(plan))


def slow_trainings(plan: Plan) -> dict[NetworkTrainings, Cost]:
    """Return the settings whose models take long and are trained one at a time."""
    every = (NetworkTrainings(index) for index in range(len(plan.config.setting)))
    found = {one: one.tried(plan) for one in every if one.training(plan) is not None}
    return {one: cost for one, cost in found.items() if cost.each > _SLOW_SECONDS}


def by_a_loop(plan: Plan, index: int) -> bool:
    """Tell whether a setting's models are trained by a loop of the user's own."""
    release = plan.config.setting[index].release
    return isinstance(release, NetworkReleaseTable) and release.training is not None
