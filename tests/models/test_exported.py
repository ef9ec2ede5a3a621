"""Architectures in files of torch.export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from exhume.attacks import KKT, RowSpace
from exhume.data import load
from exhume.models import Exported
from exhume.protocol.attack import Lacking
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.release import Weights
from exhume.training import SGD, Training


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 10))


def exported(
    folder: Path,
    *,
    dynamic: bool = True,
    shape: tuple[int, ...] = (8, 8),
    module: nn.Module | None = None,
) -> Exported:
    shapes = {"input": {0: torch.export.Dim("records")}} if dynamic else None
    program = torch.export.export(
        net() if module is None else module, (torch.zeros(2, *shape),), dynamic_shapes=shapes
    )
    path = folder / "net.pt2"
    torch.export.save(program, path)
    return Exported((8, 8), 10, path)


def test_it_scores_and_trains_like_the_module(tmp_path: Path) -> None:
    network, plain = exported(tmp_path), net()
    assert network.parameter_shapes() == {n: tuple(p.shape) for n, p in plain.named_parameters()}
    x = torch.rand(5, 8, 8)
    torch.testing.assert_close(network.module()(x), plain(x))
    data = load("digits").train.take(slice(0, 200))
    training = Training(network, tuple(range(10)), SGD(0.5, 0.9), epochs=60)
    release = training.publish(data, rng=np.random.default_rng(0))
    assert training.score(release, data) > 0.9


def test_a_fixed_number_of_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="export it with a dynamic one"):
        exported(tmp_path, dynamic=False).build()


def test_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not take records of shape \(8, 8\)"):
        exported(tmp_path, shape=(4, 16)).build()


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(b"no program")
    with pytest.raises(InputError, match=r"net\.pt2 can't be read as a program"):
        Exported((8, 8), 10, path).build()


def test_what_a_program_hides_is_asked_for_and_what_it_does_is_seen(tmp_path: Path) -> None:
    def asked(attack: KKT | RowSpace, network: Exported) -> str | None:
        training = Training(network, tuple(range(10)), SGD(0.1, weight_decay=0.1), epochs=2)
        shapes = network.parameter_shapes().items()
        release = Weights({name: np.ones(shape) for name, shape in shapes})
        known = Knowledge(record_shape=(8, 8), value_range=(0.0, 1.0), training=training)
        return attack.accepts(release, known)

    class Products(nn.Module):
        """No linear layer, but what computes the same."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 10)

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input.flatten(1) @ self.layer.weight.T + self.layer.bias

    # What was read of a file is kept: another program has its own.
    (tmp_path / "products").mkdir()
    assert asked(RowSpace(records=3), exported(tmp_path)) is None
    hidden = asked(RowSpace(records=3), exported(tmp_path / "products", module=Products()))
    assert isinstance(hidden, Lacking)
    assert hidden.endswith("add release.model as package.module:function")
    assert asked(KKT(records=3), exported(tmp_path)) is None
    normalised = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10)).eval()
    assert "normalises by the batch" in str(
        asked(KKT(records=3), exported(tmp_path, module=normalised))
    )
