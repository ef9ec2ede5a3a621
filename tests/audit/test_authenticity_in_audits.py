"""Is it real? The judge inside an audit: verdicts, its figures, and who did the work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from exhume.audit import Processes, Serial, make_plan, run
from exhume.audit.costs import Estimate, done_in
from exhume.audit.stages import STAGES
from exhume.audit.stages.attack import AttackTrials
from exhume.audit.stages.expense import Cost
from exhume.audit.stages.judge import JudgeCandidates, Judging
from exhume.audit.stages.judge_networks import held_out_records, own_split
from exhume.audit.stages.measure import Preparation
from exhume.config import Config, parse
from exhume.protocol.errors import InputError
from exhume.report import render
from exhume.runlog.codec import encoded
from exhume.runlog.store import Store

pytestmark = pytest.mark.slow

TOML = """
[[setting]]
name = "alone"
targets = 6
attacks = ["row-space"]
data = {{ name = "digits", classes = [0, 1], shadow_targets = {shadows} }}
release = {{ model = "mlp", hidden = [40], activation = "relu", batch_size = 6 }}

[setting.knowledge]
training = {{ learning_rate = 0.2, momentum = 0.9, weight_decay = 1e-2, epochs = 400 }}
initial = false

[audit]
authenticity = {networks}
"""
NETWORKS = 5


def config(*, networks: int = NETWORKS, shadows: int = 40) -> Config:
    text = TOML.format(networks=networks, shadows=shadows)
    return parse(text, folder=Path(), source="a test")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run, and all that its judge needed."""
    path = tmp_path_factory.mktemp("authenticity") / "run"
    run(make_plan(config()), path, Serial())
    return path


def judged(folder: Path) -> dict:
    with Store.open(folder) as store:
        return encoded(store.run().setting("alone").authenticity)


def test_every_candidate_has_a_verdict_and_what_it_is_nearest_to(folder):
    found = judged(folder)
    assert found["attack"] == "row-space"
    assert found["networks"] == NETWORKS
    assert len(found["candidates"]) >= 2
    for one in found["candidates"]:
        assert one["verdict"] in ("real", "invented", "undecided")
        assert 0 <= one["score"] <= 1
        rate, low, high = one["false_positives"]
        assert low <= rate <= high
        assert one["training"]["distance"] >= 0
        assert one["real"] is (one["rank"] == 1 and one["training"]["ncc"] > found["level"])
        assert one["starting"] is None
    assert sum(found["counts"].values()) == len(found["candidates"])
    at, truth = found["objective"][0]
    assert 0 <= at < 1
    assert 0 <= truth < 1
    for curve in ("claimed", "measured", "held_out", "without"):
        assert 0 <= found[curve]["low"] <= found[curve]["area"] <= found[curve]["high"] <= 1
    assert found["claimed"]["networks"] == NETWORKS
    # Each of the 6 targets beside a held-out one, and put to networks without it.
    assert found["held_out"]["pictures"] == found["held_out"]["others"] == 6
    assert found["without"]["others"] == 6


def test_the_candidates_are_those_of_the_trial(folder):
    """What is judged is what was scored: the first candidates of the same stream."""
    with Store.open(folder) as store:
        arrays = store.arrays(judged(folder)["artefacts"][0])
        kept = [r for r in store.outcomes() if r.trial.attack == "row-space"]
        scored = [store.arrays(r.artefact)[f"{r.row}.samples"][0] for r in kept if r.distance]
    for sample in scored:
        gaps = np.abs(arrays["samples"] - sample).max(axis=(1, 2))
        assert gaps.min() < 1e-5


def test_verdicts_are_in_the_summary_for_machines(folder):
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["settings"][0]["authenticity"]["said"] == judged(folder)["said"]


def test_a_network_of_ones_own_shares_nothing_with_the_others():
    plan = make_plan(config())
    setting = plan.setting(0)
    seen = []
    for number in range(NETWORKS):
        own, held_out, rest = own_split(plan, setting, number)
        assert (len(own), len(held_out), len(rest)) == (6, 6, 34)
        for part in (held_out, rest):
            assert not {x.tobytes() for x in own.x} & {x.tobytes() for x in part.x}
        assert not {x.tobytes() for x in own.x} & {x.tobytes() for x in setting.targets.x}
        seen += [x.tobytes() for x in own.x]
    assert len(set(seen)) == len(seen)
    # Beyond what the shadow targets are enough for, networks are drawn one by one.
    assert len(own_split(plan, setting, 9)[0]) == 6
    away = {x.tobytes() for x in held_out_records(plan, setting).x}
    assert not away & {x.tobytes() for x in (*setting.targets.x, *setting.shadow_targets.x)}


def test_the_truth_changes_no_verdict(folder, tmp_path, monkeypatch):
    """With other records taken for the truth, scores, rates and verdicts stay as they are."""
    from exhume.audit.stages import judge_networks

    real = judge_networks._released

    def swapped(plan, setting, task):
        case = real(plan, setting, task)
        return judge_networks.Case(case.release, case.knowledge, case.held_out, case.training)

    monkeypatch.setattr(judge_networks, "_released", swapped)
    run(make_plan(config()), tmp_path / "run", Serial())
    mine, theirs = judged(folder), judged(tmp_path / "run")
    said = ("verdict", "score", "false_positives", "starts")
    for one, other in zip(mine["candidates"], theirs["candidates"], strict=True):
        assert [one[k] for k in said] == [other[k] for k in said]
    assert [c["rank"] for c in mine["candidates"]] != [c["rank"] for c in theirs["candidates"]]


def test_whoever_does_the_work_the_verdicts_are_the_same(folder, tmp_path):
    run(make_plan(config()), tmp_path / "run", Processes(2))
    assert judged(tmp_path / "run") == judged(folder)


def test_an_interrupted_judge_goes_on_where_it_was(folder, tmp_path):
    plan, seen = make_plan(config()), []
    trials = 12

    def stop(done: int, total: int) -> None:
        assert total == trials + JudgeCandidates().size(plan) == trials + NETWORKS + 1
        if done == trials + 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, tmp_path / "run", Serial(), progress=stop)
    run(plan, tmp_path / "run", Serial(), progress=lambda done, total: seen.append(done))
    # Three networks were kept: none is attacked again.
    assert seen == [trials + 3, trials + 4, trials + 5, trials + 6]
    assert judged(tmp_path / "run") == judged(folder)


def test_a_finished_run_leaves_nothing_to_do(folder):
    plan = make_plan(config())
    with Store.open(folder) as log:
        for stage in STAGES:
            assert stage.done(plan, log) == stage.size(plan)
            assert [task for job in stage.jobs(plan, log) for task in job.tasks] == []


def test_nothing_is_judged_where_it_is_turned_off(tmp_path):
    summary = run(make_plan(config(networks=0)), tmp_path / "run", Serial())
    assert summary.settings[0].authenticity is None
    assert "authenticity" not in encoded(summary.settings[0])


def test_too_few_records_of_ones_own_are_said_to_be(tmp_path):
    run(make_plan(config(shadows=11)), tmp_path / "run", Serial())
    assert judged(tmp_path / "run")["said"] == (
        "undecided: the adversary has 11 records of its own, and a judge needs 12: one half for "
        "training networks, the other to compare with"
    )


def test_a_plan_counts_what_the_judge_costs():
    """Five networks and one release, each trained, and attacked from two starts."""
    plan = make_plan(config())
    costs = {
        Preparation(0): Cost(1.0, 0.5, 6),
        AttackTrials(0, 0): Cost(0.0, 0.2, 6),
        AttackTrials(0, 1): Cost(0.0, 0.0, 6),
    }
    assert [attack.name for attack in plan.attacks] == ["row-space", "oblivious"]
    estimate, judging = Estimate(plan, costs), Judging(0)
    expected = (NETWORKS + 1) * 6 * (0.5 + 2 * 0.2)
    assert judging.seconds(estimate) == pytest.approx(expected)
    unjudged = Estimate(make_plan(config(networks=0)), costs)
    assert judging not in unjudged.expenses
    assert estimate.total() == pytest.approx(unjudged.total() + expected)


def test_networks_in_the_folder_cost_nothing_more(folder):
    plan = make_plan(config())
    estimate = Estimate(plan, {}, done_in(folder))
    assert (Judging(0).planned(plan), Judging(0).left(estimate)) == (NETWORKS + 1, 0)


@pytest.mark.parametrize("count", [1, 2, -1])
def test_a_judge_needs_several_networks(count):
    with pytest.raises(InputError, match=r"authenticity: should be 0 .* or at least 3"):
        config(networks=count)


def test_candidates_stand_beside_where_their_search_began(tmp_path):
    """A search from the adversary's own records: its networks' searches begin likewise."""
    text = TOML.format(networks=3, shadows=40).replace('"row-space"', '"kkt"')
    options = "start = {}\n\n[setting.options.kkt]\nsteps = 30\nrestarts = 1\ndraws = 0\n"
    text = text.replace("\n[setting.knowledge]", f"{options}\n[setting.knowledge]")
    plan = make_plan(parse(text, folder=Path(), source="a test"))
    run(plan, tmp_path / "run", Serial())
    found = judged(tmp_path / "run")
    assert found["attack"] == "kkt"
    assert found["candidates"]
    for one in found["candidates"]:
        assert 0 <= one["starting"]["index"] < 6
        assert -1 <= one["starting"]["ncc"] <= 1
        # It began at other records than those that it was to find.
        assert one["starting"]["ncc"] != one["training"]["ncc"]


GIVEN = """
[[setting]]
name = "alone"
attacks = ["row-space"]

[setting.release]
file = "model.safetensors"
model = "mlp"
hidden = [40]
activation = "relu"
batch_size = 6

[setting.knowledge]
training = { learning_rate = 0.2, momentum = 0.9, weight_decay = 1e-2, epochs = 400 }
initial = false
value_range = [0.0, 1.0]
shadow_targets = "own.npz"

[audit]
authenticity = 4
"""


def test_a_checkpoint_from_outside_is_judged_without_the_truth(tmp_path):
    plan = make_plan(config())
    setting = plan.setting(0)
    (release,) = setting.releases(setting.groups(range(6)), 0)
    save_file({n: np.asarray(a) for n, a in release.arrays()}, tmp_path / "model.safetensors")
    own = setting.shadow_targets
    np.savez(tmp_path / "own.npz", x=own.x, y=own.y)
    given = parse(GIVEN, folder=tmp_path, source="a test")
    run(make_plan(given), tmp_path / "run", Serial())
    found = judged(tmp_path / "run")
    assert found["networks"] == 4
    assert found["claimed"]["area"] is not None
    assert found["measured"] is None
    assert found["right"] is None
    assert "truth" not in found["said"]
    assert len(found["candidates"]) >= 2
    for one in found["candidates"]:
        assert 0 <= one["score"] <= 1
        assert one["real"] is None
        assert one["training"] is None
    assert "Is it real?" in render(tmp_path / "run").read_text()
