"""Convolutional networks as descriptions."""

from __future__ import annotations

import pytest
import torch

from exhume.models import CNN, Convolution
from exhume.protocol.errors import InputError


def test_table_vi():
    """16@4×4 stride 2, 32@4×4, VALID padding, head to 10: 55,098 (Balle et al. 2022, Table VI)."""
    network = CNN((32, 32, 3), 10)
    # 3·16·16+16, 16·32·16+32, and 15 → 12 pixels a side into the head.
    assert network.parameter_count() == 784 + 8224 + (12 * 12 * 32 * 10 + 10) == 55_098


@pytest.mark.parametrize("shape", [(12, 10), (12, 10, 1), (12, 10, 3)])
def test_scores_have_the_stated_shape(shape):
    network = CNN(shape, 4, (Convolution(3, 3, 2, 1), Convolution(2, 2)))
    assert network.build()(torch.randn(5, *shape)).shape == (5, 4)


def test_colours_come_last():
    """A record (h, w, c) meets the kernels as channels, not as rows."""
    network = CNN((6, 5, 3), 2, (Convolution(4, 3),))
    module, x = network.build(), torch.randn(2, 6, 5, 3)
    weight, bias, head, shift = module.parameters()
    by_hand = torch.zeros(2, 4, 4, 3)
    for i in range(4):
        for j in range(3):
            patch = x[:, i : i + 3, j : j + 3, :]
            by_hand[:, :, i, j] = torch.einsum("nabc,fcab->nf", patch, weight) + bias
    expected = torch.nn.functional.elu(by_hand).flatten(1) @ head.T + shift
    torch.testing.assert_close(module(x), expected, rtol=1e-4, atol=1e-5)


def test_grey_images_are_one_channel():
    grey, single = CNN((9, 9), 2, (Convolution(2, 3),)), CNN((9, 9, 1), 2, (Convolution(2, 3),))
    assert grey.parameter_shapes() == single.parameter_shapes()


def test_wrong_records_are_refused():
    with pytest.raises(InputError, match=r"takes images .* got records of shape \(784,\)"):
        CNN((784,), 10)
    with pytest.raises(InputError, match="too small"):
        CNN((4, 4), 10)


def test_description():
    assert "2 convolutions (16, 32 filters, elu)" in CNN((28, 28), 10).describe()
