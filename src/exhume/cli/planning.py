"""``exhume audit --plan`` and ``--budget``: what an audit will take, before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exhume.audit import Executor, Plan
    from exhume.audit.costs import Cell, Estimate

Progress = Callable[[int, int], None]


def estimated(plan: Plan, folder: Path, executor: Executor, progress: Progress) -> Estimate:
    """Return what a plan will cost, from earlier trials in the folder or a calibration now."""
    from exhume.audit.costs import Estimate, costs_of, done_in

    done = done_in(folder)
    costs = costs_of(plan, done, progress)
    trained = {name: len(seconds) for name, seconds in done.trained.items()}
    return Estimate(plan, costs, done.keys, executor.at_once(), trained)


def within(
    plan: Plan, folder: Path, executor: Executor, budget: str, progress: Progress
) -> tuple[Plan, Estimate | None]:
    """Return the plan as it fits a budget, the way it was fitted before if it was."""
    from exhume.audit.budget import Budget, fitted
    from exhume.audit.runner import chosen_before

    wanted = Budget(budget)
    before = chosen_before(plan, folder, budget)
    if before is not None:
        return before, None
    started = time.perf_counter()
    estimate = estimated(plan, folder, executor, progress)
    chosen = fitted(estimate, wanted, spent=time.perf_counter() - started)
    return chosen, replace(estimate, plan=chosen)


def show_estimate(estimate: Estimate) -> None:
    """Print what every setting and attack takes, and all of it together."""
    from rich.console import Console
    from rich.table import Table

    from exhume.audit.budget import spelled

    table = Table(box=None, padding=(0, 1))
    for heading in ("setting", "attack", "trials", "left", "a trial", "once", "expected"):
        table.add_column(heading, justify="left" if heading in ("setting", "attack") else "right")
    for cell in sorted(estimate.costs, key=_order):
        table.add_row(*_cells(estimate, cell))
    for index, setting in enumerate(estimate.plan.config.setting):
        if seconds := estimate.judging(index):
            table.add_row(setting.name, "(is it real?)", "", "", "", "", spelled(seconds))
    console = Console(highlight=False)
    console.print(table)
    cells = [cell for cell in estimate.costs if cell.attack is not None]
    trials, left = (sum(map(count, cells)) for count in (estimate.trials, estimate.left))
    console.print(
        f"{trials:,} trials, {trials - left:,} of them done; about {spelled(estimate.total())} "
        f"with {_counted(estimate.workers, 'worker')}, {_memory(estimate)}",
        soft_wrap=True,
    )
    console.print(_source(estimate, cells), style="dim", soft_wrap=True)


def _order(cell: Cell) -> tuple[int, int, bool]:
    return cell.setting, -1 if cell.attack is None else cell.attack, cell.training


def show_left_out(plan: Plan) -> None:
    """Print what a budget leaves out."""
    from rich.console import Console

    parts = [
        f"{table.name} {plan.planned(index):,} of {plan.targets(index):,} targets"
        for index, table in enumerate(plan.config.setting)
        if plan.planned(index) < plan.targets(index)
    ]
    text = f"left out to fit {plan.budget}: {'; '.join(parts)}" if parts else ""
    Console(highlight=False).print(text or f"everything fits {plan.budget}", soft_wrap=True)


def _cells(estimate: Estimate, cell: Cell) -> tuple[str, ...]:
    from exhume.audit.budget import spelled

    cost, plan = estimate.costs[cell], estimate.plan
    name = plan.config.setting[cell.setting].name
    expected = spelled(estimate.seconds(cell))
    counts = f"{estimate.trials(cell):,}", f"{estimate.left(cell):,}"
    if cell.training:
        return name, "(training with it)", *counts, spelled(cost.each), "", expected
    if cell.attack is None:
        return (
            name,
            "(preparation, releases)",
            "",
            "",
            spelled(cost.each),
            spelled(cost.once),
            expected,
        )
    once = "" if cost.stored else spelled(cost.once)
    return name, plan.attacks[cell.attack].name, *counts, spelled(cost.each), once, expected


def _memory(estimate: Estimate) -> str:
    each, stored = estimate.memory() / 1e9, any(c.stored for c in estimate.costs.values())
    least = "at least " if stored else ""
    return f"{least}{each:.1f} GB of memory each ({each * estimate.workers:.1f} GB together)"


def _source(estimate: Estimate, cells: Sequence[Cell]) -> str:
    stored = [cell for cell in cells if estimate.costs[cell].stored]
    trials = sum(estimate.costs[cell].trials for cell in stored)
    kept = f"taken from {trials:,} trials that are kept in the run folder"
    tried = "measured just now, on this machine, on the first one or two releases of each setting"
    if len(stored) == len(cells):
        return f"times are {kept}; preparation and releases were {tried}"
    return f"times were {tried}" + (
        f"; for {len(stored)} of {len(cells)} rows {kept}" if stored else ""
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
