"""Small summaries, written by hand: what a claim is judged on."""

from __future__ import annotations

from typing import Any

from exhume.studies import Run


def made(spread: float = 0.0, batch: int | None = None, **settings: dict[str, Any]) -> Run:
    """A run whose settings have these numbers: of attacks by their names, else of the setting.

    With a ``spread``, the squared errors of its five targets are apart by as much.
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
                rows.append(_row(name, attack, error))
            if spread and error is not None and attack not in ("utility", "ceiling"):
                # Not the same order for all: the differences must vary as well.
                steps = [k * spread for k in (-2, 1, 0, -1, 2)]
                turned = steps if attack == "oracle" else steps[::-1]
                values: list[float | None] = [error + step for step in turned]
                scores.setdefault(name, {})[attack] = {"mse": values}
    summary = {"settings": facts, "rows": rows, "brackets": brackets, "complete": True}
    return Run("paper", "part", "laptop", {"data": "x"}, 0, (), summary, scores)


def _row(setting: str, attack: str, error: float | None) -> dict[str, Any]:
    ran = error is not None
    return {
        "setting": setting,
        "attack": attack,
        "ran": 5 if ran else 0,
        "trials": 5,
        "seconds": 10.0,
        "success": {"rate": 0.4, "successes": 2, "trials": 5} if ran else None,
        "labels_correct": None,
        "metrics": {"mse": {"mean": error, "median": error}} if ran else {},
        "correlations": {"mse~lpips": 0.7} if ran else {},
    }
