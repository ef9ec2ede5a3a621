"""Running a plan into a run folder, from wherever it was left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import exhume
from exhume.audit.ahead import train_shadows
from exhume.audit.authenticity import judge_settings, networks_to_judge
from exhume.audit.executors import Executor
from exhume.audit.facts import measure
from exhume.audit.plan import Plan, Unit
from exhume.audit.record import canonical
from exhume.audit.scoring import check_metrics, yardstick
from exhume.audit.store import Store
from exhume.audit.summary import Summary, summarise, write_summary
from exhume.audit.trial import versions
from exhume.audit.utility import train_settings, training_tasks
from exhume.errors import StoreError

Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all: trainings, trials, networks to judge by."""


def run(
    plan: Plan,
    folder: Path,
    executor: Executor,
    *,
    command: str = "",
    progress: Progress | None = None,
) -> Summary:
    """Run what is not done yet, and summarise. Interrupted at any moment, it can be run again."""
    tell = progress or (lambda done, total: None)
    check_metrics(plan.config.audit.metrics)
    with Store.create(folder) as store:
        _claim(store, plan, command)
        units = plan.units()
        total = sum(len(plan.attacks_on(unit)) * len(unit.targets) for unit in units)
        store.set_meta("expected_trials", str(total))
        planned = [plan.planned(index) for index in range(len(plan.config.setting))]
        store.set_meta("planned", canonical({"budget": plan.budget, "targets": planned}))
        trainings = len(training_tasks(plan))
        everything = trainings + total + networks_to_judge(plan)
        tell(len(store.keys()), everything)
        _prepare(store, plan)
        done = frozenset(store.keys())
        train_settings(plan, store, executor, lambda count: tell(len(done) + count, everything))
        todo = [unit for unit in units if not _finished(plan, unit, done)]
        train_shadows(plan, todo, done, executor)
        for _, batches in executor.run(plan, todo, done):
            for batch in batches:
                store.save_arrays(batch.artefact, batch.arrays)
                store.add(batch.records, versions())
            tell(trainings + len(store.keys()), everything)
        before = trainings + total
        judge_settings(plan, store, executor, lambda count: tell(before + count, everything))
        summary = summarise(store)
        write_summary(summary, folder)
        return summary


def chosen_before(plan: Plan, folder: Path, budget: str) -> Plan | None:
    """Return the plan as it was fitted into this very budget in an earlier call, if it was."""
    if not (folder / "records.sqlite").is_file():
        return None
    with Store.open(folder) as store:
        owner, planned = store.meta("plan"), json.loads(store.meta("planned") or "{}")
    if owner != plan.identity or planned.get("budget") != budget:
        return None
    return replace(plan, limits=tuple(planned["targets"]), budget=budget)


def _claim(store: Store, plan: Plan, command: str) -> None:
    """Make the folder this plan's, or refuse: records of two plans must not mix."""
    owner, own = store.meta("plan"), plan.identity
    if owner not in (None, own):
        if store.keys():
            raise StoreError(
                f"{store.folder} holds another audit ({store.meta('title')}); choose another "
                "--out, or remove that folder"
            )
        # A configuration that failed before its first trial: its correction may start over.
        store.forget()
    if owner != own:
        names = ", ".join(table.name for table in plan.config.setting)
        store.set_meta("title", f"settings {names}, seed {plan.config.audit.seed}")
        store.set_meta("config", canonical(plan.config.model_dump(mode="json")))
        store.set_meta("versions", canonical(versions()))
        store.set_meta("exhume_version", exhume.__version__)
        store.set_meta("command", command)
        store.set_meta("plan", own)


def _prepare(store: Store, plan: Plan) -> None:
    """Measure every setting, and keep the targets and their nearest records for the report."""
    known = store.facts()
    for index, table in enumerate(plan.config.setting):
        if table.name in known:
            continue
        facts = measure(plan, index)
        setting, oracle = plan.setting(index), yardstick(plan, index).oracle
        if setting.targets is not None and oracle is not None:
            arrays = {
                "targets": setting.targets.x,
                "nearest": setting.pool[oracle.nearest_index],
                "nearest_distance": oracle.nearest_distance,
            }
            store.save_arrays(f"{index:03d}-truth", arrays)
        store.add_facts(table.name, {**facts.plain(), "truth": f"{index:03d}-truth"})


def _finished(plan: Plan, unit: Unit, done: frozenset[str]) -> bool:
    return plan.keys(unit) <= done
