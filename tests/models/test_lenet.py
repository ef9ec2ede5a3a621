"""The LeNet of Zhu et al.: shapes, count, its own draw."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exhume.models.lenet import LeNet
from exhume.protocol.errors import InputError


@pytest.mark.parametrize(
    ("shape", "count"),
    # By hand: 25·12·c + 12, twice 25·12·12 + 12, then 12·⌈h/4⌉·⌈w/4⌉·10 + 10.
    [((32, 32, 3), 15826), ((28, 28), 312 + 2 * 3612 + 5890), ((9, 7, 2), 612 + 7224 + 730)],
)
def test_parameters_and_scores(shape: tuple[int, ...], count: int) -> None:
    network = LeNet(shape, 10)
    assert network.parameter_count() == count
    assert network.build()(torch.rand(3, *shape)).shape == (3, 10)
    assert network == LeNet(shape, 10)
    assert "sigmoid" in network.describe()


def test_uniform_parameters_fill_the_half_interval() -> None:
    drawn = LeNet((32, 32, 3), 10).uniform_parameters(np.random.default_rng(0))
    values = np.concatenate([v.ravel() for v in drawn.values()])
    assert np.abs(values).max() <= 0.5
    assert values.std() == pytest.approx(1 / np.sqrt(12), rel=0.02)


@pytest.mark.parametrize("shape", [(10,), (2, 2, 2, 2), (0, 4)])
def test_records_must_be_images(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="must be images"):
        LeNet(shape, 3)


def test_outputs_must_be_positive() -> None:
    with pytest.raises(InputError, match="at least 1 output"):
        LeNet((8, 8), 0)
