"""The ConvNet: count, standardised inputs, errors."""

from __future__ import annotations

import pytest
import torch

from exhume.models.convnet import ConvNet
from exhume.protocol.errors import InputError


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28), (9, 10, 1)])
def test_scores(shape: tuple[int, ...]) -> None:
    network = ConvNet(shape, 4, width=3)
    assert network.build()(torch.rand(2, *shape)).shape == (2, 4)
    assert "width 3" in network.describe()


def test_count_by_hand() -> None:
    # 27w + w, 9w² + w, 18w² + 2w, 36w² + 2w with w = 32, and 64·64·10 + 10.
    assert ConvNet((32, 32, 3), 10).parameter_count() == 896 + 9248 + 18496 + 36928 + 40970


def test_inputs_are_standardised() -> None:
    plain = ConvNet((8, 8), 3, width=2, centre=0.0, spread=1.0).build()
    shifted = ConvNet((8, 8), 3, width=2).build()
    shifted.load_state_dict(plain.state_dict())
    x = torch.rand(2, 8, 8)
    assert torch.allclose(shifted(x), plain((x - 0.5) / 0.25), atol=1e-6)


def test_errors() -> None:
    with pytest.raises(InputError, match="at least 1"):
        ConvNet((8, 8), 3, width=0)
    with pytest.raises(InputError, match="spread must be a positive number, got 0"):
        ConvNet((8, 8), 3, spread=0.0).build()
