"""A checkpoint as a plain loop leaves it, with its loop described: the way to one record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from exhume.audit import Serial, make_plan, run
from exhume.config import parse
from exhume.protocol.errors import InputError
from exhume.runlog.summary import Row

TOML = """
    [release]
    file = "model.pt"
    model = "tests.audit.test_described_checkpoint:small"
    [knowledge]
    fixed_set = "others.npz"
    initial = "init.pt"
    value_range = [0, 1]
    labels = true
    [knowledge.training]
    optimizer = "adamw"
    learning_rate = 0.01
    epochs = 8
    schedule = { name = "cosine" }
    [audit]
    truth = "target.npz"
    attacks = ["trajectory-inversion"]
    """


def small() -> nn.Module:
    """Take records of 3 × 3 through a normalisation."""
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(9, 6, bias=False), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))
    )


def trained(folder: Path, batch_size: int = 11) -> None:
    """Train on eleven records, of which one is kept apart, and save what people save.

    A loader draws the batches and drops the last one if it is smaller.
    """
    rng = np.random.default_rng(0)
    x, y = rng.random((11, 3, 3)).astype(np.float32), np.arange(11) % 3
    np.savez(folder / "others.npz", x=x[:10], y=y[:10])
    np.savez(folder / "target.npz", x=x[10:], y=y[10:])
    torch.manual_seed(2)
    net = nn.DataParallel(small()).train()
    torch.save(net.state_dict(), folder / "init.pt")
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 8)
    data = TensorDataset(torch.tensor(x), torch.tensor(y), torch.arange(11))
    loader, order = DataLoader(data, batch_size, shuffle=True, drop_last=True), []
    for _ in range(8):
        seen = []
        for records, labels, places in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(records), labels).backward()
            optimiser.step()
            seen += places.tolist()
        schedule.step()
        order.append(seen)
    np.savez(folder / "order.npz", order=np.array(order))
    checkpoint = {"model_state_dict": net.state_dict(), "optimizer": optimiser.state_dict()}
    torch.save(checkpoint, folder / "model.pt")


def test_a_described_loop_gives_up_its_record(tmp_path: Path) -> None:
    trained(tmp_path)
    plan = make_plan(parse(TOML, folder=tmp_path, source="test"))
    assert list(plan.setting(0).given.buffers) == ["2.running_mean", "2.running_var"]
    found = run(plan, tmp_path / "run", Serial())
    row = next(one for one in found.rows if one.attack == "trajectory-inversion")
    assert row.statuses == {"CONVERGED": 1}
    assert row.success.successes == 1


BATCHES = TOML.replace("epochs = 8", "epochs = 8\n    batch_size = 4")
ORDERED = BATCHES.replace("labels = true", 'labels = true\n    order = "order.npz"')


def attacked(text: str, folder: Path) -> Row:
    """Return the row of trajectory inversion."""
    found = run(make_plan(parse(text, folder=folder, source="test")), folder / "run", Serial())
    return next(one for one in found.rows if one.attack == "trajectory-inversion")


def test_the_order_of_a_loaders_batches_is_a_file(tmp_path: Path) -> None:
    trained(tmp_path, batch_size=4)
    row = attacked(ORDERED, tmp_path)
    assert row.statuses == {"CONVERGED": 1}
    assert row.success.successes == 1


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (BATCHES, "knowledge.order"),
        (TOML.replace('initial = "init.pt"', ""), "knowledge.initial"),
    ],
)
def test_what_nobody_told_of_a_file_is_not_assumed(text: str, key: str, tmp_path: Path) -> None:
    trained(tmp_path, batch_size=4)
    row = attacked(text, tmp_path)
    assert row.statuses == {"UNINFORMED": 1}
    assert f"add {key}" in row.message


@pytest.mark.parametrize(
    ("order", "text", "said"),
    [
        (np.zeros(11), ORDERED, "whole numbers, one row per epoch"),
        (np.zeros((8, 11), int), ORDERED, "a record twice in one epoch"),
        (np.tile(np.arange(11), (7, 1)), ORDERED, "has 7 rows, one per epoch, but the training"),
        (np.tile(np.arange(12), (8, 1)), ORDERED, "records from 0 to 11, but there are 11"),
        (np.eye(2), ORDERED.replace("batch_size = 4", ""), "goes with release.file and"),
    ],
)
def test_an_order_that_does_not_fit(
    order: np.ndarray, text: str, said: str, tmp_path: Path
) -> None:
    trained(tmp_path)
    np.savez(tmp_path / "order.npz", order=order)
    with pytest.raises(InputError, match=said):
        make_plan(parse(text, folder=tmp_path, source="test")).setting(0)
