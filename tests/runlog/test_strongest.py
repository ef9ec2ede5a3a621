"""Which attack is strongest: one rule for success and one for the error, the same everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.report.runs import Attempt, Made, write

from exhume.audit import Store, Summary, summarise
from exhume.runlog.run import Run
from exhume.runlog.strongest import by_error, by_success, errors_on, filled

GUESS = Attempt("oblivious", (0.3,), baseline=True)


def run_of(folder: Path, *attempts: Attempt) -> Run:
    """A run with one setting; attacks in the plan's order, the threshold at 0.2."""
    write(folder, Made("one", attempts, count=4))
    with Store.open(folder) as store:
        return store.run()


def names(rows: object) -> list[str]:
    return [row.attack for row in rows]  # type: ignore[attr-defined]


def summary_of(folder: Path, *attempts: Attempt) -> Summary:
    return summarise(run_of(folder, *attempts))


def test_success_decides_and_then_the_error(tmp_path: Path) -> None:
    """Two of four targets beat one; of two with as many, the smaller error; guesses not at all."""
    found = summary_of(
        tmp_path / "run",
        Attempt("often", (0.1, 0.1, 0.9, 0.9)),
        Attempt("closer", (0.1, 0.1, 0.4, 0.4)),
        Attempt("seldom", (0.01, 0.21, 0.21, 0.21)),
        Attempt("guess", (0.0,), baseline=True),
    )
    assert names(by_success(found.rows)) == ["closer", "often", "seldom"]
    assert found.brackets[0].attack == "closer"
    assert names(by_error(found.rows)) == ["guess", "seldom", "closer", "often"]


def test_of_equals_the_first_in_the_plan(tmp_path: Path) -> None:
    same = (0.1, 0.3, 0.1, 0.3)
    found = summary_of(tmp_path / "run", Attempt("zeta", same), Attempt("alpha", same), GUESS)
    assert names(by_success(found.rows)) == ["zeta", "alpha"]
    assert names(by_error(found.rows)) == ["zeta", "alpha", "oblivious"]


def test_success_counts_trials_that_ran_and_the_error_all_of_them(tmp_path: Path) -> None:
    """It rebuilt the only target that it ran on; on the others the guess stands for it."""
    ended = ("CONVERGED", "REFUSED", "REFUSED", "REFUSED")
    found = summary_of(
        tmp_path / "run",
        Attempt("steady", (0.1, 0.1, 0.1, 0.25)),
        Attempt("choosy", (0.05, None, None, None), ended),
        GUESS,
    )
    assert names(by_success(found.rows)) == ["choosy", "steady"]
    assert names(by_error(found.rows)) == ["steady", "choosy", "oblivious"]
    errors = {row.attack: row.error for row in found.rows}
    assert errors["choosy"] == pytest.approx((0.05 + 3 * 0.3) / 4)
    assert errors["steady"] == pytest.approx((3 * 0.1 + 0.25) / 4)


def test_what_left_nothing_has_no_error(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", Attempt("mute", (None,), ("NO_INFORMATION",)), GUESS)
    found = summarise(run)
    assert names(by_success(found.rows)) == ["mute"]
    assert names(by_error(found.rows)) == ["oblivious"]
    errors = errors_on(run.outcomes)
    assert errors is not None
    assert errors.answered
    assert errors.means == {"oblivious": pytest.approx(0.3)}


def test_the_best_guess_fills_gaps() -> None:
    nan = np.nan
    errors = {
        "good": np.array([0.1, nan]),
        "empty": np.array([nan, nan]),
        "far": np.array([0.9, 0.9]),
        "near": np.array([0.2, 0.4]),
    }
    found = filled(errors, {"far", "near"})
    assert {name: own.tolist() for name, own in found.items()} == {
        "good": [0.1, 0.4],
        "far": [0.9, 0.9],
        "near": [0.2, 0.4],
    }
    assert set(filled(errors, ())) == {"far", "near"}
