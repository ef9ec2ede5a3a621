"""Settings where the adversary has a network's weights and none of its training records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tests.contract.own_networks import OWN, normalised_further_on

from exhume.audit import Serial, make_plan, run
from exhume.audit.attack_options import attack_names
from exhume.audit.build_setting import build
from exhume.audit.scoring import members
from exhume.audit.threat_model import threat_model
from exhume.config import Config, parse
from exhume.protocol.errors import InputError
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Weights

SIMULATED = """
[[setting]]
name = "alone"
targets = 8
{attacks}
data = {{ name = "fashion-mnist-small", classes = [8, 9], shadow_targets = 40 }}
release = {{ kind = "weights", model = "mlp", hidden = [40], activation = "relu", batch_size = 8 }}

[setting.knowledge]
training = {{ learning_rate = 0.2, momentum = 0.9, weight_decay = 3e-3, epochs = {epochs} }}
initial = false

[audit]
authenticity = 0
"""
GIVEN = """
[[setting]]
name = "outside"

[setting.release]
kind = "weights"
file = "model.safetensors"
model = "mlp"
hidden = [5]
activation = "relu"
batch_size = 3
classes = 2

[setting.knowledge]
record_shape = [2, 2]
value_range = [0, 1]
training = { learning_rate = 0.1, epochs = 10, weight_decay = 1e-2 }
"""


def config(text: str, folder: Path = Path()) -> Config:
    return parse(text, folder=folder, source="a test")


def simulated(*, epochs: int = 20, attacks: str = "") -> Config:
    return config(SIMULATED.format(epochs=epochs, attacks=attacks))


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"1.weight": (5, 4), "1.bias": (5,), "3.weight": (2, 5), "3.bias": (2,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def test_the_adversary_has_no_training_record_and_says_so():
    plan = simulated()
    setting = build(plan, 0)
    known = setting.knowledge(*range(8))
    assert known.fixed_set is None
    assert known.labels is None
    assert isinstance(setting.releases(setting.groups(range(8)), 0)[0], Weights)
    words = " ".join(threat_model(setting))
    assert "trained on 8 records" in words
    assert "none of which the adversary has" in words
    assert attack_names(plan.setting[0], plan.audit)[:2] == ("row-space", "kkt")


def test_an_audit_rebuilds_pictures_from_weights_alone(tmp_path):
    plan = make_plan(simulated(epochs=2000, attacks='attacks = ["row-space"]'))
    summary = run(plan, tmp_path / "run", Serial())
    (bracket,) = summary.brackets
    assert bracket.attack == "row-space"
    assert bracket.reached.successes >= 2


def test_a_blind_guess_is_made_of_every_target():
    """How many there are is not told by weights; an attack's one candidate is of one of them."""
    plan = make_plan(simulated())
    guess = Reconstruction(np.full((1, 28, 28), 0.3), Status.CONVERGED)
    for blind, targets in ((True, 8), (False, 1)):
        dealt = members(plan, 0, [tuple(range(8))], [guess], blind=blind)
        assert len(dealt) == 8
        assert sum(len(one) for one in dealt) == targets


@pytest.mark.parametrize(("targets", "set_aside"), [(8, 200), (400, 100)])
def test_shadow_targets_are_set_aside_unasked(targets, set_aside):
    """200, but no more than half of the 600 records that targets leave."""
    text = SIMULATED.format(epochs=5, attacks="").replace(", shadow_targets = 40", "")
    setting = build(config(text.replace("targets = 8\n", f"targets = {targets}\n")), 0)
    assert len(setting.shadow_targets) == set_aside


def test_a_checkpoint_from_outside_is_read(tmp_path):
    save_file(parameters(), tmp_path / "model.safetensors")
    setting = build(config(GIVEN, tmp_path), 0)
    assert setting.given is not None
    assert setting.targets is None
    assert setting.size == 3
    assert dict(setting.given.arrays())["3.weight"].shape == (2, 5)


@pytest.mark.parametrize("known", ["", 'fixed_set = "known.npz"'])
def test_running_statistics_are_part_of_a_checkpoint(tmp_path: Path, known: str) -> None:
    """An informed adversary's attacks read them, and weights alone are folded with them."""
    module = normalised_further_on()
    module(torch.rand(5, 6, 6))
    wrapped = {f"module.{name}": tensor for name, tensor in module.state_dict().items()}
    torch.save({"state_dict": wrapped, "epoch": 3}, tmp_path / "model.pt")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "known.npz", x=rng.random((6, 6, 6)), y=np.arange(6) % 3)
    text = GIVEN.replace("[2, 2]", "[6, 6]").replace("classes = 2", "classes = 3")
    text = text.replace('"mlp"', f'"{OWN}:normalised_further_on"').replace(".safetensors", ".pt")
    text = text.replace("hidden = [5]", "").replace('activation = "relu"', "")
    if known:
        text = text.replace("batch_size = 3", "").replace("classes = 3", "")
        text = text.replace("record_shape = [6, 6]", known)
    given = build(config(text, tmp_path), 0).given
    assert isinstance(given, Weights)
    assert list(given.parameters) == [name for name, _ in module.named_parameters()]
    state = module.state_dict()
    assert list(given.buffers) == [name for name in state if "running" in name]
    for name, array in given.buffers.items():
        np.testing.assert_array_equal(array, state[name].numpy())


def test_a_checkpoint_that_does_not_fit_is_named_key_by_key(tmp_path):
    wrong = parameters()
    wrong["1.weight"] = wrong["1.weight"].T.copy()
    wrong["4.weight"] = wrong.pop("3.bias")
    save_file(wrong, tmp_path / "model.safetensors")
    with pytest.raises(InputError) as error:
        build(config(GIVEN, tmp_path), 0)
    for part in (
        "'1.weight' has shape (4, 5), the network's has (5, 4) (it is transposed)",
        "there is no parameter '3.bias' (shape (2,))",
        "the network has no parameter '4.weight'",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batch_size = 8", "batch_size = 8, clients = 2", "clients goes with"),
        ("shadow_targets = 40", "shadow_targets = 40, fixed_set = 30", "no fixed set"),
        ("targets = 8\n", "targets = 7\n", "whole batches of 8"),
    ],
)
def test_what_does_not_go_together_is_refused(key, value, message):
    text = SIMULATED.format(epochs=5, attacks="").replace(key, value)
    with pytest.raises(InputError, match=message):
        build(config(text), 0)
