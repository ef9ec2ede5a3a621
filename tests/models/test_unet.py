"""Image priors: shapes, ranges, seeds; a generator that learnt what images look like."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exhume.data import load
from exhume.models.generator import Generator, train_generator
from exhume.models.unet import UNet
from exhume.protocol.errors import InputError


@pytest.mark.parametrize("shape", [(32, 32, 3), (10, 9), (8, 8, 1)])
def test_unet_draws_images(shape: tuple[int, ...]) -> None:
    images = UNet(shape, width=8).build(0)(torch.randn(2, 16, *shape[:2]))
    assert images.shape == (2, *shape)
    assert 0 < float(images.detach().min()) <= float(images.detach().max()) < 1


def test_seeds_alone_decide() -> None:
    before = torch.get_rng_state()
    one, again, other = (next(UNet((8, 8)).build(seed).parameters()).detach() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_errors() -> None:
    with pytest.raises(InputError, match="can't be halved"):
        UNet((3, 3), scales=3)
    with pytest.raises(InputError, match="at least 1"):
        UNet((8, 8), width=0)
    with pytest.raises(InputError, match="code and width"):
        Generator((8, 8), code=0)
    with pytest.raises(InputError, match="at least 2 images"):
        train_generator(
            Generator((8, 8)), np.zeros((1, 8, 8)), steps=1, rng=np.random.default_rng(0)
        )


def test_a_trained_generator_reaches_unseen_images() -> None:
    """Codes of the trained generator come nearer to a held-out image than the mean image."""
    images = load("fashion-mnist-small").train.x[:400, 2:26:2, 2:26:2]
    generator = Generator((12, 12), code=16, width=8)
    trained = train_generator(generator, images[:350], steps=200, rng=np.random.default_rng(0))
    target = torch.tensor(images[350:370])
    codes = torch.zeros(20, 16, requires_grad=True)
    optimiser = torch.optim.Adam([codes], 0.1)
    for _ in range(80):
        optimiser.zero_grad()
        loss = (trained(codes) - target).square().mean()
        loss.backward()
        optimiser.step()
    mean = float(np.square(images[350:370] - images[:350].mean(axis=0)).mean())
    assert float(loss.detach()) < 0.5 * mean
