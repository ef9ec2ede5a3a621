"""Updates as any federated loop leaves them: two files of parameters, or a folder of those."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.cli.command import invoke
from torch import nn

from exhume.audit.plan import make_plan
from exhume.config import load

AUDIT = """
[release]
kind = "update"
before = "before.safetensors"
file = "after.safetensors"
model = "mlp"
hidden = [16]
activation = "relu"
batch_size = 1
classes = 3

[knowledge]
record_shape = [4]
value_range = [0.0, 1.0]
shadow_targets = "similar.npz"
training = { learning_rate = 0.1, epochs = 1 }

[audit]
attacks = ["first-layer"]
truth = "truth.npz"
"""


def client(folder: Path, seed: int = 0, text: str = AUDIT) -> None:
    """Train one step of a client's own, and leave its files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    from exhume.models import MLP, Activation

    names = list(MLP((4,), 3, (16,), Activation.RELU).parameter_shapes())
    x, y = torch.rand(20, 4, generator=generator), torch.randint(3, (20,), generator=generator)

    def save(name: str) -> None:
        # What a wrapped module calls its parameters.
        state = zip(names, net.state_dict().values(), strict=True)
        save_file({f"module.{n}": p.clone() for n, p in state}, folder / name)

    save("before.safetensors")
    loss = nn.functional.cross_entropy(net(x[:1]), y[:1])
    loss.backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    save("after.safetensors")
    np.savez(folder / "truth.npz", x=x[:1].numpy(), y=y[:1].numpy())
    np.savez(folder / "similar.npz", x=x[1:].numpy(), y=y[1:].numpy())
    (folder / "audit.toml").write_text(text)


def brackets(folder: Path, out: Path) -> dict[str, float]:
    """Audit, and return what was reached per setting."""
    found = invoke("audit", folder, "--out", out)
    assert found.code == 0, found.err
    summary = json.loads((out / "summary.json").read_text())
    return {one["setting"]: one["reached"]["rate"] for one in summary["brackets"]}


def test_two_files_of_parameters_are_an_update(tmp_path: Path) -> None:
    client(tmp_path / "one")
    assert brackets(tmp_path / "one" / "audit.toml", tmp_path / "out") == {"audit": 1.0}
    setting = make_plan(load(tmp_path / "one" / "audit.toml")).setting(0)
    own = setting.mechanism.publish(setting.targets, rng=np.random.default_rng(0))
    # The difference of float32 parameters is off by their own rounding, 6e-8 of at most 1.
    for name, change in own.arrays():
        np.testing.assert_allclose(setting.given.changes[name], change, atol=1.2e-7)


def test_a_folder_of_audits_is_one_audit(tmp_path: Path) -> None:
    """Each has its own truth: another's would be far from what comes out."""
    for seed, place in enumerate(("round-2/b", "round-2/a", "round-10/a")):
        client(tmp_path / "all" / place, seed)
    found = brackets(tmp_path / "all", tmp_path / "out")
    assert found == {"round-10/a": 1.0, "round-2/a": 1.0, "round-2/b": 1.0}
    assert list(brackets(tmp_path / "all" / "round-10", tmp_path / "one")) == ["a"]
    assert list(brackets(tmp_path / "all" / "round-10/a", tmp_path / "two")) == ["audit"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"update"\n', '"gradient"\n', "before goes with kind = 'update'"),
        ('file = "after.safetensors"\n', "", "before goes with kind = 'update'"),
        ("[knowledge]\n", '[knowledge]\ninitial = "before.safetensors"\n', "leave knowledge.init"),
        ("before = ", "befor = ", "did you mean 'before'?"),
        ('before = "before.safetensors"\n', "", "needs knowledge.initial (or release.before)"),
        ('"before.safetensors"', '"none.safetensors"', "there is no file"),
        ("hidden = [16]", "hidden = [8]", "before.safetensors does not go with"),
        ("batch_size = 1", "batch_size = 2", "truth.npz"),
        ("training = {", "# {", "a network needs knowledge.training"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(old: str, new: str, said: str, tmp_path: Path) -> None:
    assert old in AUDIT
    client(tmp_path / "one", text=AUDIT.replace(old, new, 1))
    assert said in invoke("audit", tmp_path / "one" / "audit.toml", "--out", tmp_path / "out").error


def test_another_models_update_is_refused(tmp_path: Path) -> None:
    client(tmp_path / "one")
    save_file({"weight": torch.ones(3, 4)}, tmp_path / "one" / "after.safetensors")
    found = invoke("audit", tmp_path / "one", "--out", tmp_path / "out")
    assert "after.safetensors does not go with" in found.error


def test_audits_that_differ_are_not_put_together(tmp_path: Path) -> None:
    client(tmp_path / "all" / "a")
    client(tmp_path / "all" / "b", text=AUDIT.replace("[audit]", "[audit]\nseed = 3"))
    found = invoke("audit", tmp_path / "all", "--out", tmp_path / "out")
    assert "differ in [audit]" in found.error


def test_a_wrong_file_in_a_folder_is_named(tmp_path: Path) -> None:
    client(tmp_path / "all" / "a")
    client(tmp_path / "all" / "b", text="setting = 3")
    found = invoke("audit", tmp_path / "all", "--out", tmp_path / "out")
    assert str(Path("b") / "audit.toml") in found.error
