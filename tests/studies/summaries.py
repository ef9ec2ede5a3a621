"""Small summaries, written by hand: what a claim is judged on."""

from __future__ import annotations

from typing import Any

from exhume.studies import Run


def made(**settings: dict[str, Any]) -> Run:
    """A run whose settings have these numbers: of attacks by their names, else of the setting."""
    rows, facts, brackets = [], [], []
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
        }
        facts.append(fact)
        brackets.append({"setting": name, "ceiling": numbers.get("ceiling")})
        for attack, error in numbers.items():
            if attack in ("reconstructor", "ridge", "oblivious"):
                rows.append(_row(name, attack, error))
    summary = {"settings": facts, "rows": rows, "brackets": brackets, "complete": True}
    return Run("paper", "part", "laptop", {"data": "x"}, 0, (), summary)


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
