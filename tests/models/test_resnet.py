"""Residual networks: published sizes, the wide head, and a little training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exhume.data import load
from exhume.models.resnet import ResNet, resnet20
from exhume.protocol.errors import InputError
from exhume.training.warm_up import train_a_little

SMALL = ResNet((8, 8), 10, width=4, blocks=(1, 1))


def test_published_sizes() -> None:
    # ResNet-18 with a 3 × 3 stem has 11.17M parameters, ResNet-20 0.27M (He et al. 2016).
    assert ResNet((32, 32, 3), 10).parameter_count() == 11_173_962
    assert ResNet((32, 32, 3), 10, width=16).parameter_count() == 701_466
    assert resnet20((32, 32, 3), 10).parameter_count() == 272_474
    assert (ResNet((32, 32, 3), 10).depth, resnet20((32, 32, 3), 10).depth) == (18, 20)


def test_wide_head() -> None:
    network = ResNet((8, 8, 3), 5, width=4, blocks=(1, 1), wide_head=64)
    shapes = network.parameter_shapes()
    assert shapes["head.hidden.weight"] == (64, network.features)
    assert shapes["head.output.weight"] == (5, 64)
    assert network.build().eval()(torch.rand(2, 8, 8, 3)).shape == (2, 5)
    assert "head of 64 units" in network.describe()


def test_sizes_must_be_positive() -> None:
    for bad in ({"width": 0}, {"blocks": ()}, {"wide_head": 0 - 1}):
        with pytest.raises(InputError, match="at least 1"):
            ResNet((8, 8), 3, **bad)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def images():
    records = load("fashion-mnist-small").train.take(np.arange(600))
    return type(records)(records.x[:, ::4, ::4][:, :8, :8], records.y)


class TestTrainedALittle:
    def test_is_the_seeds_alone_and_leaves_the_global_stream(self, images) -> None:
        before = torch.get_rng_state()
        one, again = (train_a_little(SMALL, images, 3, seed=1) for _ in range(2))
        assert torch.equal(torch.get_rng_state(), before)
        other = train_a_little(SMALL, images, 3, seed=2)
        for name, values in one.parameters.items():
            np.testing.assert_array_equal(values, again.parameters[name])
        assert not np.array_equal(one.parameters["head.weight"], other.parameters["head.weight"])

    def test_learns_and_keeps_running_statistics(self, images) -> None:
        start, later = (train_a_little(SMALL, images, steps) for steps in (0, 60))
        assert later.accuracy > 0.3 > start.accuracy
        name = "stem.1.running_mean"
        assert not np.allclose(start.buffers[name], later.buffers[name])

    def test_errors(self, images) -> None:
        with pytest.raises(InputError, match="steps >= 0"):
            train_a_little(SMALL, images, -1)
