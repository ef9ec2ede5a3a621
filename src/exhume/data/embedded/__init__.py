"""The images inside the package: the first 300 of each class of Fashion-MNIST's training set.

Fashion-MNIST: Xiao, Rasul, Vollgraf 2017, © Zalando SE, MIT licence (``LICENSE-fashion-mnist``).
``tools/make_embedded.py`` makes the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exhume.data.dataset import DataSet, Sizes
from exhume.data.images import RawImages
from exhume.data.npz import npz_array, npz_shape
from exhume.data.source import Found, ImageSource, Where
from exhume.protocol.errors import InputError

FILE = Path(__file__).with_name("fashion_mnist_small.npz")
IMAGES_SHA256 = "68aadec2e3f3672ccec48b8f2ac0d995923eb6a2fa888bc5b4c0a74d8a761015"
"""The SHA-256 of the bytes of ``x``, image after image."""


@dataclass(frozen=True)
class EmbeddedImages(ImageSource):
    """Images that come with the package, so that an audit needs no other data."""

    @property
    def where(self) -> Where:
        """In this package."""
        return Where.EMBEDDED

    @property
    def remedy(self) -> str:
        """It comes with the package."""
        return "install Exhume again: the file belongs to the package"

    def find(self, folders: Sequence[Path]) -> Found:
        """Search the package; the folders do not matter."""
        return Found(None, Sizes(npz_shape(FILE, "x")[0]))

    def load(self, folders: Sequence[Path]) -> DataSet:
        """Read and check them."""
        raw = RawImages(npz_array(FILE, "x"), npz_array(FILE, "y"), FILE)
        if hashlib.sha256(raw.images.tobytes()).hexdigest() != IMAGES_SHA256:
            raise InputError(f"{FILE}: the embedded images are damaged; {self.remedy}")
        return self._data_set((raw,), (), "embedded in the package")
