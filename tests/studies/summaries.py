"""Small summaries, written by hand: what a claim is judged on."""

from __future__ import annotations

from typing import Any

from exhume.runlog.codec import decoded
from exhume.runlog.summary import Summary
from exhume.studies import Claim, ClaimRow, StudyRun


def leans(claim: Claim, run: StudyRun) -> bool:
    """Tell whether one attack's figures themselves are as claimed, however few the targets."""
    attacks = [row.attack for row in run.summary.rows if not row.baseline] or [""]
    named = [claim.attack] if claim.attack is not None else dict.fromkeys(attacks)
    found = [one for attack in named if (one := claim.compared(run, attack)) is not None]
    below = [one.left < claim.factor * one.right for one in found]
    above = [one.left > one.right / claim.factor for one in found]
    about = [
        one.left <= claim.factor * one.right and one.right <= claim.factor * one.left
        for one in found
    ]
    return any({"below": below, "above": above, "about": about}[claim.relation])


def leaning(rows: list[ClaimRow], run: StudyRun) -> dict[str, bool]:
    """Return for every row whose setting was run whether its figures are as the paper says."""
    there = run.settings()
    return {row.label: leans(row.claim, run) for row in rows if row.measured.setting in there}


def made(
    spread: float = 1e-9,
    batch: int | None = None,
    statuses: dict[str, str] | None = None,
    **settings: dict[str, Any],
) -> StudyRun:
    """A run whose settings have these numbers: of attacks by their names, else of the setting.

    The squared errors of its five targets are apart by ``spread``. ``statuses`` are of attacks.
    """
    rows, facts, brackets = [], [], []
    scores: dict[str, dict[str, dict[str, list[float | None]]]] = {}
    for name, numbers in settings.items():
        fact = {
            "name": name,
            "fixed_set": 10,
            "shadow_targets": 100,
            "targets": 5,
            "nearest_mse": numbers.get("oracle"),
            "percentile_levels": [1.0],
            "percentile_mse": [0.5],
            "bound_at": None,
            "utility": numbers.get("utility"),
            "batch": batch,
        }
        facts.append(fact)
        brackets.append({"setting": name, "ceiling": numbers.get("ceiling")})
        for attack, error in numbers.items():
            if attack in ("reconstructor", "ridge", "oblivious"):
                rows.append(_row(name, attack, error, (statuses or {}).get(attack)))
            if spread and error is not None and attack not in ("utility", "ceiling"):
                # Not the same order for all: the differences must vary as well.
                steps = [k * spread for k in (-2, 1, 0, -1, 2)]
                turned = steps if attack == "oracle" else steps[::-1]
                values: list[float | None] = [error + step for step in turned]
                scores.setdefault(name, {})[attack] = {"mse": values}
    plain = {"settings": facts, "rows": rows, "brackets": brackets, "complete": True}
    summary = decoded(Summary, plain)
    return StudyRun("paper", "part", "laptop", {"data": "x"}, 0, (), summary, scores)


def _row(
    setting: str, attack: str, error: float | None, status: str | None = None
) -> dict[str, Any]:
    ran = error is not None
    return {
        "setting": setting,
        "attack": attack,
        "ran": 5 if ran else 0,
        "error": error,
        "baseline": attack == "oblivious",
        "trials": 5,
        "seconds": 10.0,
        "statuses": {} if status is None else {status: 5},
        "success": {"rate": 0.4, "successes": 2, "trials": 5} if ran else None,
        "labels_correct": None,
        "metrics": {"mse": {"mean": error, "median": error}} if ran else {},
        "correlations": {"mse~lpips": 0.7} if ran else {},
    }
