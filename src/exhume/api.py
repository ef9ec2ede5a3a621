"""Audits from Python: of a training loop, of any release, and a run folder opened again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from exhume.protocol.errors import InputError
from exhume.protocol.records import Records

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from exhume.audit import Plan, Summary
    from exhume.protocol.knowledge import Knowledge
    from exhume.protocol.release import Release
    from exhume.runlog.run import Run

Pair = tuple["ArrayLike", "ArrayLike"]


@dataclass(frozen=True)
class AuditedRun:
    """A run folder: its log, its summary, its report."""

    folder: Path

    @property
    def report(self) -> Path:
        """The report's page."""
        return self.folder / "report.html"

    @cached_property
    def log(self) -> Run:
        """Everything that the run wrote, without its arrays."""
        from exhume.runlog.store import Store

        with Store.open(self.folder) as store:
            return store.run()

    @cached_property
    def summary(self) -> Summary:
        """Rates, intervals and the bracket of every setting."""
        from exhume.runlog.summary import summarise

        return summarise(self.log)

    def trials(self) -> Any:
        """Return one row per trial, as a data frame of pandas or polars, whichever there is."""
        return _frame([_row(outcome) for outcome in self.log.outcomes])

    def __str__(self) -> str:
        """Return each setting's rate and which attacks it rests on, and where the report is."""
        from exhume.runlog.coverage import coverage

        lines = []
        rows = {one.name: one.data.rows for one in self.summary.settings}
        for one in self.summary.brackets:
            reached = one.reached
            rate = "no attack gave a rate"
            if reached is not None:
                rate = (
                    f"{one.attack} rebuilt {reached.rate:.0%} of {reached.trials} targets "
                    f"[{reached.low:.0%}–{reached.high:.0%}]"
                )
            blind = "" if one.blind is None else f", a blind guess {one.blind.rate:.0%}"
            lines.append(f"{one.setting}: {rate}{blind}")
            lines += coverage([r for r in self.summary.rows if r.setting == one.setting]).brief()
            lines += [rows[one.setting]] if rows.get(one.setting) else []
        return "\n".join([*lines, f"report: {self.report}"])


def audit_training(
    train: Callable[..., object],
    records: Records | Pair,
    *,
    out: str | Path = "exhume-run",
    targets: int = 20,
    fixed_set: int | None = None,
    shadow_targets: int | None = None,
    value_range: tuple[float, float] | None = None,
    release: Literal["weights", "outputs"] = "weights",
    attacks: Sequence[str] | None = None,
    knows_seed: bool = False,
    labels: bool = False,
    attributes: Sequence[int] = (),
    membership: int = 0,
    membership_test: str | None = None,
    membership_models: int | None = None,
    seed: int = 0,
    workers: int = 1,
    quiet: bool = False,
) -> AuditedRun:
    """Audit a training loop, ``train(x, y, *, seed)``, that returns a torch module or a state dict.

    ``records`` are dealt out: ``fixed_set`` to the model and the adversary, ``shadow_targets`` to
    the adversary, ``targets`` to be rebuilt, one per model; the rest measures accuracy. The options
    are those of the TOML file (``docs/how-to/own-training.md``). With more than one of ``workers``
    the loop must be importable, and a script needs ``if __name__ == "__main__":``. The folder
    ``out`` has the run; the same call resumes it.
    """
    from exhume.audit.in_python import training_plan
    from exhume.models.own_code import code_of

    code = code_of(train)
    if workers > 1 and not code.importable:
        raise InputError(
            f"workers = {workers}: other processes cannot import {code.source}; put the loop into "
            "a module of its own, or leave workers out"
        )
    data = {"fixed_set": fixed_set, "shadow_targets": shadow_targets}
    audit = {
        "targets": targets,
        "seed": seed,
        "attacks": None if attacks is None else list(attacks),
        "membership": membership,
        "membership_test": membership_test,
        "membership_models": membership_models,
    }
    known = {"seed": knows_seed, "labels": labels, "attributes": list(attributes)}
    tables = {
        "data": _given(data),
        "release": {"kind": release},
        "knowledge": _given(known),
        "audit": _given(audit),
    }
    plan = training_plan(code, _records(records), value_range, tables)
    return audited(plan, Path(out), workers, quiet)


def audit_release(
    release: Release,
    knowledge: Knowledge,
    *,
    truth: Records | Pair | None = None,
    records: int | None = None,
    attacks: Sequence[str] | None = None,
    out: str | Path = "exhume-run",
    seed: int = 0,
    quiet: bool = False,
) -> AuditedRun:
    """Audit one release, for an adversary with this ``knowledge``: weights, a gradient, answers.

    ``truth`` are the records that it is about: without them attacks run, but their errors are not
    known. ``records`` is how many a model was trained on where the adversary has no fixed set.
    """
    from exhume.audit.in_python import release_plan

    plan = release_plan(
        release,
        knowledge,
        truth=None if truth is None else _records(truth),
        records=records,
        attacks=attacks,
        seed=seed,
    )
    return audited(plan, Path(out), 1, quiet)


def open_run(folder: str | Path) -> AuditedRun:
    """Open the folder of a run, finished or not."""
    found = AuditedRun(Path(folder))
    _ = found.log
    return found


def audited(plan: Plan, folder: Path, workers: int, quiet: bool) -> AuditedRun:
    """Run a plan into a folder, render its report and open it."""
    from exhume.audit import Processes, Serial, run
    from exhume.cli.running import progress_bar
    from exhume.report import render

    executor = Serial() if workers <= 1 else Processes(workers)
    with progress_bar(quiet) as tell:
        summary = run(
            plan, folder, executor, command="from Python", progress=tell, phase=tell.phase
        )
    render(folder, summary)
    return AuditedRun(folder)


def _records(given: Records | Pair) -> Records:
    import numpy as np

    if isinstance(given, Records):
        return given
    x, y = (np.asarray(part) for part in given)
    return Records(x, y)


def _given(table: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not said."""
    return {key: value for key, value in table.items() if value not in (None, [], False)}


def _row(outcome: Any) -> dict[str, Any]:
    trial = outcome.trial
    return {
        "setting": trial.setting,
        "attack": trial.attack,
        "target": trial.target,
        "blind": outcome.baseline,
        "status": outcome.status,
        "ran": outcome.ran,
        "success": outcome.success,
        "distance": outcome.distance,
        "threshold": outcome.threshold,
        "confidence": outcome.confidence,
        "error_estimate": outcome.error_estimate,
        "label_correct": outcome.label_correct,
        "seconds": outcome.seconds,
        "message": outcome.message,
        **{f"score_{name}": value for name, value in outcome.scores.items()},
    }


def _frame(rows: list[dict[str, Any]]) -> Any:
    from importlib import import_module

    for library in ("pandas", "polars"):
        try:
            frames = import_module(library)
        except ImportError:
            continue
        # Polars reads types off the first hundred rows; attacks that did not run have no numbers.
        whole = {"infer_schema_length": None} if library == "polars" else {}
        return frames.DataFrame(rows, **whole)
    raise InputError("a data frame needs pandas or polars: pip install pandas")
