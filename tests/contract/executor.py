"""What every executor keeps to. Inherit, and give the fixture ``executor``."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.audit import small

from exhume.audit import Executor, Plan, Record
from exhume.audit.plan import Unit
from exhume.audit.trial import Batch, run_unit
from exhume.errors import InputError

Ran = list[tuple[Unit, list[Batch]]]
Outcome = dict[str, tuple[Record, dict[str, tuple[str, bytes]]]]

# 3 settings × 20 targets are 6 units of 16 and 4 targets; one attack draws, one always crashes.
_AUDIT = (small.PLAIN, small.SCALED, small.NOISY, small.audit(20, seed=5))
_EXTRA = (small.Drawing(), small.Raising())


class ExecutorContract:
    """The contract: who does the work must not show."""

    executor: ClassVar[Executor]

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
        """A plan with everything in it that might go differently elsewhere."""
        return small.plan(*_AUDIT, extra=_EXTRA)

    @pytest.fixture(scope="class")
    @classmethod
    def ran(cls, everything: Plan) -> Ran:
        """One whole run, shared by the tests that only look at it."""
        return list(cls.executor.run(everything, everything.units(), frozenset()))

    def test_every_unit_exactly_once(self, ran: Ran, everything: Plan) -> None:
        units = [unit for unit, _ in ran]
        assert len(units) == len(set(units)) == 6
        assert set(units) == set(everything.units())
        keys = [r.trial.key for _, batches in ran for b in batches for r in b.records]
        assert len(keys) == len(set(keys))
        assert set(keys) == small.expected_keys(everything)

    def test_the_same_bit_for_bit(self, ran: Ran, everything: Plan) -> None:
        """Against the work done by hand, last unit first."""
        by_hand = [(u, run_unit(everything, u, frozenset())) for u in everything.units()[::-1]]
        small.same(outcome(ran), outcome(by_hand))

    def test_an_error_is_on_record(self, ran: Ran) -> None:
        found = [r for _, batches in ran for b in batches for r in b.records]
        crashed = [r for r in found if r.trial.attack == "raising"]
        assert len(crashed) == 60
        assert {(r.status, r.message) for r in crashed} == {
            ("CRASHED", "ZeroDivisionError: on purpose")
        }
        assert not any(r.success for r in crashed)
        assert all(r.status != "CRASHED" for r in found if r.trial.attack != "raising")

    def test_what_is_done_is_left_alone_in_any_order(self, ran: Ran, everything: Plan) -> None:
        """Another order of units, with two attacks done already: the rest comes out the same."""
        done = frozenset(
            record.trial.key
            for _, batches in ran
            for batch in batches
            for record in batch.records
            if record.trial.attack in ("glm", "oblivious")
        )
        order = np.random.default_rng(1).permutation(6)
        units = [everything.units()[i] for i in order]
        again = outcome(self.executor.run(everything, units, done))
        assert set(again) == small.expected_keys(everything) - done
        small.same(again, {key: value for key, value in outcome(ran).items() if key in again})

    def test_stopping_the_iteration_stops_the_work(self, tmp_path: Path) -> None:
        """With one target a unit: a few may be on their way, the others are never begun."""
        slow = small.plan(
            *(small.PLAIN.replace("plain", f"plain {i}") for i in range(16)),
            small.audit(1),
            extra=(small.Marking(str(tmp_path), pause=0.05),),
        )
        running = self.executor.run(slow, slow.units(), frozenset())
        next(iter(running))
        running.close()  # type: ignore[attr-defined]
        begun = len(list(tmp_path.iterdir()))
        assert 1 <= begun <= 12
        time.sleep(0.3)
        assert len(list(tmp_path.iterdir())) == begun
        assert multiprocessing.active_children() == []

    def test_an_impossible_setting_is_refused_in_one_line(self) -> None:
        impossible = small.plan(small.PLAIN.replace("breast-cancer", "no such"), small.audit(1))
        with pytest.raises(InputError, match="setting 'plain': no data set is called 'no such'"):
            list(self.executor.run(impossible, impossible.units(), frozenset()))

    def test_nothing_to_do(self, everything: Plan) -> None:
        assert list(self.executor.run(everything, [], frozenset())) == []


def outcome(ran: Iterable[tuple[Unit, list[Batch]]]) -> Outcome:
    """Every record by its key, without its seconds, and its batch's arrays as bytes."""
    found: Outcome = {}
    for _, batches in ran:
        for batch in batches:
            arrays = {n: (str(a.dtype), a.tobytes()) for n, a in batch.arrays.items()}
            for record in batch.records:
                found[record.trial.key] = (replace(record, seconds=0.0), arrays)
    return found
