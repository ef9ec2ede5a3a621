"""The leaderboard: attacks by what was released and what they cost, defences by utility."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.runlog.summary import Row
from exhume.stats.proportions import pooled_share
from exhume.studies.catalogue import find, papers
from exhume.studies.defended import counted, defences
from exhume.studies.publish import published
from exhume.studies.reading import StudyRun, shown, worked

if TYPE_CHECKING:
    from exhume.config import Config, SettingTable

_BUDGETS = ((1.0, "up to 1 s"), (10.0, "up to 10 s"), (float("inf"), "more than 10 s"))
_ERRORS = ("mse", "rmse", "span")
"""Metrics that two attacks on one setting are compared by, the first that both have."""
_SWITCHES = (
    *("adaptive", "fit", "reweighting", "feature_matching", "deep_image_prior", "continuation"),
)
"""Options that are False if an attack is run without one of its parts."""
_INTRODUCTION = """\
Attacks by release and by cost, and defences by the utility they preserve, from the same stored \
summaries as the pages of results.

*Rebuilt* is the share of targets that were rebuilt closer than any record the adversary had (some \
studies require a smaller distance; targets on which the attack gave up count as failures), with a \
95 % interval: the wider of the intervals over settings and over targets. Settings differ in \
difficulty and few attacks ran on all of them, so this share is not a rank; *won* is. It compares \
two attacks on every setting on which both ran and at least one of them worked, by their mean \
error, and is the share of these comparisons that the attack won: where both fail, neither wins. \
An attack worked if it reports success on most targets; a blind guess has nothing to report, and \
stands for comparison after the attacks. Seconds per target are wall-clock times on one thread \
of a machine that also did other work; shadow models are trained once for all attacks and are not \
counted.

The page omits settings that study where a search starts: at the truth, which is no attack, or \
worse than by default. It omits attacks that studies run only for comparison, with a part switched \
off or without knowledge of a defence. To add your \
own attack, see [Studies](../how-to/studies.md#your-own-attack)."""


@dataclass
class _Entry:
    """What one attack did on one kind of release, over all studies."""

    counts: list[tuple[int, int]] = field(default_factory=list)
    """A setting's successes and trials."""
    seconds: float = 0.0
    errors: list[float] = field(default_factory=list)
    steps: set[int] = field(default_factory=set)
    guess: bool = False
    won: float = 0.0
    compared: int = 0

    def add(self, row: Row, steps: int | None) -> None:
        self.guess = row.baseline
        self.counts.append(counted(row))
        self.seconds += row.seconds
        square, root = (row.metrics.get(name) for name in ("mse", "rmse"))
        if square is not None:
            self.errors.append(square.median)
        elif root is not None:
            self.errors.append(root.median**2)
        if steps is not None:
            self.steps.add(steps)

    @property
    def targets(self) -> int:
        return sum(trials for _, trials in self.counts)

    @property
    def rate(self) -> float:
        return sum(successes for successes, _ in self.counts) / self.targets

    @property
    def each(self) -> float:
        return self.seconds / self.targets

    def budget(self) -> str:
        """Return its steps and its class of seconds."""
        text = next(text for limit, text in _BUDGETS if self.each <= limit)
        if not self.steps:
            return text
        low, high = min(self.steps), max(self.steps)
        steps = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        return f"{steps} steps, {text}"


def leaderboard(results: Path) -> str:
    """Return the page, in Markdown, from every paper's stored summaries."""
    runs = [run for paper in papers() for run in published(results, paper).values()]
    declared = [(run, _declared(run)) for run in runs]
    blocks = ["# Leaderboard", _INTRODUCTION, *_attacks(declared), defences(declared)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _declared(run: StudyRun) -> Config:
    part = find(run.paper, run.part)
    return part.config(part.size_of(run), seed=run.seed)


def _kind(table: SettingTable) -> str:
    from exhume.config import NetworkReleaseTable

    network = "a network" if isinstance(table.release, NetworkReleaseTable) else "a linear model"
    if isinstance(table.release, NetworkReleaseTable) and table.release.batched:
        return f"{table.release.kind.capitalize()} of {network}, no training record known"
    released = "Answers" if table.release.kind == "outputs" else "Weights"
    return f"{released} of {network}, one record unknown"


def _counted(run: StudyRun, config: Config) -> Iterator[tuple[SettingTable, list[Row]]]:
    """Yield each setting of real attacks, with the rows of complete attacks."""
    for table in config.setting:
        if table.start is not None:
            continue
        reduced = {o.attack for o in table.options if any(_off(o.values(), s) for s in _SWITCHES)}
        rows = [
            row
            for row in run.summary.rows
            if row.setting == table.name and counted(row)[1] and row.attack not in reduced
        ]
        if rows:
            yield table, rows


def _off(options: Mapping[str, Any], switch: str) -> bool:
    return options.get(switch) is False


def _attacks(declared: Sequence[tuple[StudyRun, Config]]) -> list[str]:
    found: dict[str, dict[str, _Entry]] = defaultdict(lambda: defaultdict(_Entry))
    settings: dict[str, int] = defaultdict(int)
    for run, config in declared:
        for table, rows in _counted(run, config):
            kind = _kind(table)
            settings[kind] += 1
            steps = {o.attack: o.values().get("steps") for o in table.options}
            for row in rows:
                found[kind][row.attack].add(row, steps.get(row.attack))
            _compare(rows, found[kind])
    return [f"## {k}\n\n{_table(entries, settings[k])}" for k, entries in sorted(found.items())]


def _compare(rows: Sequence[Row], entries: Mapping[str, _Entry]) -> None:
    """Count by pairs which attack has the smaller mean error; a tie is half a win for both.

    Where no attack worked, the smaller error is no merit: nobody wins.
    """
    for one, other in combinations(rows, 2):
        if not any(worked(row) and not row.baseline for row in (one, other)):
            continue
        metric = next((m for m in _ERRORS if m in one.metrics and m in other.metrics), None)
        if metric is None:
            continue
        left, right = one.metrics[metric].mean, other.metrics[metric].mean
        if math.isnan(left) or math.isnan(right):
            continue
        share = 0.5 if left == right else float(left < right)
        for row, won in ((one, share), (other, 1.0 - share)):
            entries[row.attack].won += won
            entries[row.attack].compared += 1


def _table(entries: Mapping[str, _Entry], settings: int) -> str:
    titles = (
        *("attack", "won", "rebuilt", "median squared error", "seconds per target", "budget"),
        *("settings", "targets"),
    )
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, entry in sorted(entries.items(), key=_place):
        reach = pooled_share(entry.counts)
        ran = len(entry.counts)
        cells = [
            f"*{name}*" if entry.guess else name,
            f"{entry.won / entry.compared:.0%} of {entry.compared}" if entry.compared else "–",
            f"{entry.rate:.0%} [{reach.low:.0%}–{reach.high:.0%}]",
            shown(float(np.median(entry.errors))) if entry.errors else "–",
            shown(entry.each),
            entry.budget(),
            "all" if ran == settings else f"{ran} of {settings}",
            f"{entry.targets:,}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _place(item: tuple[str, _Entry]) -> tuple[bool, float, float, str]:
    name, entry = item
    won = entry.won / entry.compared if entry.compared else -1.0
    return entry.guess, -won, -entry.rate, name
