"""Networks of the user's own: imported, checked, and never by accident."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.command import execute, invoke

from exhume.models import Imported
from exhume.protocol.errors import InputError
from exhume.training import SGD, Training

CODE = """
from pathlib import Path
from torch import nn
Path(__file__).with_name("ran").touch()
def make():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 10))
def number():
    return 3
def narrow():
    return nn.Linear(5, 10)
def few():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))
"""
TOML = """
[data]
name = "digits"
fixed_set = 80
[release]
model = "own_nets:make"
[knowledge]
training = { learning_rate = 0.1, epochs = 5 }
[audit]
targets = 2
attacks = ["oblivious"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_nets.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def network(name: str) -> Imported:
    return Imported((8, 8), 10, f"own_nets:{name}")


def test_it_trains_like_any_other(folder: Path) -> None:
    from exhume.data import load

    data = load("digits").train.take(slice(0, 200))
    training = Training(network("make"), tuple(range(10)), SGD(0.5, 0.9), epochs=60)
    release = training.publish(data, rng=np.random.default_rng(0))
    assert list(release.parameters) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    assert training.score(release, data) > 0.9


def test_building_disturbs_no_random_stream(folder: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    network("make").build()
    assert torch.rand(1) == expected


def test_building_leaves_running_statistics_as_they_were() -> None:
    module = Imported((1, 6, 6), 3, "tests.contract.own_networks:batch_norm").build()
    state = module.state_dict()
    assert torch.equal(state["1.running_mean"], torch.zeros(3))
    assert torch.equal(state["1.running_var"], torch.ones(3))
    assert int(state["1.num_batches_tracked"]) == 0


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("number", "must return a torch.nn.Module"),
        ("narrow", r"does not take records of shape \(8, 8\)"),
        ("few", r"gives \(9,\) scores per record, 10 are needed"),
        ("nobody", "can't be imported"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, name: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        network(name).build()


def _command(folder: Path, *more: str) -> tuple[str | Path, ...]:
    (folder / "audit.toml").write_text(TOML)
    return ("audit", folder / "audit.toml", "--out", folder / "run", "--quiet", *more)


def test_code_is_not_run_unless_trusted(tmp_path: Path) -> None:
    (tmp_path / "own_nets.py").write_text(CODE)
    refused = invoke(*_command(tmp_path))
    assert "'own_nets:make' is code that would be executed; add --trust-code" in refused.error
    assert not (tmp_path / "ran").exists()


def test_trusted_code_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "own_nets.py").write_text(CODE)
    finished = execute(*_command(tmp_path, "--trust-code", "--workers", "2"))
    assert finished.code == 0, finished.err
    assert (tmp_path / "ran").exists()
    assert "a network made by own_nets:make" in (tmp_path / "run" / "report.html").read_text()
