"""The summary of a run: one row a setting × attack, and the bracket of each setting.

``summary.json`` is its stable, machine-readable form; the report and the gate read the same data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from exhume.audit.durable import write_bytes
from exhume.audit.record import SCHEMA_VERSION, Record
from exhume.audit.store import Store
from exhume.audit.tradeoff import Tradeoff, tradeoffs
from exhume.metrics import clopper_pearson
from exhume.reconstruction import Status

_QUANTILES = (0.05, 0.25, 0.75, 0.95)


@dataclass(frozen=True)
class Rate:
    """A success rate with its Clopper–Pearson interval at ``confidence``."""

    successes: int
    trials: int
    rate: float
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Spread:
    """How a number is distributed over the targets where there was a candidate."""

    count: int
    mean: float
    median: float
    q05: float
    q25: float
    q75: float
    q95: float


@dataclass(frozen=True)
class Row:
    """One attack on one setting. ``success`` counts only trials where the attack really ran."""

    setting: str
    attack: str
    baseline: bool
    trials: int
    ran: int
    statuses: dict[str, int]
    message: str
    success: Rate | None
    metrics: dict[str, Spread]
    labels_correct: float | None
    error_estimate: Spread | None
    seconds: float
    correlations: dict[str, float]
    """Rank correlations between metrics over the targets, by ``one~other``."""


@dataclass(frozen=True)
class Bracket:
    """The answer for one setting.

    ``reached`` is the strongest attack's success with an interval widened for having chosen it
    among several (Bonferroni); ``blind`` the oblivious guess's; ``ceiling`` what no attack beats,
    None where no bound holds. ``unanswered`` counts targets on which no attack really ran.
    """

    setting: str
    title: str
    attack: str | None
    reached: Rate | None
    blind: Rate | None
    ceiling: float | None
    ceiling_note: str
    targets: int
    unanswered: int


@dataclass(frozen=True)
class LeftOut:
    """A setting of which only ``run`` of ``of`` targets were planned, to fit a budget."""

    setting: str
    run: int
    of: int


@dataclass(frozen=True)
class Summary:
    """Everything that a decision needs of a run."""

    schema_version: int
    exhume_version: str
    command: str
    seed: int
    closeness: float
    complete: bool
    trials: int
    expected: int
    brackets: tuple[Bracket, ...]
    rows: tuple[Row, ...]
    settings: tuple[dict[str, Any], ...]
    versions: dict[str, str]
    budget: str = ""
    left_out: tuple[LeftOut, ...] = ()
    tradeoffs: tuple[Tradeoff, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self)


def summarise(store: Store) -> Summary:
    """Summarise whatever a run folder holds, finished or not."""
    records, facts = store.records(), store.facts()
    config = json.loads(store.meta("config") or "{}")
    noted = json.loads(store.meta("planned") or "{}")
    limits = _limits(config, noted)
    rows, brackets, left_out = [], [], []
    for name, fact in facts.items():
        planned = limits.get(name, int(fact["targets"]))
        if planned < int(fact["targets"]):
            left_out.append(LeftOut(name, planned, int(fact["targets"])))
        mine = [r for r in records if r.trial.setting == name]
        attacks = dict.fromkeys(r.trial.attack for r in mine)
        own = [
            _row(name, attack, [r for r in mine if r.trial.attack == attack]) for attack in attacks
        ]
        rows += own
        brackets.append(_bracket(fact, own, mine, planned))
    expected = int(store.meta("expected_trials") or 0)
    audit = config.get("audit", {})
    return Summary(
        schema_version=SCHEMA_VERSION,
        exhume_version=store.meta("exhume_version") or "",
        command=store.meta("command") or "",
        seed=int(audit.get("seed", 0)),
        closeness=float(audit.get("closeness", 1.0)),
        complete=0 < expected <= len(records),
        trials=len(records),
        expected=expected,
        brackets=tuple(brackets),
        rows=tuple(rows),
        settings=tuple(facts.values()),
        versions=json.loads(store.meta("versions") or "{}"),
        budget=noted.get("budget", ""),
        left_out=tuple(left_out),
        tradeoffs=tradeoffs(facts, records),
    )


def _limits(config: dict[str, Any], noted: dict[str, Any]) -> dict[str, int]:
    """Return how many targets of each setting were planned, as far as that is noted."""
    names = [table["name"] for table in config.get("setting", ())]
    return dict(zip(names, noted.get("targets", ()), strict=False))


def write_summary(summary: Summary, folder: Path) -> Path:
    """Write ``summary.json`` into the run folder."""
    path = folder / "summary.json"
    plain = _finite(summary.plain())
    text = json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())
    return path


def _finite(value: Any) -> Any:
    """Return plain data with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def rate(successes: int, trials: int, *, confidence: float = 0.95) -> Rate | None:
    """Return a success rate with its interval, or None without trials."""
    if trials == 0:
        return None
    found = clopper_pearson(successes, trials, confidence=confidence)
    return Rate(successes, trials, successes / trials, found.low, found.high, confidence)


def ran(record: Record) -> bool:
    """Whether the attack really ran in this trial."""
    return Status[record.status].ran


def _row(setting: str, attack: str, records: Sequence[Record]) -> Row:
    judged = [r for r in records if ran(r) and r.success is not None]
    names = dict.fromkeys(name for r in records for name in r.scores)
    labels = [r.label_correct for r in records if r.label_correct is not None]
    return Row(
        setting=setting,
        attack=attack,
        baseline=records[0].baseline,
        trials=len(records),
        ran=sum(map(ran, records)),
        statuses=dict(Counter(r.status for r in records).most_common()),
        message=_usual_message(records),
        success=rate(sum(bool(r.success) for r in judged), len(judged)),
        metrics={
            name: spread
            for name in names
            if (spread := _spread([r.scores.get(name) for r in records])) is not None
        },
        labels_correct=float(np.mean(labels)) if labels else None,
        error_estimate=_spread([r.error_estimate for r in records]),
        seconds=float(sum(r.seconds for r in records)),
        correlations=_correlations(records, tuple(names)),
    )


def _correlations(records: Sequence[Record], names: Sequence[str]) -> dict[str, float]:
    """Return Spearman's rank correlation of every pair of metrics that differ over the targets."""
    from scipy.stats import spearmanr

    found = {}
    for one, other in combinations(names, 2):
        scores = [(r.scores.get(one), r.scores.get(other)) for r in records]
        pairs = np.array([p for p in scores if None not in p], dtype=np.float64)
        if len(pairs) >= 3 and np.isfinite(pairs).all() and (np.ptp(pairs, axis=0) > 0).all():
            found[f"{one}~{other}"] = float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
    return found


def _usual_message(records: Sequence[Record]) -> str:
    """The first message of the commonest status that is not success: why it failed, if it did."""
    failed = [r for r in records if not ran(r)] or list(records)
    status = Counter(r.status for r in failed).most_common(1)[0][0]
    return next(r.message for r in failed if r.status == status)


def _spread(values: Sequence[float | None]) -> Spread | None:
    numbers = np.array([v for v in values if v is not None], dtype=np.float64)
    if not len(numbers):
        return None
    with np.errstate(invalid="ignore"):
        # An attack may say that its error has no limit; between two such there is nothing.
        q05, q25, q75, q95 = (float(q) for q in np.quantile(numbers, _QUANTILES))
    return Spread(
        len(numbers), float(numbers.mean()), float(np.median(numbers)), q05, q25, q75, q95
    )


def _bracket(
    fact: dict[str, Any], rows: Sequence[Row], records: Sequence[Record], targets: int
) -> Bracket:
    attacks = [r for r in rows if not r.baseline and r.success is not None]
    strongest = max(attacks, key=lambda r: r.success.rate if r.success else -1.0, default=None)
    reached = None
    if strongest is not None and strongest.success is not None:
        level = 1.0 - 0.05 / len(attacks)
        reached = rate(strongest.success.successes, strongest.success.trials, confidence=level)
    guesses = [r.success for r in rows if r.baseline and r.success is not None]
    blind = max(guesses, key=lambda guess: guess.rate, default=None)
    answered = {r.trial.target for r in records if not r.baseline and ran(r)}
    at = fact.get("bound_at")
    return Bracket(
        setting=fact["name"],
        title=fact["title"],
        attack=None if strongest is None else strongest.attack,
        reached=reached,
        blind=blind,
        ceiling=None if at is None else float(at["gamma"]),
        ceiling_note=fact["bound_note"],
        targets=targets,
        unanswered=max(0, targets - len(answered)),
    )
