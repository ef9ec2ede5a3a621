"""The weights of the perceptual metric (LPIPS with AlexNet), a file in the data folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from exhume.data.layout import first_existing
from exhume.data.npz import npz_array
from exhume.protocol.errors import InputError

LPIPS_FILE = "lpips_alex.npz"
LPIPS_REMEDY = (
    f"set EXHUME_DATA to a folder that holds {LPIPS_FILE}: the AlexNet trunk as "
    "features.{0,3,6,8,10}.weight and .bias, and the LPIPS v0.1 heads as lin0 … lin4, float32."
)

# Zhang et al. 2018, the "alex" variant: torchvision's AlexNet, one head per convolution.
_CONVOLUTIONS = {
    0: (64, 3, 11, 11),
    3: (192, 64, 5, 5),
    6: (384, 192, 3, 3),
    8: (256, 384, 3, 3),
    10: (256, 256, 3, 3),
}
_SHAPES: dict[str, tuple[int, ...]] = {
    **{f"features.{layer}.weight": shape for layer, shape in _CONVOLUTIONS.items()},
    **{f"features.{layer}.bias": shape[:1] for layer, shape in _CONVOLUTIONS.items()},
    **{f"lin{head}": shape[:1] for head, shape in enumerate(_CONVOLUTIONS.values())},
}


def find_lpips_weights(folders: Sequence[Path]) -> Path | None:
    """Return the path of the first weights file in ``folders``, or None."""
    found = (first_existing(folder, (LPIPS_FILE,)) for folder in folders)
    return next((path for path in found if path is not None), None)


def check_lpips_weights(path: Path) -> None:
    """Read every array; InputError if one is missing, or has another shape or type."""
    for key, shape in _SHAPES.items():
        array = npz_array(path, key)
        if array.shape != shape or array.dtype.kind != "f":
            raise InputError(
                f"{path}: '{key}' must be {shape} of floats, got {array.shape} of {array.dtype}"
            )
