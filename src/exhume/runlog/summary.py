"""The summary of a run: one row per setting and attack, and the bracket of each setting.

``summary.json`` is its stable, machine-readable form; the report and the gate read the same data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from exhume.runlog.codec import encoded, finite
from exhume.runlog.outcome import Outcome
from exhume.runlog.run import Run
from exhume.runlog.setting import Setting
from exhume.runlog.strongest import by_success, errors_on
from exhume.runlog.tradeoff import Tradeoff, tradeoffs
from exhume.runtime.durable import write_bytes
from exhume.stats.empirical_epsilon import epsilon_from_trials
from exhume.stats.proportions import clopper_pearson
from exhume.stats.rank_correlation import rank_correlation

SCHEMA_VERSION = 1
"""The version of ``summary.json``: its keys and their meaning."""
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
    """The distribution of a number over the targets with a candidate."""

    count: int
    mean: float
    median: float
    q05: float
    q25: float
    q75: float
    q95: float


@dataclass(frozen=True)
class Row:
    """One attack on one setting. ``success`` counts only trials where the attack really ran.

    ``error`` is the mean distance over all targets, with the best blind guess where the attack left
    nothing; None where it left nothing at all.
    """

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
    error: float | None = None

    @property
    def succeeded(self) -> float | None:
        """The success rate; None where nothing was judged."""
        return None if self.success is None else self.success.rate


@dataclass(frozen=True)
class Bracket:
    """The result for one setting.

    ``reached`` is the strongest attack's success, with an interval widened because it was selected
    among several (Bonferroni); ``blind`` is the blind guess's; ``ceiling`` is the limit for every
    attack, None if no bound holds. ``unanswered`` counts targets on which no attack really ran.
    With ``candidates`` success is naming the target among so many, and ``empirical_epsilon`` is the
    lower limit on ε that follows (at the δ of the setting).
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
    candidates: int = 0
    empirical_epsilon: float | None = None


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
    settings: tuple[Setting, ...]
    versions: dict[str, str]
    budget: str = ""
    left_out: tuple[LeftOut, ...] = ()
    tradeoffs: tuple[Tradeoff, ...] = ()


def summarise(run: Run) -> Summary:
    """Summarise a run, finished or not."""
    header = run.header
    rows, brackets, left_out = [], [], []
    for setting in run.settings:
        name, targets = setting.name, setting.data.targets
        planned = header.limits.get(name, targets)
        if planned < targets:
            left_out.append(LeftOut(name, planned, targets))
        mine = run.of(name)
        own = attack_rows(name, mine)
        rows += own
        brackets.append(_bracket(setting, own, mine, planned))
    return Summary(
        schema_version=SCHEMA_VERSION,
        exhume_version=header.exhume_version,
        command=header.command,
        seed=header.seed,
        closeness=header.closeness,
        complete=0 < header.expected <= len(run.outcomes),
        trials=len(run.outcomes),
        expected=header.expected,
        brackets=tuple(brackets),
        rows=tuple(rows),
        settings=run.settings,
        versions=dict(header.versions),
        budget=header.budget,
        left_out=tuple(left_out),
        tradeoffs=tradeoffs(run.settings, run.outcomes),
    )


def bracket_of(setting: Setting, outcomes: Sequence[Outcome], targets: int) -> Bracket:
    """Return one setting's bracket from its outcomes; ``targets`` are those that were planned."""
    return _bracket(setting, attack_rows(setting.name, outcomes), outcomes, targets)


def attack_rows(setting: str, outcomes: Sequence[Outcome]) -> list[Row]:
    """Return a row per attack from the outcomes of one setting."""
    attacks = dict.fromkeys(r.trial.attack for r in outcomes)
    errors = errors_on(outcomes)
    means = {} if errors is None else errors.means
    return [
        _row(setting, attack, [r for r in outcomes if r.trial.attack == attack], means.get(attack))
        for attack in attacks
    ]


def write_summary(summary: Summary, folder: Path) -> Path:
    """Write ``summary.json`` into the run folder."""
    path = folder / "summary.json"
    write_bytes(path, summary_text(summary).encode())
    return path


def summary_text(summary: Summary) -> str:
    """Return the summary as JSON."""
    plain = finite(encoded(summary))
    text = json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return f"{text}\n"


def rate(successes: int, trials: int, *, confidence: float = 0.95) -> Rate | None:
    """Return a success rate with its interval, or None without trials."""
    if trials == 0:
        return None
    found = clopper_pearson(successes, trials, confidence=confidence)
    return Rate(successes, trials, successes / trials, found.low, found.high, confidence)


def _row(setting: str, attack: str, records: Sequence[Outcome], error: float | None) -> Row:
    judged = [r for r in records if r.ran and r.success is not None]
    names = dict.fromkeys(name for r in records for name in r.scores)
    labels = [r.label_correct for r in records if r.label_correct is not None]
    return Row(
        setting=setting,
        attack=attack,
        baseline=records[0].baseline,
        trials=len(records),
        ran=sum(r.ran for r in records),
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
        error=error,
    )


def _correlations(records: Sequence[Outcome], names: Sequence[str]) -> dict[str, float]:
    """Return Spearman's rank correlation of every pair of metrics that differ over the targets."""
    found = {}
    for one, other in combinations(names, 2):
        scores = [(r.scores.get(one), r.scores.get(other)) for r in records]
        pairs = np.array([p for p in scores if None not in p], dtype=np.float64)
        if len(pairs) >= 3 and np.isfinite(pairs).all() and (np.ptp(pairs, axis=0) > 0).all():
            found[f"{one}~{other}"] = rank_correlation(*pairs.T)
    return found


def _usual_message(records: Sequence[Outcome]) -> str:
    """The first message of the most frequent status other than success: the reason of failures."""
    failed = [r for r in records if not r.ran] or list(records)
    status = Counter(r.status for r in failed).most_common(1)[0][0]
    return next(r.message for r in failed if r.status == status)


def _spread(values: Sequence[float | None]) -> Spread | None:
    numbers = np.array([v for v in values if v is not None], dtype=np.float64)
    if not len(numbers):
        return None
    with np.errstate(invalid="ignore"):
        # An attack may report an infinite error; the mean of two such errors is not a number.
        q05, q25, q75, q95 = (float(q) for q in np.quantile(numbers, _QUANTILES))
    return Spread(
        len(numbers), float(numbers.mean()), float(np.median(numbers)), q05, q25, q75, q95
    )


def _bracket(
    setting: Setting, rows: Sequence[Row], records: Sequence[Outcome], targets: int
) -> Bracket:
    attacks = by_success(rows)
    strongest = attacks[0] if attacks else None
    reached = None
    if strongest is not None and strongest.success is not None:
        level = 1.0 - 0.05 / len(attacks)
        reached = rate(strongest.success.successes, strongest.success.trials, confidence=level)
    guesses = [r.success for r in rows if r.baseline and r.success is not None]
    blind = max(guesses, key=lambda guess: guess.rate, default=None)
    answered = {r.trial.target for r in records if not r.baseline and r.ran}
    at = setting.ceiling.at
    return Bracket(
        setting=setting.name,
        title=setting.title,
        attack=None if strongest is None else strongest.attack,
        reached=reached,
        blind=blind,
        ceiling=None if at is None else at.gamma,
        ceiling_note=setting.ceiling.note,
        targets=targets,
        unanswered=max(0, targets - len(answered)),
        candidates=setting.data.candidates,
        empirical_epsilon=_empirical_epsilon(setting, reached),
    )


def _empirical_epsilon(setting: Setting, reached: Rate | None) -> float | None:
    """Return the lower limit on ε that naming targets among candidates proves."""
    count = setting.data.candidates
    if not count or reached is None or setting.data.one_training:
        # Trials that share their noise are no independent ones.
        return None
    return epsilon_from_trials(
        reached.successes,
        reached.trials,
        kappa=1.0 / count,
        delta=setting.ceiling.delta or 0.0,
        confidence=reached.confidence,
    )
