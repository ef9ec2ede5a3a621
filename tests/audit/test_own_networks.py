"""Checkpoints of networks that somebody's own code made, through the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.attacks.weights_only.test_kkt import halved
from tests.cli.command import Finished, execute, invoke

from exhume.audit import make_plan
from exhume.config.reading import from_tables
from exhume.training import Training

COUNT = 12
CODE = """
from torch import nn

def make():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(196, 80), nn.ReLU(), nn.Linear(80, 30), nn.ReLU(), nn.Linear(30, 2)
    )
"""
TOML = """
[[setting]]
name = "outside"
attacks = [{attacks}]

[setting.release]
file = "{file}"
model = "{model}"
batch_size = 12
classes = 2

[setting.knowledge]
shadow_targets = "alike.npz"
value_range = [0, 1]
labels = {labels}
initial = false
training = {{ learning_rate = 0.1, momentum = 0.9, weight_decay = 3e-3, epochs = 2000 }}
{options}
[audit]
truth = "truth.npz"
authenticity = 0
"""
KKT = "\n[setting.options.kkt]\nsteps = 400\nrestarts = 2\ndraws = 800\n"


def module() -> torch.nn.Module:
    made: dict[str, object] = {}
    exec(CODE, made)
    network = made["make"]()
    assert isinstance(network, torch.nn.Module)
    return network


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with code, its checkpoint, the truth and records like it: none of ours in it."""
    found = tmp_path_factory.mktemp("outside")
    (found / "nets_from_outside.py").write_text(CODE)
    data, alike = halved(COUNT), halved(100, skip=200)
    torch.manual_seed(0)
    network = module()
    x, y = torch.tensor(data.x, dtype=torch.float32), torch.tensor(data.labels).long()
    descent = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=3e-3)
    for _ in range(2000):
        descent.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        descent.step()
    save_file(network.state_dict(), found / "model.safetensors")
    torch.save(network.state_dict(), found / "model.pt")
    np.savez(found / "truth.npz", x=data.x, y=data.labels)
    np.savez(found / "alike.npz", x=alike.x, y=alike.labels)
    return found


Command = Callable[..., Finished]


def audit(folder: Path, name: str, *more: str, command: Command = invoke, **table: str) -> Finished:
    values = {"file": "model.safetensors", "options": "", "labels": "false", **table}
    values.setdefault("model", "nets_from_outside:make")
    path = folder / f"{name}.toml"
    path.write_text(TOML.format(**values))
    return command("audit", path, "--out", folder / name, "--quiet", *more)


def test_records_come_out_of_a_factorys_network(folder: Path) -> None:
    assert "--trust-code" in audit(folder, "untrusted", attacks='"kkt"').error
    table = {"attacks": '"kkt", "row-space"', "labels": "true", "options": KKT}
    finished = audit(folder, "trusted", "--trust-code", command=execute, **table)
    assert finished.code == 0, finished.err
    summary = json.loads((folder / "trusted" / "summary.json").read_text())
    rows = {row["attack"]: row for row in summary["rows"] if row["ran"]}
    reached = {name: row["success"]["successes"] for name, row in rows.items()}
    assert reached["oblivious"] == 0
    assert min(reached["kkt"], reached["row-space"]) >= 3
    best = {name: row["metrics"]["rmse"]["q05"] for name, row in rows.items()}
    assert max(best["kkt"], best["row-space"]) < 0.2 * best["oblivious"]
    assert "a network made by nets_from_outside:make" in (
        folder / "trusted" / "report.html"
    ).read_text(encoding="utf-8")


def test_a_misfit_is_named_key_by_key(folder: Path) -> None:
    state = module().state_dict()
    state["1.weight"] = state["1.weight"].T.contiguous()
    state["last.bias"] = state.pop("5.bias")
    torch.save(state, folder / "wrong.pt")
    error = audit(folder, "misfit", "--trust-code", attacks='"kkt"', file="wrong.pt").error
    for part in (
        "a network made by nets_from_outside:make",
        "'1.weight' has shape (196, 80), the network's has (80, 196) (it is transposed)",
        "there is no parameter '5.bias' (shape (2,))",
        "the network has no parameter 'last.bias'",
    ):
        assert part in error


def test_a_checkpoint_of_a_wrapped_module_with_an_exported_architecture(folder: Path) -> None:
    plain = module()
    plain.load_state_dict(torch.load(folder / "model.pt"))
    wrapped = {f"module.{name}": tensor for name, tensor in plain.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": wrapped, "best": 0.5}, folder / "last.pt")
    shapes = {"input": {0: torch.export.Dim("records")}}
    program = torch.export.export(plain, (torch.zeros(2, 14, 14),), dynamic_shapes=shapes)
    torch.export.save(program, folder / "net.pt2")
    short = {"options": KKT.replace("400", "4").replace("800", "8"), "attacks": '"kkt"'}
    (folder / "alike.toml").write_text(
        TOML.format(file="last.pt", model="net.pt2", labels="true", **short)
    )
    refused = invoke("audit", folder / "alike.toml", "--out", folder / "distrusted", "--quiet")
    assert "net.pt2' is code that would be executed" in refused.error
    found = []
    named = "nets_from_outside:make"
    for file, model in (("model.pt", named), ("last.pt", named), ("last.pt", "net.pt2")):
        path, out = folder / "alike.toml", folder / f"alike-{len(found)}"
        table = {"file": file, "model": model, "labels": "true", **short}
        path.write_text(TOML.format(**table))
        finished = invoke("audit", path, "--out", out, "--quiet", "--trust-code")
        assert finished.code == 0, finished.err
        rows = json.loads((out / "summary.json").read_text())["rows"]
        found.append(
            {row["attack"]: row["metrics"]["rmse"]["mean"] for row in rows if row["metrics"]}
        )
    assert found[0] == found[1]
    # A program has no layers to begin a search at, so that the third differs.
    assert "kkt" in found[2]


@pytest.mark.parametrize(("data", "classes"), [("diabetes", None), ("digits", 10)])
def test_many_whole_numbers_with_a_decimal_point_are_responses(
    data: str, classes: int | None
) -> None:
    """Diabetes' responses are floats without a fraction; no class of 60 records is like them."""
    table = {
        "data": {"name": data, "fixed_set": 60, "shadow_targets": 20},
        "release": {"model": "mlp", "hidden": [3]},
        "knowledge": {"training": {"learning_rate": 0.001, "epochs": 1}},
    }
    config = from_tables(table | {"audit": {"targets": 2}}, source="a test")
    model = make_plan(config).setting(0).mechanism
    assert isinstance(model, Training)
    assert (None if model.classes is None else len(model.classes)) == classes
    assert model.network.outputs == (classes or 1)
