"""Records as pictures: arrays to PNG in a data URI, with nothing but zlib."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from exhume.arrays import Array
from exhume.report.palette import indexed

_GREY, _TRUE_COLOUR, _PALETTE = 0, 2, 3
LARGEST_SIDE = 96
"""Larger pictures are shrunk to this: the report shows what came out, it does not publish it."""


def picture(record: Array, value_range: tuple[float, float]) -> str:
    """Return an image record, (height, width) or (height, width, 1 or 3), as a PNG data URI.

    Values from ``value_range`` become black to white; what lies outside is clipped, NaN is black.
    """
    return data_uri(png(pixels(shrunk(record), value_range)))


def pixels(record: Array, value_range: tuple[float, float]) -> NDArray[np.uint8]:
    """Return values as bytes from 0 to 255.

    >>> pixels(np.array([[0.0, 0.5], [1.0, 7.0]]), (0.0, 1.0)).tolist()
    [[0, 128], [255, 255]]
    """
    low, high = value_range
    width = high - low if high > low else 1.0
    scaled = np.nan_to_num((np.asarray(record, dtype=np.float64) - low) / width, nan=0.0)
    return np.rint(255.0 * np.clip(scaled, 0.0, 1.0)).astype(np.uint8)


def shrunk(record: Array, largest: int = LARGEST_SIDE) -> Array:
    """Return an image whose sides are at most ``largest``, by averaging whole blocks."""
    factor = -(-max(record.shape[:2]) // largest)
    if factor == 1:
        return record
    height, width = (side // factor * factor for side in record.shape[:2])
    if not height or not width:
        return record[::factor, ::factor]
    rest = record.shape[2:]
    blocks = record[:height, :width].reshape(
        height // factor, factor, width // factor, factor, *rest
    )
    return np.asarray(blocks.mean(axis=(1, 3)))


def png(image: NDArray[np.uint8]) -> bytes:
    """Return 8-bit grey (h, w) or (h, w, 1), or colour (h, w, 3), as a PNG file's bytes."""
    flat = image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image
    return _file(flat, _TRUE_COLOUR if flat.ndim == 3 else _GREY)


def small_png(image: NDArray[np.uint8]) -> bytes:
    """Return the same in one byte a pixel: colours are cut down to 256."""
    if image.ndim == 2 or image.shape[2] == 1:
        return png(image)
    places, palette = indexed(image)
    return _file(places, _PALETTE, palette)


def data_uri(content: bytes) -> str:
    """Return a PNG file as an address that holds all of it."""
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _file(rows: NDArray[np.uint8], kind: int, palette: NDArray[np.uint8] | None = None) -> bytes:
    height, width = rows.shape[:2]
    # Every row starts with its filter, 0: none.
    lines = np.hstack([np.zeros((height, 1), np.uint8), rows.reshape(height, -1)])
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = [(b"IHDR", header)]
    chunks += [] if palette is None else [(b"PLTE", palette.tobytes())]
    chunks += [(b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
