"""summary.json: its shape, and every number in it computed again from the database alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, norm
from tests.audit import small

from exhume.audit import Plan, Serial, run

RAN = ("CONVERGED", "APPROXIMATE", "NO_INFORMATION")


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Three settings, one of them private; attacks that fit, refuse, crash and know no limit."""
    extra = (small.Drawing(estimate=float("inf")), small.Raising())
    return small.plan(small.PLAIN, small.SCALED, small.NOISY, small.audit(20, seed=2), extra=extra)


@pytest.fixture(scope="module")
def folder(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("summary") / "run"
    run(plan, folder, Serial(), command="exhume audit")
    return folder


@pytest.fixture(scope="module")
def summary(folder: Path) -> dict[str, Any]:
    return small.strict_json(folder / "summary.json")


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, Any]]:
    return list(small.rows(folder).values())


NUMBER = "float"
RATE = {
    "successes": "int",
    "trials": "int",
    "rate": NUMBER,
    "low": NUMBER,
    "high": NUMBER,
    "confidence": NUMBER,
}
SPREAD = {
    "count": "int",
    **dict.fromkeys(("mean", "median", "q05", "q25", "q75", "q95"), NUMBER),
}
POINT = {"closeness": NUMBER, "kappa": NUMBER, "gamma": NUMBER}
TRADEOFF = {
    "group": "str",
    "metric": "str",
    "measure": "str",
    "batches": "int",
    "seeds": "int",
    "blind": "float or null",
    "points": [
        {
            "setting": "str",
            "defence": "str",
            "strength": {
                "mean": NUMBER,
                "low": "float or null",
                "high": "float or null",
                "attack": "str",
                "blind": "bool",
                "by_attack": {"*": NUMBER},
                "answered": "bool",
            },
            "utility": [
                {
                    "mean": "float or null",
                    "low": "float or null",
                    "high": "float or null",
                    "value": "float or null",
                    "diverged": "int",
                },
                "null",
            ],
            "on_front": "bool or null",
            "front_probability": "float or null",
            "floor": "float or null",
            "floor_binds": "str",
            "rate": "float or null",
        }
    ],
    "winners": [
        {
            "utility_loss": NUMBER,
            "told": "bool",
            "contenders": [{"defence": "str", "probability": NUMBER}],
        }
    ],
}
COLUMN = {
    "name": "str",
    "kind": "str",
    "levels": ["str"],
    "missing": "bool",
    "unit": "str",
    "counts": ["int"],
    "step": "float",
    "mean": "float",
    "scale": "float",
    "given": "bool",
}
SCHEMA = {
    "schema_version": "int",
    "exhume_version": "str",
    "command": "str",
    "seed": "int",
    "closeness": NUMBER,
    "complete": "bool",
    "trials": "int",
    "expected": "int",
    "brackets": [
        {
            "setting": "str",
            "title": "str",
            "attack": "str",
            "reached": RATE,
            "blind": RATE,
            "ceiling": "float or null",
            "ceiling_note": "str",
            "targets": "int",
            "unanswered": "int",
        }
    ],
    "rows": [
        {
            "setting": "str",
            "attack": "str",
            "baseline": "bool",
            "trials": "int",
            "ran": "int",
            "statuses": {"*": "int"},
            "message": "str",
            "success": [RATE, "null"],
            "metrics": {"*": SPREAD},
            "labels_correct": "float or null",
            "error_estimate": [SPREAD, "null"],
            "seconds": NUMBER,
            "correlations": {"*": "float"},
            "error": "float or null",
        }
    ],
    "settings": [
        {
            "name": "str",
            "title": "str",
            "threat": ["str"],
            "fixed_set": "int",
            "shadow_targets": "int",
            "left_out": "int",
            "targets": "int",
            "record_shape": ["int"],
            "value_range": "null",
            "unit": "str",
            "nearest_mean": NUMBER,
            "percentile_levels": [NUMBER],
            "percentile_means": [NUMBER],
            "event": "str",
            "private": "bool",
            "bound": [POINT],
            "bound_at": [POINT, "null"],
            "bound_method": "str",
            "bound_binds": "str",
            "bound_note": "str",
            "prior_samples": "int",
            "utility_name": "str",
            "utility": NUMBER,
            "defended": "bool",
            "membership": "str",
            "membership_test": "str",
            "membership_advantage": "float or null",
            "membership_auc": "float or null",
            "nearest_mse": NUMBER,
            "percentile_mse": [NUMBER],
            "training_utility": NUMBER,
            "loss_auc": NUMBER,
            "chance": NUMBER,
            "columns": ["str"],
            "schema": [COLUMN],
            "theorem_2": "float or null",
            "bound_over_kappa": [{"kappa": NUMBER, "gamma": NUMBER}],
            "epsilon": NUMBER,
            "delta": NUMBER,
            "group": "str",
            "defence": "str",
            "batch": "int or null",
            "floor": "float or null",
            "floor_binds": "str",
            "floor_note": "str",
            "liu_rate": "float or null",
            "truth": "str",
        }
    ],
    "versions": {"*": "str"},
    "budget": "str",
    "left_out": [{"setting": "str", "run": "int", "of": "int"}],
    "tradeoffs": [TRADEOFF],
}
"""What others may build on: a change here is a change of ``schema_version``."""


_WHERE_PRIVATE = {"bound_over_kappa", "epsilon", "delta"}
"""Keys of settings whose training is differentially private."""


class TestShape:
    def test_keys_and_types(self, summary: dict[str, Any]) -> None:
        wrong = list(_departures(summary, SCHEMA, "summary"))
        assert not wrong, wrong

    def test_schema_version(self, summary: dict[str, Any]) -> None:
        assert summary["schema_version"] == 1

    def test_counts_of_the_whole(self, summary: dict[str, Any], plan: Plan) -> None:
        assert summary["complete"] is True
        assert summary["trials"] == summary["expected"] == len(small.expected_keys(plan)) == 300
        assert [s["name"] for s in summary["settings"]] == ["plain", "scaled", "noisy"]
        assert [b["setting"] for b in summary["brackets"]] == ["plain", "scaled", "noisy"]
        assert summary["command"] == "exhume audit"
        assert summary["seed"] == 2

    def test_an_estimate_without_limit_is_null(self, summary: dict[str, Any]) -> None:
        for row in summary["rows"]:
            if row["attack"] == "drawing":
                assert row["error_estimate"]["count"] == 20
                assert row["error_estimate"]["median"] is None


def _departures(value: Any, schema: Any, path: str) -> Any:
    """Every place where ``value`` is not of the schema's shape."""
    if isinstance(schema, list):
        if len(schema) == 2 and schema[1] == "null":
            if value is not None:
                yield from _departures(value, schema[0], path)
        else:
            for i, item in enumerate(value):
                yield from _departures(item, schema[0], f"{path}[{i}]")
    elif isinstance(schema, dict):
        if "*" not in schema and (other := (set(value) ^ set(schema)) - _WHERE_PRIVATE):
            yield f"{path}: {sorted(other)}"
        for key in value:
            yield from _departures(value[key], schema.get(key, schema.get("*")), f"{path}.{key}")
    elif value is None and ".error_estimate." in path:
        # Quantiles of unlimited error estimates are the one number that may be missing.
        return
    elif not _is(value, schema):
        yield f"{path}: {value!r} is not {schema}"


def _is(value: Any, kind: str) -> bool:
    if kind.endswith(" or null"):
        return value is None or _is(value, kind.removesuffix(" or null"))
    types = {"int": int, "float": float, "str": str, "bool": bool, "null": type(None)}
    return type(value) is types[kind]


class TestNumbers:
    def test_rows(self, summary: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        groups = {(r["setting"], r["attack"]) for r in rows}
        assert {(r["setting"], r["attack"]) for r in summary["rows"]} == groups
        assert len(summary["rows"]) == len(groups) == 15
        for row in summary["rows"]:
            mine = [
                r for r in rows if (r["setting"], r["attack"]) == (row["setting"], row["attack"])
            ]
            ran = [r for r in mine if r["status"] in RAN]
            assert row["trials"] == len(mine) == 20
            assert row["ran"] == len(ran)
            assert row["statuses"] == Counter(r["status"] for r in mine)
            assert row["seconds"] == pytest.approx(sum(r["seconds"] for r in mine))
            assert row["baseline"] == (row["attack"] == "oblivious")
            _check_rate(row["success"], ran, confidence=0.95)
            _check_spreads(row, mine)

    def test_success_is_what_it_says(self, folder: Path, rows: list[dict[str, Any]]) -> None:
        """Closer, in root mean square of scaled columns, than the nearest record known."""
        for row in rows:
            if row["distance"] is None:
                assert not row["success"]
            else:
                assert bool(row["success"]) == (row["distance"] <= row["threshold"])
                assert json.loads(row["scores"])["rmse"] == row["distance"]

    def test_strongest_attack_and_its_wider_interval(
        self, summary: dict[str, Any], rows: list[dict[str, Any]]
    ) -> None:
        """Bonferroni: an interval for each attack that ran, all of them right 19 times in 20."""
        attacks_that_ran = {"plain": 2, "scaled": 3, "noisy": 2}
        for bracket in summary["brackets"]:
            mine = [r for r in rows if r["setting"] == bracket["setting"] and not r["baseline"]]
            ran = [r for r in mine if r["status"] in RAN]
            names = sorted({r["attack"] for r in ran})
            assert len(names) == attacks_that_ran[bracket["setting"]]
            rates = {n: np.mean([r["success"] for r in ran if r["attack"] == n]) for n in names}
            assert rates[bracket["attack"]] == max(rates.values())
            own = [r for r in ran if r["attack"] == bracket["attack"]]
            _check_rate(bracket["reached"], own, confidence=1 - 0.05 / len(names))
            assert bracket["unanswered"] == 20 - len({r["target"] for r in ran}) == 0

    def test_the_blind_guess_stands_beside(
        self, summary: dict[str, Any], rows: list[dict[str, Any]]
    ) -> None:
        for bracket in summary["brackets"]:
            blind = [r for r in rows if r["setting"] == bracket["setting"] and r["baseline"]]
            assert len(blind) == 20
            _check_rate(bracket["blind"], blind, confidence=0.95)


def _check_rate(found: dict[str, Any] | None, ran: list[dict[str, Any]], confidence: float) -> None:
    if not ran:
        assert found is None
        return
    assert found is not None
    successes = sum(r["success"] for r in ran)
    exact = binomtest(successes, len(ran)).proportion_ci(confidence, method="exact")
    assert (found["successes"], found["trials"]) == (successes, len(ran))
    assert found["rate"] == successes / len(ran)
    assert found["confidence"] == pytest.approx(confidence, abs=1e-12)
    assert found["low"] == pytest.approx(exact.low, abs=1e-9)
    assert found["high"] == pytest.approx(exact.high, abs=1e-9)


def _check_spreads(row: dict[str, Any], mine: list[dict[str, Any]]) -> None:
    columns: dict[str, list[float]] = {}
    for record in mine:
        for name, value in json.loads(record["scores"]).items():
            columns.setdefault(name, []).extend([] if value is None else [value])
    assert row["metrics"].keys() == {name for name, values in columns.items() if values}
    for name, spread in row["metrics"].items():
        _check_spread(spread, columns[name])
    estimates = [r["error_estimate"] for r in mine if r["error_estimate"] is not None]
    if row["attack"] != "drawing" and estimates:
        _check_spread(row["error_estimate"], estimates)


def _check_spread(spread: dict[str, Any], values: list[float]) -> None:
    ordered = sorted(values)

    def quantile(level: float) -> float:
        """Between the two neighbouring values, in proportion (Hyndman and Fan's type 7)."""
        place = level * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])

    assert spread["count"] == len(ordered)
    assert spread["mean"] == pytest.approx(sum(ordered) / len(ordered), rel=1e-9)
    assert spread["median"] == pytest.approx(quantile(0.5), rel=1e-9)
    for name, level in (("q05", 0.05), ("q25", 0.25), ("q75", 0.75), ("q95", 0.95)):
        assert spread[name] == pytest.approx(quantile(level), rel=1e-9), name


class TestBound:
    def test_only_where_one_holds(self, summary: dict[str, Any]) -> None:
        plain, scaled, noisy = summary["brackets"]
        for bracket in (plain, scaled):
            assert bracket["ceiling"] is None
            assert "not differentially private" in bracket["ceiling_note"]
        assert 0 < noisy["ceiling"] < 1
        assert noisy["reached"]["low"] <= noisy["ceiling"]
        assert [s["private"] for s in summary["settings"]] == [False, False, True]

    def test_rises_with_closeness_and_is_never_below_a_guess(self, summary: dict[str, Any]) -> None:
        points = summary["settings"][2]["bound"]
        assert len(points) >= 20
        for name in ("closeness", "kappa", "gamma"):
            assert (np.diff([p[name] for p in points]) >= 0).all(), name
        assert all(0 < p["kappa"] <= p["gamma"] <= 1 for p in points)
        at = summary["settings"][2]["bound_at"]
        assert at in points
        assert (at["closeness"], at["gamma"]) == (1.0, summary["brackets"][2]["ceiling"])

    def test_the_gaussian_bound_is_the_exact_one(self, summary: dict[str, Any]) -> None:
        """One Gaussian release at noise multiplier 1: γ = Φ(Φ⁻¹(κ) + 1)."""
        for point in summary["settings"][2]["bound"]:
            exact = norm.cdf(norm.ppf(point["kappa"]) + 1.0) if point["kappa"] < 1 else 1.0
            assert point["gamma"] == pytest.approx(exact, abs=1e-6)

    def test_no_guess_beats_kappa(self, summary: dict[str, Any], plan: Plan) -> None:
        """Among the records of the prior themselves and averages of them, at every closeness."""
        setting = plan.setting(2)
        assert setting.targets is not None
        assert setting.reserve is not None
        prior = np.concatenate([setting.targets.x, setting.reserve.x])
        assert summary["settings"][2]["prior_samples"] == len(prior)
        scale = setting.fixed_set.x.std(axis=0)
        radii = _distances(prior / scale, setting.fixed_set.x / scale).min(axis=1)
        rng = np.random.default_rng(0)
        averages = [prior[rng.choice(len(prior), k)].mean(axis=0) for k in range(2, 60)]
        guesses = np.concatenate([prior, averages, setting.fixed_set.x])
        distances = _distances(prior / scale, guesses / scale)
        for point in summary["settings"][2]["bound"]:
            hits = (distances <= point["closeness"] * radii[:, None]).mean(axis=0)
            assert hits.max() <= point["kappa"]


def _distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Root mean square differences, (len(one), len(other))."""
    return np.sqrt(((one[:, None, :] - other[None, :, :]) ** 2).mean(axis=2))
