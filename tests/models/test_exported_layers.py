"""Programs of torch.export: their layers are found again, and they compute what they did."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

from exhume.attacks import FirstLayer
from exhume.models.exported import Exported
from exhume.models.exported_layers import restore_layers
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep


class _Net(nn.Module):
    """Layers in containers, a function between them, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
        )
        self.last = nn.Linear(8, 3)
        self.twice = nn.Linear(8, 8)
        self.head = nn.Linear(64, 8)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.head(self.features(x).flatten(1)))
        x = self.act(self.twice(x))
        x = torch.relu(self.twice(x) * 2.0)
        return self.last(x)


def _program(net: nn.Module, x: torch.Tensor) -> torch.export.ExportedProgram:
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    saved = io.BytesIO()
    torch.export.save(torch.export.export(net.eval(), (x,), dynamic_shapes=shapes), saved)
    saved.seek(0)
    return torch.export.load(saved)


def test_a_program_has_its_layers_again_and_computes_what_it_did() -> None:
    torch.manual_seed(0)
    net, x = _Net(), torch.rand(5, 1, 8, 8)
    program = _program(net, x[:2]).module()
    names = [name for name, _ in program.named_parameters()]
    restore_layers(program)
    assert torch.equal(program(x), net(x))
    assert torch.equal(copy.deepcopy(program)(x), net(x))
    assert [name for name, _ in program.named_parameters()] == names
    kinds = [type(m) for m in program.modules() if not list(m.children())][:-1]
    # In the order of the parameters. Normalisation and a layer that is used twice keep their
    # operations, and so does the rectifier behind a product.
    features = [nn.Conv2d, nn.Module, nn.ReLU]
    assert kinds == [*features, nn.Linear, nn.Module, nn.ReLU, nn.Linear, nn.ReLU]
    assert program.get_submodule("features.0").stride == (2, 2)
    named = dict(program.named_modules())
    assert isinstance(named["features.2"], nn.ReLU)
    assert isinstance(named["act"], nn.ReLU)


def test_gradients_of_a_program_are_those_of_its_module() -> None:
    torch.manual_seed(1)
    net, x = _Net(), torch.rand(5, 1, 8, 8)
    program = _program(net, x[:2]).module()
    restore_layers(program)
    wanted = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    found = torch.autograd.grad(program(x).square().sum(), list(program.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))


@pytest.mark.parametrize("head", [[], [nn.Flatten()]], ids=["plain", "flattened"])
def test_an_attack_reads_a_program_like_its_module(head: list[nn.Module], tmp_path) -> None:
    """The first layer's gradient gives one record away; behind an operation nobody would see it."""
    torch.manual_seed(2)
    net = nn.Sequential(*head, nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    shape = (2, 3) if head else (6,)
    program = _program(net, torch.rand(2, *shape))
    torch.export.save(program, tmp_path / "model.pt2")
    network = Exported(shape, 3, tmp_path / "model.pt2")
    state = {name: p.detach().numpy() for name, p in net.named_parameters()}
    step = GradientStep(network, (0, 1, 2), state=state)
    x = np.random.default_rng(0).random((1, *shape)).astype(np.float32)
    release = step.publish(Records(x, np.array([2])), rng=np.random.default_rng(0))
    knowledge = Knowledge(record_shape=shape, value_range=(0, 1), training=step)
    found = FirstLayer().reconstruct(release, knowledge, rng=0)
    np.testing.assert_allclose(found.samples, x, atol=1e-5)
    assert found.labels is not None
    assert found.labels[0] == 2
