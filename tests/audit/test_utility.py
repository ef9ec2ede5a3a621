"""Trainings with defences in the loop, as part of an audit: kept, resumed, the same everywhere."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.audit import small
from tests.cli.command import invoke
from tests.runlog.test_summary_numbers import TRADEOFF
from tests.runlog.test_summary_numbers import _departures as departures

from exhume.audit import Executor, Plan, Processes, Serial, Store, run, summarise
from exhume.audit.costs import Estimate, done_in, tried
from exhume.audit.stages.attack import AttackTrials
from exhume.audit.stages.expense import Cost, Expense, FinishedWork
from exhume.audit.stages.measure import Preparation
from exhume.audit.stages.train import (
    Trainings,
    TrainingTask,
    train,
    training_tasks,
    trainings_left,
    utility_records,
)
from exhume.config import UtilityTable
from exhume.protocol.errors import InputError
from exhume.runlog.setting import VictimTraining
from exhume.stats.means import mean_interval

pytestmark = pytest.mark.slow

GRID = """
[[setting]]
name = "digits"
targets = 4
attacks = ["first-layer"]
data = { name = "digits", shadow_targets = 50 }
release = { kind = "gradient", model = "mlp", hidden = [12], batch_size = 2 }
knowledge = { labels = true }
[setting.utility]
rounds = 40
batch_size = 8
clients = 2
learning_rate = 0.3
records = 300
test = 200
seeds = 2
[setting.grid]
"noise" = [{ name = "noise", size = 1.0 }]
"prune" = [{ name = "pruning", share = 0.9 }]
"""
DP = 'name = "dp-sgd", norm = 1.0, noise_multiplier = 0.5'


def changed(**values: str) -> str:
    """The grid with other values in [utility]; a new key is added."""
    text = GRID
    for key, value in values.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{key} = ")]
        if len(lines) == len(text.splitlines()):
            lines = text.splitlines()
        place = lines.index("[setting.utility]") + 1
        text = "\n".join([*lines[:place], f"{key} = {value}", *lines[place:]])
    return text


def trainings(folder: Path) -> dict[str, tuple[VictimTraining, ...]]:
    """The outcomes without how long they took."""
    with Store.open(folder) as store:
        settings = store.settings()
    return {s.name: tuple(replace(r, seconds=0.0) for r in s.trainings) for s in settings}


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serial") / "run"
    run(small.plan(GRID), folder, Serial())
    return folder


def test_every_setting_is_trained_from_every_seed(serial: Path) -> None:
    found = trainings(serial)
    assert list(found) == ["digits", "digits, noise", "digits, prune"]
    assert all([one.seed for one in runs] == [0, 1] for runs in found.values())
    plain, noisy = found["digits"], found["digits, noise"]
    for one, other in zip(plain, noisy, strict=True):
        assert one.training_loss is not None
        assert other.training_loss is not None
        assert one.accuracy is not None
        assert one.accuracy > 0.6
        assert other.training_loss > one.training_loss + 0.05
        assert (one.rounds, one.epsilon, one.delta) == (40, None, None)


def test_a_private_training_says_what_it_guarantees() -> None:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    found = train(small.plan(GRID.replace('name = "pruning", share = 0.9', DP)), TrainingTask(2, 0))
    # 300 records in rounds of 16: 18 rounds an epoch, so every record takes part three times.
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(0.5), 3)
    exact = PLDAccountant().compose(event).get_epsilon(1e-5)
    assert found.epsilon == pytest.approx(exact, rel=1e-3)
    assert found.delta == 1e-5


def test_workers_get_the_same_bits(serial: Path, tmp_path: Path) -> None:
    run(small.plan(GRID), tmp_path / "run", Processes(2))
    assert trainings(tmp_path / "run") == trainings(serial)


def test_the_summary_judges_the_grid(serial: Path) -> None:
    with Store.open(serial) as store:
        found = summarise(store.run()).tradeoffs
    assert [(t.metric, t.measure) for t in found] == [
        ("rmse", "accuracy"),
        ("rmse", "training loss"),
    ]
    everything = small.strict_json(serial / "summary.json")["tradeoffs"]
    assert not [wrong for one in everything for wrong in departures(one, TRADEOFF, "tradeoff")]
    plain = everything[0]
    assert [p["defence"] for p in plain["points"]] == ["", "noise", "prune"]
    assert plain["points"][1]["utility"]["mean"] > 0
    assert plain["points"][1]["rate"] == pytest.approx(2.0)
    assert [w["utility_loss"] for w in plain["winners"]] == [0.01, 0.05, 0.1]


@dataclass(frozen=True)
class Stopping(Executor):
    """Works on so many trainings, and is then interrupted."""

    count: int

    def at_once(self) -> int:
        return 1

    @property
    def shares_files(self) -> bool:
        return False

    def map(
        self, work: Callable[[Any, Any], Any], common: Any, tasks: Sequence[Any]
    ) -> Generator[tuple[int, Any]]:
        for place, task in enumerate(tasks):
            if place == self.count:
                raise KeyboardInterrupt
            yield place, work(common, task)


def test_a_stopped_run_goes_on_where_it_was(
    serial: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, folder = small.plan(GRID), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(plan, folder, Stopping(3))
    with Store.open(folder) as store:
        left = trainings_left(plan, store.settings())
    assert left == training_tasks(plan)[3:]
    done: list[TrainingTask] = []
    real = train

    def noted(plan: Plan, task: TrainingTask) -> VictimTraining:
        done.append(task)
        return real(plan, task)

    monkeypatch.setattr("exhume.audit.stages.train.train", noted)
    told: list[tuple[int, int]] = []
    run(plan, folder, Serial(), progress=lambda *counts: told.append(counts))
    assert done == left
    assert trainings(folder) == trainings(serial)
    # Six trainings; four targets in three settings under an attack and two guesses.
    assert told[-1] == (42, 42)
    assert (4, 42) in told
    assert [count for count, _ in told[1:]] == sorted(count for count, _ in told[1:])


def test_a_defence_that_does_nothing_costs_nothing() -> None:
    """The start, the batches and the test records are those of the undefended training."""
    quiet = GRID.replace("size = 1.0", "size = 1e-30")
    plan = small.plan(quiet)
    plain, noisy = (train(plan, TrainingTask(index, 1)) for index in (0, 1))
    assert replace(plain, seconds=0.0) == replace(noisy, seconds=0.0)
    other = train(plan, TrainingTask(0, 0))
    assert other.training_loss != plain.training_loss


def test_a_training_may_start_where_the_release_was_taken() -> None:
    warm = changed(start='"released"', rounds="1", learning_rate="1e-9").replace(
        "batch_size = 2 }", "batch_size = 2, warm_up = { steps = 150 } }"
    )
    accuracy = train(small.plan(warm), TrainingTask(0, 0)).accuracy
    fresh = train(small.plan(warm.replace('"released"', '"initialisation"')), TrainingTask(0, 0))
    assert accuracy is not None
    assert fresh.accuracy is not None
    assert accuracy > fresh.accuracy + 0.2


def test_diverged_is_a_result_too(tmp_path: Path) -> None:
    wild = changed(learning_rate="1e30", seeds="1")
    summary = run(small.plan(wild), tmp_path / "run", Serial())
    found = trainings(tmp_path / "run")["digits"]
    assert found[0] == VictimTraining(0, None, None, None, diverged=True, rounds=40)
    assert summary.tradeoffs[0].measure == ""
    small.strict_json(tmp_path / "run" / "summary.json")


def test_nobody_in_the_threat_model_has_the_records() -> None:
    plan = small.plan(GRID)
    setting, table = plan.setting(0), plan.config.setting[0].utility
    assert table is not None
    data, test = utility_records(setting, table, 0)
    assert (len(data), len(test)) == (300, 200)
    assert setting.targets is not None
    assert setting.shadow_targets is not None
    sets = [{x.tobytes() for x in np.asarray(part.x)} for part in (data, test)]
    known = {
        x.tobytes() for p in (setting.targets, setting.shadow_targets) for x in np.asarray(p.x)
    }
    assert not sets[0] & sets[1]
    assert not (sets[0] | sets[1]) & known


def test_too_few_records_are_refused_before_anything_is_trained() -> None:
    plan = small.plan(changed(records="1700"))
    with pytest.raises(InputError, match=r"'digits', utility: records = 1700 and test = 200 .* 17"):
        train(plan, TrainingTask(0, 0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (changed(rounds="0"), "rounds"),
        (changed(poisson="true"), "clients = 1"),
        (changed(path='"opacus"'), "poisson = true"),
        (changed(speed="1"), "speed"),
        (changed(momentum="1.0"), "momentum"),
        (
            '[[setting]]\ndata = { name = "digits" }\nrelease = { model = "multinomial" }\n'
            "utility = { rounds = 1, learning_rate = 1.0, records = 10, test = 10 }",
            "trains on gradients or updates",
        ),
    ],
)
def test_what_a_file_may_not_say(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        small.config(text)


def test_utility_changes_no_trial() -> None:
    """An attack knows nothing of how long the victim will be trained."""
    one, other = small.plan(GRID), small.plan(changed(rounds="7"))
    assert one.identity != other.identity
    assert small.expected_keys(one) == small.expected_keys(other)


def test_a_plan_counts_trainings_and_knows_what_they_took(serial: Path) -> None:
    plan, one = small.plan(GRID), Trainings(1)
    fresh, nothing = tried(plan, one), Cost(0.0, 0.0, 1)
    costs: dict[Expense, Cost] = {Trainings(index): nothing for index in (0, 2)}
    costs |= {Preparation(index): nothing for index in range(3)}
    costs |= {AttackTrials(index, place): nothing for index in range(3) for place in range(3)}
    estimate = Estimate(plan, {**costs, one: fresh}, workers=2)
    assert (one.planned(plan), one.left(estimate)) == (2, 2)
    assert fresh.each > 0.0
    assert estimate.total() == pytest.approx(fresh.each)
    done = done_in(serial)
    assert {name: len(seconds) for name, seconds in done.trained.items()} == {
        "digits": 2,
        "digits, noise": 2,
        "digits, prune": 2,
    }
    rest = Estimate(
        plan, {one: fresh}, FinishedWork(done.keys, trained={"digits, noise": (1.0,)}), 2
    )
    assert one.left(rest) == 1
    assert one.seconds(rest) == fresh.each


def test_the_commands_say_what_it_takes_and_who_wins(tmp_path: Path) -> None:
    file, out = tmp_path / "grid.toml", tmp_path / "run"
    grid = changed(seeds="1", rounds="20")
    file.write_text("\n".join(line for line in grid.splitlines() if not line.startswith('"prune"')))
    done = invoke("audit", file, "--out", out, "--quiet", "--executor", "serial")
    assert done.code == 0, done.err
    for level in ("1 point", "5 points", "10 points"):
        assert f"digits, at a loss of at most {level} of accuracy: " in done.out
    planned = invoke("audit", file, "--out", out, "--plan", "--quiet")
    assert planned.code == 0, planned.err
    assert planned.out.count("(training") == 2


@pytest.mark.skipif(importlib.util.find_spec("opacus") is None, reason="Opacus is not installed")
def test_private_settings_may_be_trained_by_opacus() -> None:
    private = DP.replace("0.5", "0.2")
    shared = {"clients": "1", "poisson": "true", "learning_rate": "0.5", "rounds": "80"}
    ours, theirs = (
        small.plan(changed(**shared, path=path).replace('name = "pruning", share = 0.9', private))
        for path in ('"exhume"', '"opacus"')
    )
    one, other = (train(plan, TrainingTask(2, 0)) for plan in (ours, theirs))
    assert one.epsilon == other.epsilon
    assert one.training_loss != other.training_loss
    assert one.accuracy == pytest.approx(other.accuracy, abs=0.15)
    plain = [replace(train(plan, TrainingTask(0, 0)), seconds=0.0) for plan in (ours, theirs)]
    assert plain[0] == plain[1]


def test_intervals_over_seeds_hold_what_they_say() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(1000):
        found = mean_interval(rng.normal(1.0, 0.2, 3).tolist())
        assert math.isfinite(found.half)
        held += found.low <= 1.0 <= found.high
    # Binomial(1000, 0.95) lies outside 920–976 once in several thousand times.
    assert 920 < held < 976


def test_the_table_says_what_is_left_out() -> None:
    table = UtilityTable(rounds=5, learning_rate=0.1, records=10, test=10)
    assert (table.seeds, table.clients, table.batch_size) == (3, 1, None)
