"""Running one unit of work: publish, attack, and only then look at the truth."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack, nothing
from exhume.audit.plan import Plan, Unit
from exhume.audit.record import Record, Trial
from exhume.audit.scoring import Scores, members, scores_of
from exhume.audit.setting import Setting
from exhume.audit.starting import begun, columns
from exhume.audit.threads import one_thread
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release
from exhume.seeds import stream

_KEPT_CANDIDATES = 4


@dataclass(frozen=True, eq=False)
class Batch:
    """What one attack left on one unit: records, and their candidates as arrays by name."""

    records: tuple[Record, ...]
    artefact: str
    arrays: dict[str, Array]


def run_unit(plan: Plan, unit: Unit, done: frozenset[str]) -> list[Batch]:
    """Publish the unit's releases once and run every attack on those that it isn't done with."""
    with one_thread():
        setting = plan.setting(unit.setting)
        groups = setting.groups(unit.targets)
        todo = [
            (attack, _left(plan, unit, attack, groups, done)) for attack in plan.attacks_on(unit)
        ]
        wanted = sorted({place for _, places in todo for place in places})
        if not wanted:
            return []
        made = setting.releases([groups[i] for i in wanted], plan.config.audit.seed)
        releases = dict(zip(wanted, made, strict=True))
        found = []
        for attack, places in todo:
            targets = tuple(target for place in places for target in groups[place])
            part = Unit(unit.setting, targets)
            trials, seen = plan.trials(part, attack), [releases[place] for place in places]
            if trials:
                found.append(run_attack(plan, setting, part, attack, trials, seen))
        return found


def _left(
    plan: Plan,
    unit: Unit,
    attack: Attack,
    groups: Sequence[tuple[int, ...]],
    done: frozenset[str],
) -> list[int]:
    """Return the releases of a unit that an attack isn't done with."""
    undone = {t.target for t in plan.trials(unit, attack) if t.key not in done}
    return [place for place, group in enumerate(groups) if undone.intersection(group)]


def run_attack(
    plan: Plan,
    setting: Setting,
    unit: Unit,
    attack: Attack,
    trials: Sequence[Trial],
    releases: Sequence[Release],
) -> Batch:
    """Run one attack on a unit's releases, and score what it leaves."""
    groups = setting.groups(unit.targets)
    knowledge = [setting.knowledge(*group) for group in groups]
    firsts = [trials[unit.targets.index(group[0])] for group in groups]
    started = time.perf_counter()
    table = plan.config.setting[unit.setting]
    if table.start is None:
        found = _attacked(attack, releases, knowledge, firsts)
    else:
        own = [begun(attack, setting, table, group, plan.config.audit.seed) for group in groups]
        alone = zip(own, releases, knowledge, firsts, strict=True)
        found = [_attacked(one, [r], [k], [t])[0] for one, r, k, t in alone]
    seconds = (time.perf_counter() - started) / len(trials)
    results = members(plan, unit.setting, groups, found, blind=attack.baseline)
    scores = scores_of(plan, unit.setting, unit.targets, results)
    beside = columns(setting, table, groups, results, plan.config.audit.seed)
    scores = [replace(s, by_name={**s.by_name, **b}) for s, b in zip(scores, beside, strict=True)]
    name = f"{unit.setting:03d}-{attack.name}-{unit.targets[0]:05d}"
    records = tuple(
        replace(
            _record(trial, result, score),
            artefact=name,
            row=row,
            seconds=seconds,
            baseline=attack.baseline,
        )
        for row, (trial, result, score) in enumerate(zip(trials, results, scores, strict=True))
    )
    arrays = {
        f"{row}.samples": result.samples[:_KEPT_CANDIDATES]
        for row, result in enumerate(results)
        if len(result)
    }
    return Batch(records, name, arrays or {"none": np.zeros(1)})


def _attacked(
    attack: Attack,
    releases: Sequence[Release],
    knowledge: Sequence[Knowledge],
    trials: Sequence[Trial],
) -> list[Reconstruction]:
    """Run the attack; one that stops with an error is on record as such, never as a failure."""
    rngs = [stream(t.seed, "attack", t.setting, attack.name, t.target) for t in trials]
    try:
        results = attack.reconstruct_each(releases, knowledge, rngs=rngs)
        for result, one in zip(results, knowledge, strict=True):
            _require_shape(result, one)
        return results
    except Exception as error:  # whatever an attack may raise: it is recorded, not hidden
        if len(trials) > 1:
            # One release's error must not stand for its neighbours'.
            alone = zip(releases, knowledge, trials, strict=True)
            return [_attacked(attack, [r], [k], [t])[0] for r, k, t in alone]
        message = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        return [nothing(knowledge[0], Status.CRASHED, message)]


def _require_shape(result: Reconstruction, knowledge: Knowledge) -> None:
    found, expected = result.samples.shape[1:], knowledge.record_shape
    if found != expected:
        raise ValueError(f"candidates of shape {found}, a record has shape {expected}")


def _record(trial: Trial, result: Reconstruction, scores: Scores) -> Record:
    first = len(result) > 0
    return Record(
        trial,
        status=result.status.name,
        message=result.message,
        success=scores.success,
        distance=scores.distance,
        threshold=scores.threshold,
        scores=scores.by_name,
        label_correct=scores.label_correct,
        confidence=_number(result.confidence) if first else None,
        error_estimate=_number(result.error_estimate) if first else None,
        stats={**result.stats, "candidates": len(result)},
    )


def _number(values: FloatArray | None) -> float | None:
    return None if values is None else float(values[0])


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("exhume", "numpy", "scipy", "scikit-learn", "dp-accounting", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
