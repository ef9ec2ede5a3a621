"""A checkpoint as a plain loop leaves it, with its loop described: the way to one record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from exhume.audit import Serial, make_plan, run
from exhume.config import parse

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


def trained(folder: Path) -> None:
    """Train on eleven records, of which one is kept apart, and save what people save."""
    rng = np.random.default_rng(0)
    x, y = rng.random((11, 3, 3)).astype(np.float32), np.arange(11) % 3
    np.savez(folder / "others.npz", x=x[:10], y=y[:10])
    np.savez(folder / "target.npz", x=x[10:], y=y[10:])
    torch.manual_seed(2)
    net = nn.DataParallel(small()).train()
    torch.save(net.state_dict(), folder / "init.pt")
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 8)
    for _ in range(8):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(torch.tensor(x)), torch.tensor(y)).backward()
        optimiser.step()
        schedule.step()
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
