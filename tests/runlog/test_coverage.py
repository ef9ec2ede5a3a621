"""What a result rests on: which attacks ran, and what each of the others lacked."""

from __future__ import annotations

import pickle

import pytest

from exhume.protocol.attack import Lacking, refused
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.runlog.coverage import coverage
from exhume.runlog.outcome import Outcome, Trial
from exhume.runlog.summary import Row, attack_rows


def outcomes(attack: str, *statuses: str, message: str = "", error: float = 0.5) -> list[Outcome]:
    return [
        Outcome(
            Trial("one", attack, target, 0, attack),
            status,
            message,
            success=None,
            distance=None,
            threshold=None,
            scores={"rmse": None if status == "NO_INFORMATION" else error},
            baseline=attack == "oblivious",
        )
        for target, status in enumerate(statuses)
    ]


def rows(*parts: list[Outcome]) -> list[Row]:
    return attack_rows("one", [outcome for part in parts for outcome in part])


def test_every_attack_that_did_not_run_is_named_with_what_would_help() -> None:
    found = coverage(
        rows(
            outcomes("kkt", "CONVERGED", "CONVERGED"),
            outcomes("ridge", "UNINFORMED", "UNINFORMED", message="no shadows: add data.x"),
            outcomes("glm", "REFUSED", "REFUSED", message="a linear model is needed"),
            outcomes("bilevel", "CRASHED", "NOT_CONVERGED", message="ZeroDivisionError"),
            outcomes("oblivious", "CONVERGED", "CONVERGED"),
        )
    )
    assert found.describe() == (
        "1 of 4 attacks ran; 1 lacked information; 1 did not apply to this release; 1 failed.",
        "Information missing: ridge: no shadows: add data.x.",
        "Failed: bilevel: ZeroDivisionError.",
        "Not applicable: glm: a linear model is needed.",
    )
    assert found.brief() == found.describe()[:-1]


def test_where_nothing_ran_every_reason_is_said() -> None:
    found = coverage(
        rows(
            outcomes("row-space", "REFUSED", message="the first layer must be fully connected"),
            outcomes("oblivious", "CONVERGED"),
        )
    )
    assert found.brief() == (
        "0 of 1 attacks ran; 1 did not apply to this release.",
        "Not applicable: row-space: the first layer must be fully connected.",
    )


def test_results_without_candidates_are_counted_apart() -> None:
    nothing = outcomes("ridge", "NO_INFORMATION", "NO_INFORMATION")
    found = coverage(rows([*nothing, *outcomes("ridge", "CONVERGED")]))
    assert found.brief() == (
        "1 of 1 attacks ran.",
        "No candidate: ridge ended without one on 2 of 3 targets.",
    )


def test_an_attack_that_ran_on_some_targets_ran() -> None:
    assert coverage(rows(outcomes("kkt", "REFUSED", "CONVERGED"))).ran == ("kkt",)


def test_guesses_alone_are_no_evidence() -> None:
    (said,) = coverage(rows(outcomes("oblivious", "CONVERGED"))).describe()
    assert said == "No attack was asked for: blind guesses alone are no evidence."


def test_a_missing_fact_comes_back_from_a_worker_as_it_was() -> None:
    found = pickle.loads(pickle.dumps(Lacking("no labels", "knowledge.labels")))
    assert isinstance(found, Lacking)
    assert found == "no labels: add knowledge.labels"


@pytest.mark.parametrize(
    ("reason", "status"),
    [("made for others", Status.REFUSED), (Lacking("no labels", "knowledge.labels"), "UNINFORMED")],
)
def test_not_applicable_and_uninformed_are_two_things(reason: str, status: object) -> None:
    found = refused(Knowledge(record_shape=(3,)), reason)
    assert found.status.name == getattr(status, "name", status)
    assert not found.status.ran
    assert found.message == str(reason)
