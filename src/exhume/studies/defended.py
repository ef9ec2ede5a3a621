"""Defences by the utility they preserve, with the strongest attack on each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exhume.runlog.setting import Setting
from exhume.runlog.summary import Row
from exhume.studies.reading import StudyRun, shown

if TYPE_CHECKING:
    from exhume.config import Config, SettingTable


@dataclass(frozen=True)
class _Utility:
    """Accuracy on test records, and the training loss if trainings with the defence were run."""

    accuracy: float
    loss: float | None = None

    def kept(self, without: _Utility | None) -> str:
        """Return the share of the accuracy that is kept."""
        return "–" if without is None else f"{self.accuracy / without.accuracy:.0%}"


@dataclass(frozen=True)
class _DefendedSetting:
    """A defended setting."""

    kept: float
    cells: tuple[str, ...]


_TITLES = (
    *("defence", "study, setting", "utility kept", "accuracy", "training loss"),
    *("strongest attack", "RMSE", "rebuilt", "at most"),
)


def defences(declared: Sequence[tuple[StudyRun, Config]]) -> str:
    """Return the table of every defended setting whose utility was measured, most useful first."""
    lines = [line for run, config in declared for line in _lines(run, config)]
    if not lines:
        return ""
    ordered = sorted(lines, key=lambda line: (-line.kept, line.cells))
    return "\n".join(
        [
            "## Defences, by utility",
            "",
            "Every defended setting whose utility was measured. *Utility kept* is the accuracy "
            "on test records as a share of that without the defence, in the same study; "
            "*training loss* is the final loss of trainings with the defence in the loop. The "
            "strongest attack has the smallest mean error over all targets; a blind guess "
            "counts as an attack. RMSE has a 95 % interval over batches, if there are several. "
            "*Proven limit* is the success that no attack can exceed.",
            "",
            f"| {' | '.join(_TITLES)} |",
            "|---" * len(_TITLES) + "|",
            *(f"| {' | '.join(line.cells)} |" for line in ordered),
        ]
    )


def _lines(run: StudyRun, config: Config) -> list[_DefendedSetting]:
    settings = {one.name: one for one in run.summary.settings}
    there = [table for table in config.setting if table.name in settings]
    utilities = {t.name: u for t in there if (u := _utility(settings[t.name])) is not None}
    found = []
    for table in there:
        text, utility = _defence(table, settings[table.name]), utilities.get(table.name)
        if not text or utility is None:
            continue
        base = _without(table, there, settings, utilities)
        cells = (
            text,
            f"{run.paper} {run.part}, {table.name}",
            utility.kept(base),
            f"{utility.accuracy:.0%}",
            "–" if utility.loss is None else shown(utility.loss),
            *_attacked(run, table.name),
        )
        kept = utility.accuracy / (base or _Utility(1.0)).accuracy
        found.append(_DefendedSetting(kept, cells))
    return found


def _utility(setting: Setting) -> _Utility | None:
    """Return the result of trainings with the defence, or the released model's own accuracy."""
    trainings = setting.trainings
    if trainings:
        losses = [math.inf if t.training_loss is None else t.training_loss for t in trainings]
        accuracies = [t.accuracy or 0.0 for t in trainings]
        return _Utility(sum(accuracies) / len(accuracies), sum(losses) / len(losses))
    return None if setting.model.value is None else _Utility(setting.model.value)


def _without(
    table: SettingTable,
    tables: Sequence[SettingTable],
    settings: Mapping[str, Setting],
    utilities: Mapping[str, _Utility],
) -> _Utility | None:
    """Return the utility of the same group's undefended setting, else of the study's only one."""
    bare = [t.name for t in tables if not _defence(t, settings[t.name]) and t.name in utilities]
    group = settings[table.name].group
    own = [name for name in bare if group and settings[name].group == group] or bare
    return utilities[own[0]] if len(own) == 1 else None


def _attacked(run: StudyRun, setting: str) -> tuple[str, str, str, str]:
    """Return the strongest attack, its error, its success, and what a bound allows."""
    best = run.strongest(setting)
    bracket = next(b for b in run.summary.brackets if b.setting == setting)
    limit = "–" if bracket.ceiling is None else f"{bracket.ceiling:.0%}"
    if best is None or best.error is None:
        return "–", "–", "–", limit
    successes, trials = counted(best)
    done = f"{successes / trials:.0%}" if trials else "–"
    return best.attack, _shown_error(run, setting, best.error), done, limit


def counted(row: Row) -> tuple[int, int]:
    """Return successes and trials; giving up is a failure, a refusal does not count."""
    successes = 0 if row.success is None else row.success.successes
    return successes, row.trials - row.statuses.get("REFUSED", 0)


def _shown_error(run: StudyRun, setting: str, error: float) -> str:
    from exhume.studies.reading import StudyReading

    reach = run.interval(StudyReading("strongest", setting))
    if reach is None or not math.isfinite(reach.half):
        return shown(error)
    return f"{shown(error)} [{shown(max(0.0, reach.low))}–{shown(reach.high)}]"


def _defence(table: SettingTable, setting: Setting) -> str:
    """Return the defence in a few words, "" where there is none."""
    training = table.knowledge.training
    parts = [_described(one) for one in table.release.defences]
    if not parts and setting.defence:
        parts = [setting.defence]
    if training is not None and training.clipping is not None:
        noise = shown(training.clipping.noise_multiplier)
        parts.append(f"DP-GD, noise multiplier {noise}")
    return ", ".join(parts)


def _described(defence: Any) -> str:
    """Return a defence's name and its strength, such as ``pruning .9``.

    >>> from exhume.config import DefenceTable
    >>> _described(DefenceTable(name="pruning", share=0.9))
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
