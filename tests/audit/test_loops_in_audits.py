"""Audits of models that a loop of the user's own trains, from the TOML file to the run log."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.audit import small
from tests.cli.command import execute, invoke

from exhume.audit import Processes, Serial, Summary, make_plan, run
from exhume.config import parse
from exhume.data import load
from exhume.protocol.errors import InputError

# A network with one hidden layer, trained by AdamW on a schedule, with dropout and BatchNorm.
TRAIN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 6), nn.BatchNorm1d(6), nn.GELU(),
                                  nn.Dropout(0.1), nn.Linear(6, 10))
    def forward(self, x):
        return self.body(x.flatten(1))

def train(x, y, *, seed):
    torch.manual_seed(seed)
    x, y = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    net = Net(x[0].numel())
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.02)
    for epoch in range(8):
        for batch in torch.randperm(len(x)).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return net

def weights(x, y, *, seed):
    return train(x, y, seed=seed).state_dict()

def net():
    return Net(64)

def broken(x, y, *, seed):
    raise ValueError("no such file: tokens.json")
"""
SETTING = """
[[setting]]
name = "own"
data = {{ name = "digits", fixed_set = 40, shadow_targets = {shadows} }}
release = {{ training = "{module}:{function}"{release} }}
knowledge = {{ {knowledge} }}
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module of its own for every test, in a folder that is searched."""
    name = f"loop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(TRAIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)


def setting(
    module: str,
    knowledge: str = "",
    *,
    function: str = "train",
    release: str = "",
    shadows: int = 24,
) -> str:
    return SETTING.format(
        module=module, knowledge=knowledge, function=function, release=release, shadows=shadows
    )


def audited(folder: Path, toml: str, **audit: str) -> Summary:
    return run(small.plan(toml, small.audit(4, **audit)), folder, Serial())


def test_who_knows_the_seed_rebuilds_more_and_both_are_told_apart(
    tmp_path: Path, module: str
) -> None:
    attacks = '["ridge"]'
    secret = audited(tmp_path / "secret", setting(module, shadows=60), attacks=attacks)
    known = audited(tmp_path / "known", setting(module, "seed = true", shadows=60), attacks=attacks)
    threats = [" ".join(found.settings[0].threat) for found in (secret, known)]
    assert "does not know the seed" in threats[0]
    assert "It knows the seed" in threats[1]
    for threat in threats:
        assert f"{module}:train, run twice with one seed, gave the same model" in threat
    errors = [
        next(r for r in found.rows if r.attack == "ridge").metrics["rmse"].mean
        for found in (secret, known)
    ]
    # With the seed, only the record makes a difference: the error falls by far more than chance.
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize(
    ("knowledge", "release"),
    [
        ('attributes = "upper-half", labels = true', ""),
        ("", ', kind = "outputs", answer = "probabilities", queries = 20'),
    ],
    ids=["attributes", "answers"],
)
def test_every_attack_on_shadow_models_runs(
    tmp_path: Path, module: str, knowledge: str, release: str
) -> None:
    found = audited(tmp_path / "run", setting(module, knowledge, release=release))
    ran = {row.attack: row for row in found.rows}
    for attack in ("ridge", "reconstructor"):
        assert ran[attack].ran == ran[attack].trials == 4, ran[attack]
        assert ran[attack].success is not None
    assert found.brackets[0].blind is not None


@pytest.mark.parametrize("test", ["shadow-models", "nearest-mean", "loss-threshold"])
def test_every_membership_test_on_shadow_models_runs(
    tmp_path: Path, module: str, test: str
) -> None:
    toml = setting(module, function="weights", release=f', model = "{module}:net"', shadows=0)
    found = audited(
        tmp_path / "run",
        toml,
        attacks='["oblivious"]',
        membership="12",
        membership_test=f'"{test}"',
        membership_models="8",
        membership_pairs="1",
    )
    said = found.settings[0].membership.text
    assert re.match(rf"{test}: advantage -?[\d.]+ \[-?[\d.]+, [\d.]+\] in 12 trials", said), said


def test_workers_find_the_loop_and_the_result_is_the_same(tmp_path: Path, module: str) -> None:
    toml = [setting(module), small.audit(3, attacks='["ridge"]')]
    one = run(small.plan(*toml), tmp_path / "one", Serial())
    two = run(small.plan(*toml), tmp_path / "two", Processes(2))
    assert [row.metrics for row in one.rows] == [row.metrics for row in two.rows]


class TestAFile:
    """A model that was trained elsewhere, by the same loop."""

    @pytest.fixture
    def folder(self, tmp_path: Path, module: str) -> Path:
        data = load("digits").train
        parts = {"known": (0, 40), "alike": (40, 60), "truth": (60, 61)}
        for name, ends in parts.items():
            np.savez(tmp_path / f"{name}.npz", x=data.x[slice(*ends)], y=data.labels[slice(*ends)])
        own = importlib.import_module(module)
        places = [*range(40), 60]
        network = own.train(np.array(data.x[places]), np.array(data.labels[places]), seed=77)
        state = {f"_orig_mod.{name}": tensor for name, tensor in network.state_dict().items()}
        torch.save({"model_state_dict": state, "epoch": 8}, tmp_path / "model.pt")
        return tmp_path

    def toml(self, module: str, more: str = "") -> str:
        return f"""
            [release]
            file = "model.pt"
            training = "{module}:train"
            [knowledge]
            fixed_set = "known.npz"
            shadow_targets = "alike.npz"
            value_range = [0, 1]
            {more}
            [audit]
            truth = "truth.npz"
            attacks = ["ridge"]
            """

    def test_it_is_attacked_with_shadow_models(self, folder: Path, module: str) -> None:
        plan = make_plan(parse(self.toml(module, "seed = 77"), folder=folder, source="test"))
        found = run(plan, folder / "run", Serial())
        assert next(row for row in found.rows if row.attack == "ridge").ran == 1

    def test_a_model_of_another_architecture_is_refused(self, folder: Path, module: str) -> None:
        torch.save({"body.0.weight": torch.ones(3, 3)}, folder / "model.pt")
        plan = make_plan(parse(self.toml(module), folder=folder, source="test"))
        with pytest.raises(InputError, match=r"the released file: .*body\.0\.weight.* has shape"):
            run(plan, folder / "run", Serial())

    def test_its_seed_is_a_number(self, folder: Path, module: str) -> None:
        with pytest.raises(InputError, match="give that number"):
            parse(self.toml(module, "seed = true"), folder=folder, source="test")


def test_an_edited_loop_is_another_audit(tmp_path: Path, module: str) -> None:
    toml = [setting(module, shadows=0), small.audit(2, attacks='["oblivious"]')]
    before = small.plan(*toml)
    path = tmp_path / f"{module}.py"
    path.write_text(path.read_text().replace("lr=0.02", "lr=0.01"))
    sys.modules.pop(module)
    assert small.plan(*toml).identity != before.identity


class TestTheCommandLine:
    @pytest.fixture
    def file(self, tmp_path: Path, module: str) -> Path:
        path = tmp_path / "audit.toml"
        path.write_text(setting(module, shadows=8) + small.audit(2, attacks='["ridge"]'))
        return path

    def test_code_is_run_only_where_it_is_trusted(self, file: Path, tmp_path: Path) -> None:
        out = tmp_path / "run"
        assert "add --trust-code" in invoke("audit", file, "--out", out).error
        assert not out.exists()

    def test_the_whole_way(self, file: Path, tmp_path: Path) -> None:
        out = tmp_path / "run"
        done = execute("audit", file, "--out", out, "--trust-code", "--quiet", "--workers", "1")
        assert done.code == 0, done.err
        assert "bit for bit" in (out / "report.html").read_text()

    def test_an_error_of_the_loop_is_one_line(self, file: Path, tmp_path: Path) -> None:
        file.write_text(file.read_text().replace(":train", ":broken"))
        options = ("--trust-code", "--quiet", "--workers", "1")
        error = invoke("audit", file, "--out", tmp_path / "run", *options)
        assert "broken stopped with ValueError: no such file: tokens.json" in error.error


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"release": ', model = "mlp"'}, "package.module:function"),
        ({"release": ", batch_size = 4"}, "without batch_size"),
        ({"release": ', kind = "gradient", batch_size = 1'}, "kind = 'weights' and 'outputs'"),
        ({"knowledge": "training = { learning_rate = 1.0, epochs = 1 }"}, "is known as it is"),
        ({"function": ""}, "package.module:function"),
    ],
)
def test_what_contradicts_a_loop_is_refused(changes: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        parse(setting("train", **changes), folder=Path(), source="test")  # type: ignore[arg-type]


def test_a_seed_without_a_loop_is_refused() -> None:
    toml = small.PLAIN + "knowledge = { seed = 3 }"
    with pytest.raises(InputError, match=r"knowledge\.seed"):
        make_plan(parse(toml, folder=Path(), source="test"))
