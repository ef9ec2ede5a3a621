"""Fitting a plan into a time: every setting keeps the same share of its targets."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from exhume.audit.costs import Estimate
from exhume.audit.plan import Deadline, Plan, Unit
from exhume.audit.stages.counted_trainings import NetworkTrainings
from exhume.protocol.errors import InputError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_STEPS = 40


@dataclass(frozen=True)
class Budget:
    """A time limit for an audit, as requested.

    >>> Budget("1h30m").seconds
    5400.0
    """

    text: str

    def __post_init__(self) -> None:
        if not self._parts() or not 0 < self.seconds < float("inf"):
            raise InputError(f"a budget is a time such as 90s, 30m, 1h30m or 2d, got {self.text!r}")

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return sum(float(number) * _UNITS[unit] for number, unit in self._parts())

    def _parts(self) -> list[tuple[str, str]]:
        text = re.sub(r"\s+", "", self.text.lower())
        part = r"(\d+(?:\.\d+)?)([smhd])"
        return re.findall(part, text) if re.fullmatch(f"(?:{part})+", text) else []


def spelled(seconds: float) -> str:
    """Return a time in words.

    >>> spelled(0.034), spelled(75), spelled(5400), spelled(200_000)
    ('< 0.1 s', '1 min 15 s', '1 h 30 min', '2 d 7 h')
    """
    if 0 < seconds < 0.1:
        return "< 0.1 s"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    sizes = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    rest = round(seconds)
    parts: list[str] = []
    for name, size in sizes:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {name}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def fitted(estimate: Estimate, budget: Budget, *, spent: float = 0.0) -> Plan:
    """Return the plan with as many targets per setting as fit what is left of a budget.

    Every setting keeps the same share of its targets, at least one release, and whatever of it is
    done already.
    """
    available = budget.seconds - spent
    least = _limited(estimate, 0.0)
    if _seconds(estimate, least) > available:
        raise InputError(_too_small(estimate, least, budget, spent))
    low, high = 0.0, 1.0
    if _seconds(estimate, _limited(estimate, 1.0)) <= available:
        low = 1.0
    for _ in range(_STEPS if low < 1.0 else 0):
        middle = (low + high) / 2
        fits = _seconds(estimate, _limited(estimate, middle)) <= available
        low, high = (middle, high) if fits else (low, middle)
    limits = _limited(estimate, low)
    return replace(estimate.plan, limits=limits, budget=budget.text)


def with_deadline(estimate: Estimate, budget: Budget, started: float) -> Plan:
    """Return the plan with a deadline where attacks repeat slow trainings, how often nobody knows.

    ``started`` is when the budget began, by ``time.time``. No target is begun that would on average
    end further behind the budget than before it.
    """
    plan = estimate.plan
    slow = [one for one in estimate.costs if isinstance(one, NetworkTrainings)]
    costs = {
        one.setting: estimate.costs[one].each * one.per_target(plan)
        for one in slow
        if one.repeated(plan)
    }
    if not costs:
        return plan
    until = started + budget.seconds - max(costs.values()) / 2
    return replace(plan, deadline=Deadline(tuple(costs), until))


def unlimited_by_guess(plan: Plan) -> Plan:
    """Return a fitted plan with all targets of the settings that a deadline limits better."""
    if plan.deadline is None:
        return plan
    limits = [
        plan.targets(index) if index in plan.deadline.settings else plan.planned(index)
        for index in range(len(plan.config.setting))
    ]
    return replace(plan, limits=tuple(limits))


def _limited(estimate: Estimate, share: float) -> tuple[int, ...]:
    """Return the number of targets per setting for a share of them, in whole releases."""
    plan, limits = replace(estimate.plan, limits=()), []
    for index, table in enumerate(plan.config.setting):
        whole, batch = plan.targets(index), table.batch or 1
        count = int(share * whole) // batch * batch
        limits.append(min(whole, max(count, batch, _begun(estimate, index))))
    return tuple(limits)


def _begun(estimate: Estimate, index: int) -> int:
    """Return the number of first targets on which any attack has been tried."""
    if not estimate.done.keys:
        return 0
    plan = replace(estimate.plan, limits=())
    unit = Unit(index, tuple(range(plan.targets(index))))
    found = [
        trial.target + 1
        for attack in plan.attacks_on(unit)
        for trial in plan.trials(unit, attack)
        if trial.key in estimate.done.keys
    ]
    return max(found, default=0)


def _seconds(estimate: Estimate, limits: tuple[int, ...]) -> float:
    return replace(estimate, plan=replace(estimate.plan, limits=limits)).total()


def _too_small(estimate: Estimate, least: tuple[int, ...], budget: Budget, spent: float) -> str:
    smallest = replace(estimate, plan=replace(estimate.plan, limits=least))
    dearest = max(smallest.expenses, key=lambda one: one.seconds(smallest))
    what = dearest.label(estimate.plan).strip("()")
    name = estimate.plan.config.setting[dearest.setting].name
    if spent > budget.seconds:
        return f"a budget of {budget.text} is too small: its calibration took {spelled(spent)}"
    need, alone = spelled(smallest.total() + spent), dearest.alone(smallest)
    own = alone + (dearest.seconds(smallest) - alone) / smallest.workers
    return (
        f"a budget of {budget.text} is too small: one release of every setting takes about {need}, "
        f"of which {spelled(own)} go to {what} on setting {name!r}; "
        "give more time, or leave that out"
    )
