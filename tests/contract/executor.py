"""The contract of every executor. Inherit, and provide the fixture ``executor``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.audit import small
from tests.cli.command import finish, invoke, start_held

from exhume.audit import Executor, Outcome, Plan, run
from exhume.audit.plan import Unit
from exhume.audit.stages.attack import Batch, attack_job, run_unit
from exhume.protocol.errors import ExhumeError, InputError

Ran = list[tuple[Unit, list[Batch]]]
Kept = dict[str, tuple[Outcome, dict[str, tuple[str, bytes]]]]

# 3 settings × 20 targets are 6 units of 16 and 4 targets; one attack is random, one always crashes.
PLAIN, SCALED, NOISY = map(small.from_file, (small.PLAIN, small.SCALED, small.NOISY))
_AUDIT = (PLAIN, SCALED, NOISY, small.audit(20, seed=5))
_EXTRA = (small.Drawing(), small.Raising())
TRIALS = 3 * 160
LONG = NOISY + small.audit(TRIALS // 3, seed=1)


class ExecutorContract:
    """The contract: results must not depend on the executor."""

    executor: ClassVar[Executor]
    options: ClassVar[tuple[str, ...]]
    """Its options on the command line."""
    outside: ClassVar[bool] = True
    """Whether the work runs in other processes, which may be killed."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def importable(cls) -> Iterator[None]:
        """Other processes import the attacks of these tests by name."""
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(str(Path(__file__).parents[2]))
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def everything(cls) -> Plan:
        """A plan with everything that might differ in another process."""
        return small.plan(*_AUDIT, extra=_EXTRA)

    @pytest.fixture(scope="class")
    @classmethod
    def ran(cls, everything: Plan) -> Ran:
        """One complete run, shared by the tests that only read it."""
        return list(ran_on(cls.executor, everything, everything.units(), frozenset()))

    def test_every_unit_exactly_once(self, ran: Ran, everything: Plan) -> None:
        units = [unit for unit, _ in ran]
        assert len(units) == len(set(units)) == 6
        assert set(units) == set(everything.units())
        keys = [r.trial.key for _, batches in ran for b in batches for r in b.outcomes]
        assert len(keys) == len(set(keys))
        assert set(keys) == small.expected_keys(everything)

    def test_the_same_bit_for_bit(self, ran: Ran, everything: Plan) -> None:
        """Compared with the work done serially, last unit first."""
        by_hand = [(u, run_unit(everything, u, frozenset())) for u in everything.units()[::-1]]
        small.same(outcome(ran), outcome(by_hand))

    def test_an_error_is_on_record(self, ran: Ran) -> None:
        found = [r for _, batches in ran for b in batches for r in b.outcomes]
        crashed = [r for r in found if r.trial.attack == "raising"]
        assert len(crashed) == 60
        assert {(r.status, r.message) for r in crashed} == {
            ("CRASHED", "ZeroDivisionError: on purpose")
        }
        assert not any(r.success for r in crashed)
        assert all(r.status != "CRASHED" for r in found if r.trial.attack != "raising")

    def test_what_is_done_is_left_alone_in_any_order(self, ran: Ran, everything: Plan) -> None:
        """In another order of units, with two attacks already done, the rest is the same."""
        done = frozenset(
            record.trial.key
            for _, batches in ran
            for batch in batches
            for record in batch.outcomes
            if record.trial.attack in ("glm", "oblivious")
        )
        order = np.random.default_rng(1).permutation(6)
        units = [everything.units()[i] for i in order]
        again = outcome(ran_on(self.executor, everything, units, done))
        assert set(again) == small.expected_keys(everything) - done
        small.same(again, {key: value for key, value in outcome(ran).items() if key in again})

    def test_stopping_the_iteration_stops_the_work(self, tmp_path: Path) -> None:
        """With one target per unit: a few are held in the middle of it, the others never start."""
        held = small.plan(
            *(PLAIN.replace("plain", f"plain {i}") for i in range(16)),
            small.audit(1),
            extra=(small.Holding(str(tmp_path)),),
        )
        try:
            running = ran_on(self.executor, held, held.units(), frozenset())
            next(iter(running))
            running.close()
            begun = len(list(tmp_path.glob("*-*")))
            # Submitted at most: twice as many as two CPUs can do, and one for the answered one.
            assert 1 <= begun <= 5
            time.sleep(0.3)
            assert len(list(tmp_path.glob("*-*"))) == begun
            assert multiprocessing.active_children() == []
        finally:
            # A cluster may lose the word to stop: what it still holds must not block other tests.
            (tmp_path / "released").touch()

    def test_an_impossible_setting_is_refused_in_one_line(self) -> None:
        impossible = small.plan(small.PLAIN.replace("breast-cancer", "no such"), small.audit(1))
        with pytest.raises(InputError, match="setting 'plain': no data set is called 'no such'"):
            list(ran_on(self.executor, impossible, impossible.units(), frozenset()))

    def test_a_killed_worker_loses_nothing(self, tmp_path: Path) -> None:
        """A worker gets SIGKILL in the middle of a trial, as if memory ran out."""
        if not self.outside:
            pytest.skip("it works in the process that would be killed")
        plan = small.plan(PLAIN, small.audit(48), extra=(small.Dying(str(tmp_path), 2),))
        ran = list(ran_on(self.executor, plan, plan.units(), frozenset()))
        assert len(list(tmp_path.iterdir())) == 2, "nobody was killed"
        assert sorted(unit.targets[0] for unit, _ in ran) == [0, 16, 32]
        by_hand = [(u, run_unit(plan, u, frozenset())) for u in plan.units()]
        small.same(outcome(ran), outcome(by_hand))

    def test_work_that_kills_every_worker_is_an_error_in_one_line(self, tmp_path: Path) -> None:
        if not self.outside:
            pytest.skip("it works in the process that would be killed")
        plan = small.plan(PLAIN, small.audit(3), extra=(small.Dying(str(tmp_path), 99),))
        with pytest.raises(ExhumeError, match="setting 'plain', targets 0 to 2: its ") as caught:
            list(ran_on(self.executor, plan, plan.units(), frozenset()))
        assert "3 times (out of memory?); finished trials are kept" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(list(tmp_path.iterdir())) == 3

    def test_progress_is_told(self, tmp_path: Path) -> None:
        plan = small.plan(PLAIN, small.audit(40))
        told: list[tuple[int, int]] = []
        run(plan, tmp_path / "run", self.executor, progress=lambda *counts: told.append(counts))
        # Its three units, of 16, 16 and 8 targets under three attacks, may finish in any order.
        assert told[0] == (0, 120)
        assert told[-1] == (120, 120)
        assert len(told) == 4
        assert told == sorted(told)

    @pytest.mark.slow
    def test_a_killed_and_an_interrupted_driver_are_gone_on_with(
        self, tmp_path: Path, undisturbed: Path
    ) -> None:
        """Stopped by kill -9, then by Ctrl-C, then run to the end: nothing is lost or repeated."""
        toml = tmp_path / "audit.toml"
        toml.write_text(LONG)
        out = tmp_path / "run"
        kept = self._stopped_twice(toml, out)
        found = invoke("audit", toml, "--out", out, *self.options)
        assert (found.code, found.err) == (0, ""), found
        assert (out / "report.html").is_file()
        assert kept.items() <= small.seconds(out).items(), "something was lost or done twice"
        small.same(small.outcome(out), small.outcome(undisturbed))
        small.same(small.artefacts(out), small.artefacts(undisturbed))

    def _stopped_twice(self, toml: Path, out: Path) -> dict[str, float]:
        """Return the results of two stopped runs."""
        kept: dict[str, float] = {}
        for sign, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
            process = start_held("audit", toml, "--out", out, *self.options, batches=4)
            small.wait_for_more(out, len(kept), process)
            # Like a terminal: Ctrl-C reaches the whole process group.
            (os.kill if sign == signal.SIGKILL else os.killpg)(process.pid, sign)
            stopped = finish(process)
            small.assert_workers_left(process.pid)
            now = small.seconds(out)
            assert stopped.code == code, stopped
            assert kept.items() <= now.items(), "something was lost or done twice"
            assert len(kept) < len(now) < TRIALS
            kept = now
        assert stopped.err == ""
        assert stopped.out.splitlines()[-1] == (
            f"stopped; finished trials are kept in {out}: run the same command to resume"
        )
        verdict = invoke("gate", out, "--max-success", "1")
        assert (verdict.code, "not finished" in verdict.out) == (1, True)
        return kept

    def test_nothing_to_do(self, everything: Plan) -> None:
        assert list(ran_on(self.executor, everything, [], frozenset())) == []


def ran_on(
    executor: Executor, plan: Plan, units: Sequence[Unit], done: frozenset[str]
) -> Generator[tuple[Unit, list[Batch]]]:
    """Yield each unit with what came out of it, as the stage of attacks runs them."""
    job = attack_job(plan, units, done, lambda task, batches: 0)
    with closing(job.results(executor)) as results:
        for task, batches in results:
            yield task.unit, batches


def outcome(ran: Iterable[tuple[Unit, list[Batch]]]) -> Kept:
    """Return every record by its key, without its seconds, and its batch's arrays as bytes."""
    found: Kept = {}
    for _, batches in ran:
        for batch in batches:
            arrays = {n: (str(a.dtype), a.tobytes()) for n, a in batch.arrays.items()}
            for record in batch.outcomes:
                found[record.trial.key] = (replace(record, seconds=0.0), arrays)
    return found
