"""Defences by what they leave of utility, and what the strongest attack did to each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exhume.studies.run import Run, shown

if TYPE_CHECKING:
    from exhume.config import Config, SettingTable


@dataclass(frozen=True)
class _Utility:
    """Accuracy on test records, and the training loss where trainings with the defence were run."""

    accuracy: float
    loss: float | None = None

    def kept(self, without: _Utility | None) -> str:
        """Return the share of the accuracy that is kept."""
        return "–" if without is None else f"{self.accuracy / without.accuracy:.0%}"


@dataclass(frozen=True)
class _Line:
    """A defended setting."""

    kept: float
    cells: tuple[str, ...]


_TITLES = (
    *("defence", "study, setting", "utility kept", "accuracy", "training loss"),
    *("strongest attack", "RMSE", "rebuilt", "at most"),
)


def defences(declared: Sequence[tuple[Run, Config]]) -> str:
    """Return the table of every defended setting whose utility was measured, most useful first."""
    lines = [line for run, config in declared for line in _lines(run, config)]
    if not lines:
        return ""
    ordered = sorted(lines, key=lambda line: (-line.kept, line.cells))
    return "\n".join(
        [
            "## Defences, by utility",
            "",
            "Every defended setting whose utility was measured. *Utility kept* is the accuracy on "
            "test records as a share of that without the defence, in the same study; *training "
            "loss* is that at the end of trainings with the defence in the loop. The strongest "
            "attack left the smallest mean error over all targets, a blind guess among them; RMSE "
            "has a 95 % interval over batches where there are several. *At most* is what a proof "
            "allows anybody.",
            "",
            f"| {' | '.join(_TITLES)} |",
            "|---" * len(_TITLES) + "|",
            *(f"| {' | '.join(line.cells)} |" for line in ordered),
        ]
    )


def _lines(run: Run, config: Config) -> list[_Line]:
    facts = {str(f["name"]): f for f in run.summary["settings"]}
    there = [table for table in config.setting if table.name in facts]
    utilities = {t.name: u for t in there if (u := _utility(facts[t.name])) is not None}
    found = []
    for table in there:
        text, utility = _defence(table, facts[table.name]), utilities.get(table.name)
        if not text or utility is None:
            continue
        base = _without(table, there, facts, utilities)
        cells = (
            text,
            f"{run.paper} {run.part}, {table.name}",
            utility.kept(base),
            f"{utility.accuracy:.0%}",
            "–" if utility.loss is None else shown(utility.loss),
            *_attacked(run, table.name),
        )
        kept = utility.accuracy / (base or _Utility(1.0)).accuracy
        found.append(_Line(kept, cells))
    return found


def _utility(facts: Mapping[str, Any]) -> _Utility | None:
    """Return what trainings with the defence ended at, or the released model's own accuracy."""
    trainings = facts.get("trainings") or ()
    if trainings:
        losses = [math.inf if t["training_loss"] is None else t["training_loss"] for t in trainings]
        accuracies = [t["accuracy"] or 0.0 for t in trainings]
        return _Utility(sum(accuracies) / len(accuracies), sum(losses) / len(losses))
    return None if facts["utility"] is None else _Utility(float(facts["utility"]))


def _without(
    table: SettingTable,
    tables: Sequence[SettingTable],
    facts: Mapping[str, Mapping[str, Any]],
    utilities: Mapping[str, _Utility],
) -> _Utility | None:
    """Return the utility of the same group's undefended setting, else of the study's only one."""
    bare = [t.name for t in tables if not _defence(t, facts[t.name]) and t.name in utilities]
    group = facts[table.name].get("group")
    own = [name for name in bare if group and facts[name].get("group") == group] or bare
    return utilities[own[0]] if len(own) == 1 else None


def _attacked(run: Run, setting: str) -> tuple[str, str, str, str]:
    """Return the strongest attack, its error, its success, and what a bound allows."""
    rows = [row for row in run.summary["rows"] if row["setting"] == setting]
    errors = {row["attack"]: e for row in rows if (e := _error(row)) is not None}
    bracket = next(b for b in run.summary["brackets"] if b["setting"] == setting)
    limit = "–" if bracket["ceiling"] is None else f"{bracket['ceiling']:.0%}"
    if not errors:
        return "–", "–", "–", limit
    best = min(errors, key=lambda attack: errors[attack])
    row = next(row for row in rows if row["attack"] == best)
    successes, trials = counted(row)
    done = f"{successes / trials:.0%}" if trials else "–"
    return best, _shown_error(run, setting, best, errors[best]), done, limit


def counted(row: Mapping[str, Any]) -> tuple[int, int]:
    """Return successes and trials; where an attack gave up is a failure, where it can't run not."""
    successes = 0 if row["success"] is None else int(row["success"]["successes"])
    return successes, int(row["trials"]) - int(row["statuses"].get("REFUSED", 0))


def _error(row: Mapping[str, Any]) -> float | None:
    """Return the root mean squared error, of the mean square where only that is stored."""
    metrics = row["metrics"]
    if metrics.get("rmse", {}).get("mean") is not None:
        return float(metrics["rmse"]["mean"])
    square = metrics.get("mse", {}).get("mean")
    return None if square is None else math.sqrt(float(square))


def _shown_error(run: Run, setting: str, attack: str, error: float) -> str:
    from exhume.studies.run import Reading

    reach = run.interval(Reading("rmse.mean", setting, attack, ended=False))
    if reach is None or not math.isfinite(reach.half):
        return shown(error)
    return f"{shown(error)} [{shown(max(0.0, reach.low))}–{shown(reach.high)}]"


def _defence(table: SettingTable, facts: Mapping[str, Any]) -> str:
    """Return the defence in a few words, "" where there is none."""
    training = table.knowledge.training
    parts = [_described(one) for one in table.release.defences]
    if not parts and facts.get("defence"):
        parts = [str(facts["defence"])]
    if training is not None and training.clipping is not None:
        noise = shown(training.clipping.noise_multiplier)
        parts.append(f"DP-GD, noise multiplier {noise}")
    return ", ".join(parts)


def _described(defence: Any) -> str:
    """Return a defence's name and its strength, such as ``pruning .9``.

    >>> from exhume.config.defences import PruningTable
    >>> _described(PruningTable(name="pruning", share=0.9))
    'pruning .9'
    """
    numbers = [
        value
        for key, value in defence
        if key != "name" and isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return " ".join(
        [str(defence.name), *(f"{value:g}".removeprefix("0") or "0" for value in numbers[:2])]
    )
