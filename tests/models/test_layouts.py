"""Images (height, width, channels) and (channels, height, width) are the same images everywhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from exhume.attacks import GenerativePrior
from exhume.attacks.gradients.analytic.unmixing import edges
from exhume.attacks.gradients.matching.priors import DeepImagePrior, Frame
from exhume.audit import make_plan
from exhume.audit.scoring import default_metrics
from exhume.config import parse
from exhume.models import CNN
from exhume.models.base import Network
from exhume.models.convnet import ConvNet
from exhume.models.generator import Generator
from exhume.models.lenet import LeNet
from exhume.models.reconstructors import ConvolutionalReconstructor, PatchDiscriminator
from exhume.models.resnet import resnet20
from exhume.models.unet import UNet
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training.augmentation import Augmentation
from exhume.training.gradient import GradientStep

LAST, FIRST = (28, 24, 3), (3, 28, 24)


def moved(images: torch.Tensor) -> torch.Tensor:
    return images.movedim(-1, 1)


@pytest.mark.parametrize("kind", [CNN, ConvNet, LeNet, resnet20])
def test_networks_see_the_same_image(kind: Callable[[tuple[int, ...], int], Network]) -> None:
    one, other = (kind(shape, 4).module().eval() for shape in (LAST, FIRST))
    other.load_state_dict(one.state_dict())
    x = torch.rand(2, *LAST)
    torch.testing.assert_close(one(x), other(moved(x)))


@pytest.mark.parametrize(
    ("make", "inputs"),
    [
        (lambda shape: UNet(shape, width=4).build(3), (16, 28, 24)),
        (lambda shape: Generator(shape, code=5, width=4).build(3), (5,)),
        (lambda shape: ConvolutionalReconstructor(5, shape, (4, 4)).build(), (5,)),
    ],
)
def test_networks_make_the_same_image(
    make: Callable[[tuple[int, ...]], torch.nn.Module], inputs: tuple[int, ...]
) -> None:
    one, other = make(LAST), make(FIRST)
    other.load_state_dict(one.state_dict())
    code = torch.rand(2, *inputs)
    torch.testing.assert_close(moved(one(code)), other(code))


def test_a_discriminator_judges_the_same_image() -> None:
    one, other = (PatchDiscriminator(shape, (4, 4, 4, 4)).build() for shape in (LAST, FIRST))
    other.load_state_dict(one.state_dict())
    x = torch.rand(2, *LAST)
    torch.testing.assert_close(one(x), other(moved(x)))


def test_an_untrained_prior_draws_the_same_image() -> None:
    found = []
    for shape in (LAST, FIRST):
        frame = Frame(2, shape, (0.0, 1.0), torch.float32, torch.device("cpu"))
        found.append(DeepImagePrior(width=4).start(frame, np.random.default_rng(0)).images())
    torch.testing.assert_close(moved(found[0]), found[1])


def test_augmentation_moves_them_alike_unasked() -> None:
    x, found = torch.rand(5, *LAST), []
    for given in (x, moved(x)):
        torch.manual_seed(0)
        found.append(Augmentation(0.5, 2)(given))
    torch.testing.assert_close(moved(found[0]), found[1])


def test_edges_are_those_within_a_plane() -> None:
    x = np.random.default_rng(0).random((2, *LAST))
    flat = [given.reshape(2, -1) for given in (x, np.moveaxis(x, -1, 1))]
    np.testing.assert_array_equal(edges(flat[0], LAST), edges(flat[1], FIRST))


def test_a_generative_prior_takes_both() -> None:
    network = GradientStep(LeNet(FIRST, 3), (0, 1, 2))
    pool = Records(np.random.default_rng(0).random((6, *FIRST)), np.arange(6) % 3)
    known = Knowledge(
        record_shape=FIRST, value_range=(0.0, 1.0), training=network, shadow_targets=pool
    )
    release = network.publish(pool.take([0]), rng=np.random.default_rng(0))
    attack = GenerativePrior(steps=1, training_steps=1, code=4, width=4)
    assert attack.reconstruct(release, known, rng=0).samples.shape == (1, *FIRST)


def test_halves_and_metrics_are_those_of_the_image(tmp_path) -> None:  # type: ignore[no-untyped-def]
    x = np.random.default_rng(0).random((40, *LAST)).astype(np.float32)
    found = []
    for name, given in (("last", x), ("first", np.moveaxis(x, -1, 1))):
        np.savez(tmp_path / f"{name}.npz", x=given, y=np.arange(40) % 2)
        text = f"""
            data = {{ file = "{name}.npz", fixed_set = 20 }}
            release = {{ model = "logistic" }}
            knowledge = {{ attributes = "upper-half", value_range = [0, 1] }}
            audit = {{ targets = 2 }}
            """
        setting = make_plan(parse(text, folder=tmp_path, source="test")).setting(0)
        image = np.zeros(setting.known_mask.shape)
        image[setting.known_mask] = 1.0
        found.append(image if name == "last" else np.moveaxis(image, 0, -1))
        assert "ssim" in default_metrics(setting)
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0][:14].all()
    assert not found[0][14:].any()
