"""Parametrisations of images: pixels, parameters of an untrained network, or a latent code."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.models.generator import Generator
from exhume.models.unet import UNet
from exhume.protocol.arrays import Array
from exhume.protocol.images import channels_are_first, sides_of


@dataclass(frozen=True, eq=False)
class Frame:
    """The format of the images: number, shape, box (low, high), and dtype."""

    count: int
    record_shape: tuple[int, ...]
    box: tuple[float, float] | None
    dtype: torch.dtype
    device: torch.device

    @property
    def spread(self) -> float:
        """A pixel's usual deviation: a quarter of the range."""
        return 1.0 if self.box is None else 0.25 * (self.box[1] - self.box[0])

    @property
    def middle(self) -> float:
        """The middle of the range, or 0 without a range."""
        return 0.0 if self.box is None else 0.5 * (self.box[0] + self.box[1])

    def placed(self, images: Tensor) -> Tensor:
        """Map images from [0, 1] into the box."""
        if self.box is None:
            return images
        return self.box[0] + (self.box[1] - self.box[0]) * images

    def tensor(self, values: Array) -> Tensor:
        """Return values in the precision of this frame."""
        return torch.tensor(np.asarray(values), dtype=self.dtype, device=self.device)


class Variables(ABC):
    """The unknowns of one run, and the images that they represent."""

    unknowns: list[Tensor]

    @abstractmethod
    def images(self) -> Tensor:
        """Return the images (n, *record shape), differentiable in the unknowns."""

    def project(self) -> None:  # noqa: B027
        """Project the unknowns back to the allowed region; most are unrestricted."""


class ImagePrior(ABC):
    """The start of a run, and the unknowns that it may change."""

    @abstractmethod
    def start(self, frame: Frame, rng: np.random.Generator) -> Variables:
        """Draw a start."""


class _Pixels(Variables):
    """Pixels in units of their usual deviation from the middle, so that rates are comparable.

    Colour images are stored channels first: the network's first layer then needs no copy.
    """

    def __init__(self, start: Tensor, frame: Frame, *, clamped: bool) -> None:
        self._frame, self._clamped = frame, clamped
        self._colour = start.ndim == 4 and not channels_are_first(frame.record_shape)
        standard = (start - frame.middle) / frame.spread
        planes = standard.movedim(-1, 1).contiguous() if self._colour else standard
        self._planes = planes.detach().clone().requires_grad_(True)
        self.unknowns = [self._planes]

    def images(self) -> Tensor:
        planes = self._frame.middle + self._frame.spread * self._planes
        return planes.movedim(1, -1) if self._colour else planes

    def project(self) -> None:
        box = self._frame.box
        if self._clamped and box is not None:
            low, high = ((edge - self._frame.middle) / self._frame.spread for edge in box)
            with torch.no_grad():
                self._planes.clamp_(low, high)


@dataclass(frozen=True, eq=False)
class Pixels(ImagePrior):
    """The pixels themselves, from noise around the middle of the box, or from ``given`` images.

    ``noise`` is the deviation of the start in units of a pixel's usual one. ``clamped`` keeps the
    pixels in the box after each step; L-BFGS, which relies on smoothness, does without.
    """

    noise: float = 1.0
    clamped: bool = True
    given: Array | None = None

    def start(self, frame: Frame, rng: np.random.Generator) -> Variables:
        """Draw pixels."""
        shape = (frame.count, *frame.record_shape)
        base = frame.middle if self.given is None else np.asarray(self.given, dtype=np.float64)
        drawn = base + self.noise * frame.spread * rng.standard_normal(shape)
        if frame.box is not None:
            drawn = np.clip(drawn, *frame.box)
        return _Pixels(frame.tensor(drawn), frame, clamped=self.clamped)


class Drawn(Variables):
    """Images that a network generates from ``code``; its parameters move unless ``fixed``."""

    def __init__(self, module: torch.nn.Module, code: Tensor, frame: Frame, fixed: bool) -> None:
        self._module, self.code, self._frame = module, code, frame
        parameters = [] if fixed else [p for p in module.parameters() if p.requires_grad]
        self.unknowns = [*parameters, *([code] if code.requires_grad else [])]

    def images(self) -> Tensor:
        """Return the network's images, mapped into the box."""
        return self._frame.placed(self._module(self.code))


@dataclass(frozen=True)
class DeepImagePrior(ImagePrior):
    """The images of one untrained U-Net on fixed noise (Ulyanov et al. 2018): its parameters move.

    One network generates the whole batch; each image has its own noise.
    """

    width: int = 24
    scales: int = 3
    inputs: int = 16

    def start(self, frame: Frame, rng: np.random.Generator) -> Variables:
        """Draw a network and its input noise."""
        shape, sides = frame.record_shape, sides_of(frame.record_shape)[:2]
        deepest = max(1, min(self.scales, int(np.log2(min(sides))) - 1))
        settings = UNet(shape, self.width, deepest, self.inputs)
        module = settings.build(int(rng.integers(2**31))).to(frame.device, frame.dtype)
        noise = rng.standard_normal((frame.count, self.inputs, *sides))
        return Drawn(module, frame.tensor(noise), frame, fixed=False)


class Generative(ImagePrior):
    """The images of a trained generator: codes move, and with ``tuned`` its parameters too.

    Jeon et al. 2021 search the codes first and the parameters afterwards; ``codes`` (n, code) then
    are the result of the first search.
    """

    def __init__(
        self,
        generator: Generator,
        trained: torch.nn.Module,
        *,
        codes: Tensor | None = None,
        tuned: bool = False,
    ) -> None:
        self._generator, self._trained = generator, trained
        self._codes, self._tuned = codes, tuned

    def start(self, frame: Frame, rng: np.random.Generator) -> Variables:
        """Copy the generator, and draw codes if none are given."""
        module = copy.deepcopy(self._trained).to(frame.device, frame.dtype)
        drawn = frame.tensor(0.3 * rng.standard_normal((frame.count, self._generator.code)))
        codes = drawn if self._codes is None else self._codes.to(frame.dtype).clone()
        return Drawn(module, codes.requires_grad_(True), frame, fixed=not self._tuned)
