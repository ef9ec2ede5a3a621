"""Checkpoints as training code leaves them: wrapped, nested, in half precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from exhume.data.array_files import read_arrays
from exhume.models.base import under_own_names, unwrapped
from exhume.protocol.errors import InputError


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize("key", ["model_state_dict", "state_dict", "model"])
def test_the_state_dict_inside_a_checkpoint_is_read(tmp_path: Path, key: str) -> None:
    network = net()
    optimiser = torch.optim.AdamW(network.parameters())
    network(torch.ones(5, 3)).sum().backward()
    optimiser.step()
    checkpoint = {
        "epoch": 7,
        "optimizer_state_dict": optimiser.state_dict(),
        key: network.state_dict(),
        "best": 0.93,
    }
    torch.save(checkpoint, tmp_path / "model.pt")
    found = read_arrays(tmp_path / "model.pt")
    assert list(found) == list(network.state_dict())
    for name, tensor in network.state_dict().items():
        np.testing.assert_array_equal(found[name], tensor.numpy())


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_half_precision_is_widened_exactly(tmp_path: Path, suffix: str) -> None:
    state = {"weight": torch.tensor([1.5, -2.25]).bfloat16(), "bias": torch.tensor([0.1]).half()}
    path = tmp_path / f"model.{suffix}"
    (torch.save if suffix == "pt" else save_file)(state, path)
    found = read_arrays(path)
    np.testing.assert_array_equal(found["weight"], np.array([1.5, -2.25], dtype=np.float32))
    assert found["weight"].dtype == np.float32
    assert found["bias"].dtype == np.float16


def test_a_checkpoint_without_a_model_says_where_it_was_looked_for(tmp_path: Path) -> None:
    one, other = {"a": torch.ones(2)}, {"a": torch.zeros(2)}
    torch.save({"epoch": 3, "weights": one, "average": other}, tmp_path / "model.pt")
    with pytest.raises(InputError, match="model_state_dict, state_dict, model"):
        read_arrays(tmp_path / "model.pt")


@pytest.mark.parametrize("suffix", ["pt", "ckpt", "bin"])
def test_the_only_state_dict_is_read_whatever_it_is_called(tmp_path: Path, suffix: str) -> None:
    network = net()
    optimiser = torch.optim.AdamW(network.parameters()).state_dict()
    torch.save({"net": network.state_dict(), "optimiser": optimiser}, tmp_path / f"m.{suffix}")
    assert list(read_arrays(tmp_path / f"m.{suffix}")) == list(network.state_dict())


def test_the_attribute_that_a_network_was_saved_as_is_no_part_of_its_names() -> None:
    own = net().state_dict()
    saved = {f"backbone.{name}": tensor.numpy() for name, tensor in own.items()}
    assert list(under_own_names(own, saved)) == list(own)
    # Another network inside a module of two is not told apart.
    both = {**saved, "head.weight": np.ones(2)}
    assert list(under_own_names(own, both)) == list(both)


def test_a_whole_module_is_refused_with_the_class_that_it_wants(tmp_path: Path) -> None:
    torch.save(net(), tmp_path / "model.pt")
    with pytest.raises(InputError, match=r"more than plain tensors \(torch\.nn.*state_dict"):
        read_arrays(tmp_path / "model.pt")


@pytest.mark.parametrize("wrappers", ["module.", "_module.", "_orig_mod.", "_orig_mod.module."])
def test_names_of_wrapped_modules_are_the_networks_own(wrappers: str) -> None:
    state = {name: tensor.numpy() for name, tensor in net().state_dict().items()}
    wrapped = {wrappers + name: array for name, array in state.items()}
    assert list(under_own_names(state, wrapped)) == list(state)


def test_a_network_whose_own_layer_is_called_module_keeps_its_names() -> None:
    own = ["module.0.weight", "module.0.bias"]
    arrays = dict.fromkeys(own, np.ones(1))
    assert list(under_own_names(own, arrays)) == own
    wrapped = {f"module.{name}": array for name, array in arrays.items()}
    assert list(under_own_names(own, wrapped)) == own


def test_a_prefix_of_some_names_is_no_wrapper() -> None:
    assert unwrapped(["module.weight", "head.weight"]) == ["module.weight", "head.weight"]
    assert unwrapped([]) == []


def test_torch_itself_wraps_modules_like_that() -> None:
    """Compilation needs no compiler to show what it calls parameters."""
    network = net()
    assert unwrapped(torch.compile(network).state_dict()) == list(network.state_dict())
    assert unwrapped(nn.DataParallel(network).state_dict()) == list(network.state_dict())
