"""Augmentation of training images: random mirroring and cropping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.protocol.errors import InputError
from exhume.protocol.images import channels_are_first

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Mirrors each image with probability ``flip``, and moves it by up to ``crop`` pixels.

    As the usual random crop: the image is padded with ``crop`` zeros on every side and cut to its
    size at a random place. Draws of a batch of n, in this order, before the forward pass:
    ``torch.rand(n) < flip``, then ``torch.randint(2 * crop + 1, (n, 2))``, the rows before the
    columns; what is 0 is not drawn. ``channels_first`` says that a record is (C, H, W) rather than
    (H, W) or (H, W, C); None: what its shape says.
    """

    flip: float = 0.0
    crop: int = 0
    channels_first: bool | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.flip <= 1:
            raise InputError(f"flip must be a probability in [0, 1], got {self.flip}")
        if self.crop < 0:
            raise InputError(f"crop can't be negative, got {self.crop}")
        if not self.flip and not self.crop:
            raise InputError("an augmentation needs flip or crop above 0")

    def __call__(self, x: Tensor) -> Tensor:
        """Return the augmented batch (n, *record shape), differentiable in it."""
        import torch

        rows, columns = self._axes(x)
        if self.flip:
            mirrored = torch.rand(len(x)) < self.flip
            x = torch.where(_shaped(mirrored, x), x.flip(columns), x)
        if self.crop:
            places = torch.randint(2 * self.crop + 1, (len(x), 2)).to(x.device)
            for axis, start in ((rows, places[:, 0]), (columns, places[:, 1])):
                x = _moved(x, axis, start - self.crop)
        return x

    def _axes(self, x: Tensor) -> tuple[int, int]:
        if x.ndim not in (3, 4):
            raise InputError(
                f"augmentation is for images, and a record has shape {tuple(x.shape[1:])}"
            )
        first = self.channels_first
        if first is None:
            first = channels_are_first(tuple(x.shape[1:]))
        return (2, 3) if first and x.ndim == 4 else (1, 2)

    def describe(self) -> str:
        """Return for example ``mirrored with probability 0.5 and moved by up to 2 pixels``."""
        parts = [f"mirrored with probability {self.flip:g}"] if self.flip else []
        parts += [f"moved by up to {self.crop} pixels"] if self.crop else []
        return " and ".join(parts)


def _shaped(values: Tensor, x: Tensor) -> Tensor:
    return values.to(x.device).reshape(-1, *[1] * (x.ndim - 1))


def _moved(x: Tensor, axis: int, by: Tensor) -> Tensor:
    """Return each image's entries at i + ``by`` (n,) along ``axis``, 0 beyond the edge."""
    import torch

    size = x.shape[axis]
    places = torch.arange(size, device=x.device) + by[:, None]
    inside = (places >= 0) & (places < size)
    shape = [len(x)] + [size if a == axis else 1 for a in range(1, x.ndim)]
    index = places.clamp(0, size - 1).reshape(shape).expand_as(x)
    return torch.where(inside.reshape(shape), x.gather(axis, index), x.new_zeros(()))
