"""The leaderboard: what counts as an attack, how sure a share is, every defence with a utility."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exhume.runlog.codec import decoded, encoded
from exhume.runlog.summary import Row, Summary
from exhume.stats.proportions import pooled_share
from exhume.studies import Scale, find
from exhume.studies.defended import counted, defences
from exhume.studies.leaderboard import (
    _compare,
    _counted,
    _Entry,
    leaderboard,
)
from exhume.studies.reading import StudyRun

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def row(attack: str, *, setting: str = "one", error: float = 0.1, **others: object) -> Row:
    success = {"successes": 2, "trials": 5}
    metrics = {"mse": {"mean": error, "median": error}}
    plain = {
        "setting": setting,
        "attack": attack,
        "success": success,
        "metrics": metrics,
        "error": error**0.5,
    }
    counts = {"trials": 5, "seconds": 1.0, "statuses": {"CONVERGED": 5}}
    return decoded(Row, {**plain, **counts, **others})


class TestShares:
    def test_one_setting_has_the_targets_own_interval(self):
        # Clopper and Pearson for 2 of 5: R's binom.test(2, 5).
        reach = pooled_share([(2, 5)])
        assert (reach.low, reach.high) == pytest.approx((0.0527450, 0.8533672), abs=1e-6)

    def test_settings_that_differ_make_it_wider_than_their_targets_do(self):
        alike, apart = pooled_share([(50, 100)] * 4), pooled_share([(0, 100), (100, 100)] * 2)
        assert alike.high - alike.low < 0.12
        assert apart.high - apart.low > 0.8

    def test_it_stays_between_nothing_and_all(self):
        assert pooled_share([(0, 4), (0, 4)]).low == 0.0
        assert pooled_share([(4, 4), (4, 4)]).high == 1.0


class TestCounting:
    def test_what_an_attack_gave_up_on_is_not_rebuilt_and_what_it_cannot_take_not_counted(self):
        given_up = row("a", success=None, statuses={"NOT_CONVERGED": 5})
        refused = row("a", success=None, statuses={"REFUSED": 5})
        assert counted(given_up) == (0, 5)
        assert counted(refused) == (0, 0)

    def test_attacks_are_compared_where_both_of_them_ran(self):
        entries = {name: _Entry() for name in "abc"}
        _compare([row("a", error=0.1), row("b", error=0.2)], entries)
        _compare([row("a", error=0.3), row("b", error=0.2), row("c", error=0.2)], entries)
        assert (entries["a"].won, entries["a"].compared) == (1.0, 3)
        assert (entries["b"].won, entries["c"].won) == (1.5, 1.5)

    def test_nobody_wins_where_no_attack_worked(self):
        failed = {"statuses": {"NOT_CONVERGED": 5}}
        guess = row("oblivious", error=0.1, baseline=True)
        entries = {name: _Entry() for name in ("oblivious", "kkt", "bilevel")}
        _compare([guess, row("kkt", error=0.3, **failed), row("bilevel", **failed)], entries)
        assert all(entry.compared == 0 for entry in entries.values())
        # An attack that claims success, and is worse than the guess, has lost to it.
        _compare([guess, row("kkt", error=0.3)], entries)
        assert (entries["oblivious"].won, entries["kkt"].compared) == (1.0, 1)

    def test_settings_that_study_a_start_are_left_out(self):
        part = find("runkel2024", "initialisation")
        config = part.config(part.size(Scale.SMOKE), seed=0)
        plain = config.setting[0].model_copy(update={"start": None, "name": "its own start"})
        config = config.model_copy(update={"setting": (*config.setting, plain)})
        rows = [row("bilevel", setting=table.name) for table in config.setting]
        summary = decoded(Summary, {"rows": encoded(rows)})
        run = StudyRun("runkel2024", part.name, "smoke", {}, 0, (), summary)
        assert [table.name for table, _ in _counted(run, config)] == ["its own start"]

    def test_an_attack_without_a_part_of_it_is_left_out(self):
        part = find("liu2024", "ablation")
        size = part.size(Scale.SMOKE)
        config = part.config(size, seed=0)
        rows = [row("liu", setting=table.name) for table in config.setting]
        run = StudyRun(
            "liu2024",
            part.name,
            "smoke",
            size.plain(),
            0,
            (),
            decoded(Summary, {"rows": encoded(rows)}),
        )
        assert [table.name for table, _ in _counted(run, config)] == ["B=2, all parts"]


class TestPage:
    def test_headings_are_written_alike(self):
        headings = re.findall(r"^## (.*)$", leaderboard(RESULTS), re.MULTILINE)
        assert len(headings) > 3
        assert all(heading[0].isupper() for heading in headings)

    def test_blind_guesses_stand_after_the_attacks(self):
        for table in leaderboard(RESULTS).split("\n## ")[1:]:
            guesses = [line.startswith("| *") for line in table.splitlines() if line[:2] == "| "]
            assert guesses == sorted(guesses), table

    def test_every_defended_setting_with_a_utility_is_on_it(self):
        part = find("liu2024", "utility")
        size = part.size(Scale.SMOKE)
        config = part.config(size, seed=0)
        names = [table.name for table in config.setting]
        facts = [trained(name, 0.5 if name == "B=2" else 0.4) for name in names]
        plain = {
            "settings": facts,
            "rows": encoded([row("liu", setting=name, error=0.04) for name in names]),
            "brackets": [{"setting": name, "ceiling": None} for name in names],
        }
        run = StudyRun("liu2024", "utility", "smoke", size.plain(), 0, (), decoded(Summary, plain))
        table = defences([(run, config)])
        lines = [line for line in table.splitlines() if "liu2024 utility, " in line]
        assert len(lines) == len(names) - 1 == 5
        # 40 % of 50 %: four fifths are kept; an MSE of .04 is an RMSE of .2.
        assert all("| 80% | 40% | 1.50 | liu | .200 |" in line for line in lines)


def trained(name: str, accuracy: float) -> dict:
    once = {"accuracy": accuracy, "training_loss": 1.5}
    return {"name": name, "group": "B=2", "defence": "", "utility": None, "trainings": [once, once]}
