"""``exhume audit --plan`` and ``--budget``: the time and memory of an audit, before it starts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exhume.audit import Executor, Plan
    from exhume.audit.costs import Estimate
    from exhume.audit.stages.expense import Expense

Progress = Callable[[int, int], None]


def estimated(plan: Plan, folder: Path, executor: Executor, progress: Progress) -> Estimate:
    """Estimate the cost of a plan, from earlier trials in the folder or a calibration now."""
    from exhume.audit.costs import Estimate, costs_of, done_in

    done = done_in(folder)
    return Estimate(plan, costs_of(plan, done, progress), done, executor.at_once())


def within(
    plan: Plan, folder: Path, executor: Executor, budget: str, progress: Progress
) -> tuple[Plan, Estimate | None]:
    """Fit a plan to a budget; a plan that was fitted to it before is used again.

    Where attacks repeat slow trainings, the estimate shows what is expected, and the plan takes as
    many targets as begin in time.
    """
    from exhume.audit.budget import Budget, fitted, unlimited_by_guess, with_deadline
    from exhume.audit.runner import chosen_before

    wanted = Budget(budget)
    before = chosen_before(plan, folder, budget)
    if before is not None:
        return before, None
    started = time.time()
    estimate = estimated(plan, folder, executor, progress)
    estimate = replace(estimate, plan=with_deadline(estimate, wanted, started))
    chosen = fitted(estimate, wanted, spent=time.time() - started)
    return unlimited_by_guess(chosen), replace(estimate, plan=chosen)


def show_estimate(estimate: Estimate) -> None:
    """Print the expected time and memory in all, then of every setting and attack."""
    from rich.console import Console
    from rich.table import Table

    from exhume.audit.budget import spelled
    from exhume.audit.stages.attack import RunAttacks

    table = Table(box=None, padding=(0, 1))
    for heading in ("setting", "attack", "trials", "left", "per trial", "once", "expected"):
        table.add_column(heading, justify="left" if heading in ("setting", "attack") else "right")
    for expense in estimate.expenses:
        table.add_row(*_cells(estimate, expense))
    console = Console(highlight=False)
    attacks = RunAttacks().expenses(estimate.plan)
    trials, left = _trials(estimate)
    workers = _counted(estimate.workers, "worker")
    console.print(f"about {spelled(estimate.total())} with {workers}, {_memory(estimate)}")
    console.print(f"{trials:,} trials, {trials - left:,} of them done")
    console.print(_source(estimate, attacks), style="dim")
    console.print()
    console.print(table)


def print_estimate(estimate: Estimate) -> None:
    """Print the same as JSON: seconds and bytes."""
    trials, left = _trials(estimate)
    answer = {
        "seconds": estimate.total(),
        "workers": estimate.workers,
        "memory_per_worker": estimate.memory(),
        "trials": trials,
        "done": trials - left,
        "expenses": [
            {
                "setting": estimate.plan.config.setting[expense.setting].name,
                "what": expense.label(estimate.plan),
                "planned": expense.planned(estimate.plan),
                "left": expense.left(estimate),
                "seconds": expense.seconds(estimate),
            }
            for expense in estimate.expenses
        ],
    }
    typer.echo(json.dumps(answer, indent=1, ensure_ascii=False))


def _trials(estimate: Estimate) -> tuple[int, int]:
    """Return how many trials there are, and how many are left."""
    from exhume.audit.stages.attack import RunAttacks

    attacks = RunAttacks().expenses(estimate.plan)
    trials = sum(one.planned(estimate.plan) for one in attacks)
    return trials, sum(one.left(estimate) for one in attacks)


def show_left_out(plan: Plan) -> None:
    """Print which targets a budget leaves out."""
    from rich.console import Console

    late = () if plan.deadline is None else plan.deadline.settings
    lines = [
        f"{plan.config.setting[index].name}: as many of its {plan.targets(index):,} targets as fit "
        f"{plan.budget}"
        for index in late
    ]
    parts = [
        f"{table.name} {plan.planned(index):,} of {plan.targets(index):,} targets"
        for index, table in enumerate(plan.config.setting)
        if plan.planned(index) < plan.targets(index)
    ]
    lines += [f"left out to fit {plan.budget}: {'; '.join(parts)}"] if parts else []
    console = Console(highlight=False)
    for line in lines or [f"everything fits {plan.budget}"]:
        console.print(line, soft_wrap=True)


def _cells(estimate: Estimate, expense: Expense) -> tuple[str, ...]:
    from exhume.audit.budget import spelled

    plan, cost, planned = estimate.plan, expense.cost(estimate), expense.planned(estimate.plan)
    return (
        plan.config.setting[expense.setting].name,
        expense.label(plan),
        f"{planned:,}" if planned else "",
        f"{expense.left(estimate):,}" if planned else "",
        spelled(cost.each),
        spelled(cost.once) if cost.once else "",
        spelled(expense.seconds(estimate)),
    )


def _memory(estimate: Estimate) -> str:
    each, stored = estimate.memory() / 1e9, any(c.stored for c in estimate.costs.values())
    least = "at least " if stored else ""
    return f"{least}{each:.1f} GB of memory each ({each * estimate.workers:.1f} GB together)"


def _source(estimate: Estimate, attacks: Sequence[Expense]) -> str:
    # Where trainings are slow, one is timed in place of attacks.
    attacks = [one for one in attacks if one in estimate.costs]
    if not attacks:
        return "one training was timed just now, on this machine; the others are counted"
    stored = [cost for one in attacks if (cost := one.cost(estimate)).stored]
    trials = sum(cost.units for cost in stored)
    kept = f"taken from {trials:,} trials in the run folder"
    tried = "measured just now, on this machine, on the first one or two releases of each setting"
    if len(stored) == len(attacks):
        return f"times are {kept}; preparation and releases were {tried}"
    return f"times were {tried}" + (
        f"; for {len(stored)} of {len(attacks)} rows {kept}" if stored else ""
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
