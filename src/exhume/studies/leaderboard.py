"""The leaderboard: attacks by what was released and what they cost, defences by utility."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.studies.base import Scale
from exhume.studies.catalogue import find, papers
from exhume.studies.publish import published
from exhume.studies.run import Reading, Run, shown

if TYPE_CHECKING:
    from exhume.config import Config, SettingTable

_BUDGETS = ((1.0, "up to 1 s"), (10.0, "up to 10 s"), (float("inf"), "more"))


@dataclass
class _Entry:
    """What one attack did on one kind of release, over all studies."""

    settings: int = 0
    targets: int = 0
    successes: int = 0
    seconds: float = 0.0
    errors: list[float] = field(default_factory=list)

    def add(self, row: Mapping[str, Any]) -> None:
        self.settings += 1
        self.targets += int(row["success"]["trials"])
        self.successes += int(row["success"]["successes"])
        self.seconds += float(row["seconds"])
        metric = row["metrics"].get("mse") or row["metrics"].get("rmse")
        if metric is not None:
            squared = "mse" in row["metrics"]
            self.errors.append(metric["median"] if squared else metric["median"] ** 2)

    @property
    def rate(self) -> float:
        return self.successes / self.targets

    @property
    def each(self) -> float:
        return self.seconds / self.targets


def leaderboard(results: Path) -> str:
    """Return the page, in Markdown, from every paper's stored summaries."""
    runs = [run for paper in papers() for run in published(results, paper).values()]
    blocks = [
        "# Leaderboard",
        "Attacks by what was released and by what they cost, from the same stored summaries as the "
        "pages of results: every setting of every study in which the attack ran. *Rebuilt* is the "
        "share of targets that came out closer than any record the adversary had (nearer still "
        "where a study says so). Settings differ in difficulty and not every attack takes every "
        "one, so compare within a study before you believe a rank. Seconds are by the clock, of "
        "one thread of a machine that was doing other work too, a target; shadow models are "
        "trained once for all attacks, and not counted. How to enter an attack of your own: "
        "[Studies](../studies.md#an-attack-of-your-own).",
        *_attacks(runs),
        _defences(runs),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _declared(run: Run) -> Config:
    part = find(run.paper, run.part)
    return part.config(part.size(Scale(run.scale), run.changes), seed=run.seed)


def _kind(table: SettingTable) -> str:
    from exhume.config import NetworkReleaseTable

    network = "a network" if isinstance(table.release, NetworkReleaseTable) else "a linear model"
    if isinstance(table.release, NetworkReleaseTable) and table.release.batched:
        return f"{table.release.kind} of {network}, no training record known"
    released = "Answers" if table.release.kind == "outputs" else "Weights"
    return f"{released} of {network}, one record unknown"


def _attacks(runs: list[Run]) -> list[str]:
    found: dict[str, dict[str, _Entry]] = defaultdict(lambda: defaultdict(_Entry))
    for run in runs:
        kinds = {table.name: _kind(table) for table in _declared(run).setting}
        for row in run.summary["rows"]:
            if row["success"] is not None and row["setting"] in kinds:
                found[kinds[row["setting"]]][row["attack"]].add(row)
    return [f"## {kind}\n\n{_table(entries)}" for kind, entries in sorted(found.items())]


def _table(entries: Mapping[str, _Entry]) -> str:
    titles = ("attack", "rebuilt", "median squared error", "seconds a target", "budget")
    lines = [f"| {' | '.join(titles)} | settings | targets |", "|---|---|---|---|---|---|---|"]
    for name, entry in sorted(entries.items(), key=lambda item: (-item[1].rate, item[0])):
        error = shown(float(np.median(entry.errors))) if entry.errors else "–"
        budget = next(text for limit, text in _BUDGETS if entry.each <= limit)
        cells = [name, f"{entry.rate:.0%}", error, shown(entry.each), budget]
        lines.append(f"| {' | '.join(cells)} | {entry.settings} | {entry.targets:,} |")
    return "\n".join(lines)


def _defences(runs: list[Run]) -> str:
    """Return the table of defended settings: utility kept, and what the strongest attack did."""
    lines = []
    for run in runs:
        for table in _declared(run).setting:
            text, utility = _defence(table), run.read(Reading("utility", table.name))
            if not text or utility is None:
                continue
            bracket = next(b for b in run.summary["brackets"] if b["setting"] == table.name)
            reached = bracket["reached"]
            limit = "–" if bracket["ceiling"] is None else f"{bracket['ceiling']:.0%}"
            done = "–" if reached is None else f"{reached['rate']:.0%} ({bracket['attack']})"
            where = f"{run.paper} {run.part}, {table.name}"
            lines.append((utility, f"| {text} | {where} | {utility:.0%} | {done} | {limit} |"))
    if not lines:
        return ""
    head = ["| defence | study, setting | utility | rebuilt | at most |", "|---|---|---|---|---|"]
    ordered = [line for _, line in sorted(lines, key=lambda pair: -pair[0])]
    return "\n".join(["## Defences, by utility", "", *head, *ordered])


def _defence(table: SettingTable) -> str:
    training = table.knowledge.training
    parts = [str(one.name) for one in table.release.defences]
    if training is not None and training.clipping is not None:
        noise = shown(training.clipping.noise_multiplier)
        parts.append(f"DP-GD, noise multiplier {noise}")
    return ", ".join(parts)
