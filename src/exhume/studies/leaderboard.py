"""The leaderboard: attacks by what was released and what they cost, defences by utility."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.studies.base import Scale
from exhume.studies.catalogue import find, papers
from exhume.studies.defended import counted, defences
from exhume.studies.intervals import Interval
from exhume.studies.publish import published
from exhume.studies.run import Run, shown

if TYPE_CHECKING:
    from exhume.config import Config, SettingTable

_BUDGETS = ((1.0, "up to 1 s"), (10.0, "up to 10 s"), (float("inf"), "more than 10 s"))
_ERRORS = ("mse", "rmse", "span")
"""Metrics that two attacks on one setting are compared by, the first that both have."""
_SWITCHES = (
    *("adaptive", "fit", "reweighting", "feature_matching", "deep_image_prior", "continuation"),
)
"""Options that are False where an attack is run without a part of it."""
_INTRODUCTION = """\
Attacks by what was released and by what they cost, and defences by what they leave of utility, \
from the same stored summaries as the pages of results.

*Rebuilt* is the share of targets that came out closer than any record the adversary had (nearer \
still where a study says so; none of those that an attack gave up on), with a 95 % interval: the \
wider one of that over settings and that over targets. Settings differ in difficulty and few \
attacks saw all of them, so a share is not a rank: *won* is. It compares two attacks on every \
setting that both of them ran on, by their mean error, and is the share of these comparisons that \
the attack won. Seconds are by the clock, of one thread of a machine that was doing other work \
too, a target; shadow models are trained once for all attacks, and not counted.

Left out are searches that were begun at the truth, which are no attacks, and attacks with a part \
of them switched off or told to ignore a defence, which studies run for comparison. How to enter \
an attack of your own: [Studies](../studies.md#an-attack-of-your-own)."""


@dataclass
class _Entry:
    """What one attack did on one kind of release, over all studies."""

    counts: list[tuple[int, int]] = field(default_factory=list)
    """A setting's successes and trials."""
    seconds: float = 0.0
    errors: list[float] = field(default_factory=list)
    steps: set[int] = field(default_factory=set)
    won: float = 0.0
    compared: int = 0

    def add(self, row: Mapping[str, Any], steps: int | None) -> None:
        self.counts.append(counted(row))
        self.seconds += float(row["seconds"])
        metric = row["metrics"].get("mse") or row["metrics"].get("rmse")
        if metric is not None:
            squared = "mse" in row["metrics"]
            self.errors.append(metric["median"] if squared else metric["median"] ** 2)
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


def share_interval(counts: Sequence[tuple[int, int]]) -> Interval:
    """Return the 95 % interval of a share of successes, pooled over settings.

    Settings are the units of a ratio estimate; where they are as good as alike, or there is one
    alone, targets are (Clopper and Pearson), since then these tell less.

    >>> share_interval([(5, 5)])
    Interval(low=0.478..., high=1.0)
    """
    from scipy.stats import beta, t

    successes, trials = (sum(column) for column in zip(*counts, strict=True))
    low = float(beta.ppf(0.025, successes, trials - successes + 1)) if successes else 0.0
    high = float(beta.ppf(0.975, successes + 1, trials - successes)) if successes < trials else 1.0
    if len(counts) == 1:
        return Interval(low, high)
    rate, units = successes / trials, len(counts)
    left = np.array([s - rate * n for s, n in counts])
    error = float(np.sqrt(units / (units - 1) * np.square(left).sum())) / trials
    reach = float(t.ppf(0.975, units - 1)) * error
    return Interval(max(0.0, min(low, rate - reach)), min(1.0, max(high, rate + reach)))


def _declared(run: Run) -> Config:
    part = find(run.paper, run.part)
    return part.config(part.size(Scale(run.scale), run.changes), seed=run.seed)


def _kind(table: SettingTable) -> str:
    from exhume.config import NetworkReleaseTable

    network = "a network" if isinstance(table.release, NetworkReleaseTable) else "a linear model"
    if isinstance(table.release, NetworkReleaseTable) and table.release.batched:
        return f"{table.release.kind.capitalize()} of {network}, no training record known"
    released = "Answers" if table.release.kind == "outputs" else "Weights"
    return f"{released} of {network}, one record unknown"


def _counted(run: Run, config: Config) -> Iterator[tuple[SettingTable, list[Mapping[str, Any]]]]:
    """Yield each setting that is an attack's, with the rows of whole attacks."""
    for table in config.setting:
        if table.start is not None and table.start.truth > 0:
            continue
        reduced = {o.attack for o in table.options if any(_off(o.values(), s) for s in _SWITCHES)}
        rows = [
            row
            for row in run.summary["rows"]
            if row["setting"] == table.name and counted(row)[1] and row["attack"] not in reduced
        ]
        if rows:
            yield table, rows


def _off(options: Mapping[str, Any], switch: str) -> bool:
    return options.get(switch) is False


def _attacks(declared: Sequence[tuple[Run, Config]]) -> list[str]:
    found: dict[str, dict[str, _Entry]] = defaultdict(lambda: defaultdict(_Entry))
    settings: dict[str, int] = defaultdict(int)
    for run, config in declared:
        for table, rows in _counted(run, config):
            kind = _kind(table)
            settings[kind] += 1
            steps = {o.attack: o.values().get("steps") for o in table.options}
            for row in rows:
                found[kind][row["attack"]].add(row, steps.get(row["attack"]))
            _compare(rows, found[kind])
    return [f"## {k}\n\n{_table(entries, settings[k])}" for k, entries in sorted(found.items())]


def _compare(rows: Sequence[Mapping[str, Any]], entries: Mapping[str, _Entry]) -> None:
    """Count who left the smaller mean error, pair by pair; a tie is half a win for both."""
    for one, other in combinations(rows, 2):
        metric = next((m for m in _ERRORS if m in one["metrics"] and m in other["metrics"]), None)
        if metric is None:
            continue
        left, right = one["metrics"][metric]["mean"], other["metrics"][metric]["mean"]
        if left is None or right is None:
            continue
        share = 0.5 if left == right else float(left < right)
        for row, won in ((one, share), (other, 1.0 - share)):
            entries[row["attack"]].won += won
            entries[row["attack"]].compared += 1


def _table(entries: Mapping[str, _Entry], settings: int) -> str:
    titles = (
        *("attack", "won", "rebuilt", "median squared error", "seconds a target", "budget"),
        *("settings", "targets"),
    )
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, entry in sorted(entries.items(), key=_place):
        reach = share_interval(entry.counts)
        ran = len(entry.counts)
        cells = [
            name,
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


def _place(item: tuple[str, _Entry]) -> tuple[float, float, str]:
    name, entry = item
    won = entry.won / entry.compared if entry.compared else -1.0
    return -won, -entry.rate, name
