"""Running a plan into a run folder, stage by stage, from wherever it was left."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from exhume.audit.differences import difference
from exhume.audit.finished import Finished, FinishedSettings
from exhume.audit.plan import Plan
from exhume.audit.scoring import check_metrics
from exhume.audit.stages import STAGES
from exhume.audit.stages.attack import note_planned
from exhume.audit.stages.base import Phase, Progress, Steps
from exhume.protocol.errors import StoreError
from exhume.protocol.version import __version__
from exhume.runlog.outcome import canonical
from exhume.runlog.store import Store
from exhume.runlog.summary import Summary, summarise, write_summary
from exhume.runtime import Executor
from exhume.runtime.versions import versions


def run(
    plan: Plan,
    folder: Path,
    executor: Executor,
    *,
    command: str = "",
    progress: Progress | None = None,
    phase: Phase | None = None,
    finished: Finished | None = None,
) -> Summary:
    """Run what is not done yet, and summarise. Interrupted at any moment, it can be run again.

    ``progress`` is called after every step, ``finished`` with the bracket of each setting whose
    trials are all done.
    """
    check_metrics(plan.config.audit.metrics)
    with Store.create(folder) as log:
        _claim(log, plan, command)
        steps = Steps(
            sum(stage.size(plan) for stage in STAGES),
            sum(stage.done(plan, log) for stage in STAGES),
            _told(plan, log, progress, finished),
            phase,
        )
        for stage in STAGES:
            workers = stage.workers(executor)
            if workers is None:
                continue
            for job in stage.jobs(plan, log):
                job.carry_out(workers, steps, stage.doing)
            stage.finish(plan, log)
        summary = summarise(log.run())
        write_summary(summary, folder)
        return summary


def _told(
    plan: Plan, log: Store, progress: Progress | None, finished: Finished | None
) -> Progress | None:
    """Return what to call after every step, for both who want to hear of it."""
    if finished is None:
        return progress
    settings = FinishedSettings(plan, log, finished)

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total)
        settings.look()

    return tell


def chosen_before(plan: Plan, folder: Path, budget: str) -> Plan | None:
    """Return the plan as it was fitted into this very budget in an earlier call, if it was."""
    if not (folder / "records.sqlite").is_file():
        return None
    with Store.open(folder) as store:
        owner, header = store.meta("plan"), store.header()
    if owner != plan.identity or header.budget != budget:
        return None
    limits = tuple(header.limits[table.name] for table in plan.config.setting)
    return replace(plan, limits=limits, budget=budget)


def _claim(store: Store, plan: Plan, command: str) -> None:
    """Make the folder this plan's, or refuse: records of two plans must not mix."""
    owner, own = store.meta("plan"), plan.identity
    if owner not in (None, own):
        if store.keys():
            raise StoreError(
                f"{store.folder} holds another audit ({store.meta('title')}): "
                f"{difference(store.meta('contents'), plan.contents)}; choose another --out, or "
                "remove that folder"
            )
        # A configuration that failed before its first trial: its correction may start over.
        store.forget()
    if owner != own:
        names = ", ".join(table.name for table in plan.config.setting)
        store.set_meta("title", f"settings {names}, seed {plan.config.audit.seed}")
        store.set_meta("started", datetime.now(UTC).isoformat(timespec="minutes"))
        store.set_meta("files", canonical(plan.named_files))
        store.set_meta("contents", plan.contents)
        store.set_meta("versions", canonical(versions()))
        store.set_meta("exhume_version", __version__)
        store.set_meta("command", command)
        store.set_meta("plan", own)
    # A new title needs no new run.
    store.set_meta("config", canonical(plan.config.model_dump(mode="json")))
    note_planned(store, plan)
