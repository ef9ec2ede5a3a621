"""What an attack may do to an audit: spoil its own trials, and no other's."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.audit import small

from exhume.attacks import Attack
from exhume.audit import Serial, Summary, judge, run
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release


@dataclass(frozen=True)
class Misbehaving(Attack):
    """Returns the best guess there is, except where ``how`` says otherwise."""

    how: str
    name: ClassVar[str] = "misbehaving"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        if self.how == "accepts raises":
            raise RuntimeError("no opinion")
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        assert knowledge.fixed_set is not None
        guess, status = knowledge.fixed_set.x[:1], Status.CONVERGED
        stats: dict[str, Any] = {}
        match self.how:
            case "raises now and then" if rng.integers(2):
                raise RuntimeError("two\nlines of\ttrouble")
            case "wrong shape":
                guess = guess[:, :-1]
            case "not finite":
                guess = guess * np.nan
            case "numpy numbers":
                stats = {"a": np.int64(3), "b": np.float32(0.5), "c": np.bool_(True)}
            case "wrong type":
                return None  # type: ignore[return-value]
            case "perfect but unsure":
                status = Status.NOT_CONVERGED
        return Reconstruction(guess, status, stats=stats)


def audited(how: str, folder: Path) -> tuple[Summary, list[dict[str, Any]]]:
    """The summary, and the misbehaving attack's rows in the database."""
    plan = small.plan(small.PLAIN, small.audit(20), extra=(Misbehaving(how),))
    summary = run(plan, folder, Serial())
    rows = [r for r in small.rows(folder).values() if r["attack"] == "misbehaving"]
    assert len(rows) == 20
    others = Counter(r["status"] for r in small.rows(folder).values() if r["attack"] == "glm")
    assert others == {"CONVERGED": 20}
    return summary, rows


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("wrong shape", "ValueError: candidates of shape (29,), a record has shape (30,)"),
        ("accepts raises", "RuntimeError: no opinion"),
    ],
)
def test_what_can_not_be_used_is_a_crash(how: str, message: str, tmp_path: Path) -> None:
    summary, rows = audited(how, tmp_path / "run")
    assert {(r["status"], r["message"], r["success"]) for r in rows} == {("CRASHED", message, 0)}
    row = next(r for r in summary.rows if r.attack == "misbehaving")
    assert (row.ran, row.success) == (0, None)


def test_nothing_at_all_is_a_crash(tmp_path: Path) -> None:
    _, rows = audited("wrong type", tmp_path / "run")
    assert {r["status"] for r in rows} == {"CRASHED"}


def test_one_targets_error_is_not_its_neighbours(tmp_path: Path) -> None:
    _, rows = audited("raises now and then", tmp_path / "run")
    counts = Counter(r["status"] for r in rows)
    assert counts["CRASHED"] + counts["CONVERGED"] == 20
    assert min(counts["CRASHED"], counts["CONVERGED"]) >= 3
    messages = {r["message"] for r in rows if r["status"] == "CRASHED"}
    assert messages == {"RuntimeError: two lines of trouble"}


def test_candidates_that_are_no_numbers_are_no_candidates(tmp_path: Path) -> None:
    summary, rows = audited("not finite", tmp_path / "run")
    assert {(r["status"], r["distance"]) for r in rows} == {("NOT_CONVERGED", None)}
    assert next(r for r in summary.rows if r.attack == "misbehaving").metrics == {}


def test_numpy_numbers_are_kept_as_numbers(tmp_path: Path) -> None:
    _, rows = audited("numpy numbers", tmp_path / "run")
    assert json.loads(rows[0]["stats"]) == {"a": 3, "b": 0.5, "c": True, "candidates": 1}


def test_an_attack_that_did_not_converge_is_not_counted(tmp_path: Path) -> None:
    """Neither as a success nor as a failure."""
    summary, rows = audited("perfect but unsure", tmp_path / "run")
    assert {r["status"] for r in rows} == {"NOT_CONVERGED"}
    assert next(r for r in summary.rows if r.attack == "misbehaving").success is None
    (bracket,) = summary.brackets
    assert bracket.reached is not None
    assert bracket.reached.confidence == 0.95


def test_targets_that_only_crashed_count_against_the_release(tmp_path: Path) -> None:
    text = small.PLAIN + small.audit(20, attacks='["scaler-moments"]')
    plan = small.plan(text, extra=(Misbehaving("raises now and then"),))
    summary = run(plan, tmp_path / "run", Serial())
    (bracket,) = summary.brackets
    rows = [r for r in small.rows(tmp_path / "run").values() if r["attack"] == "misbehaving"]
    crashed = sum(r["status"] == "CRASHED" for r in rows)
    assert bracket.unanswered == crashed > 0
    (verdict,) = judge(summary, 0.5)
    assert not verdict.passed
    assert f"{crashed} targets on which no attack ran" in verdict.reason


def test_a_setting_may_have_targets_of_its_own(tmp_path: Path) -> None:
    """Fewer of them, and the first of the others'."""
    few = small.SCALED.replace('name = "scaled"', 'name = "scaled"\ntargets = 3')
    run(small.plan(small.SCALED.replace("scaled", "all"), few, small.audit(18)), tmp_path, Serial())
    counts = Counter(r["setting"] for r in small.rows(tmp_path).values())
    assert counts == {"all": 54, "scaled": 9}
    truth = [
        small.load_file(tmp_path / "artefacts" / f"{i:03d}-truth.safetensors")["targets"]
        for i in range(2)
    ]
    np.testing.assert_array_equal(truth[0][:3], truth[1])
