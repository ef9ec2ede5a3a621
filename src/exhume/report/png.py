"""Records as pictures: arrays to PNG in a data URI, with nothing but zlib.

Colours are reduced to 256, so that a pixel takes one byte instead of three.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.images import channels_last

_GREY, _TRUE_COLOUR, _PALETTE = 0, 2, 3
LARGEST_SIDE = 96
"""Larger pictures are shrunk to this size: the report shows results, it does not publish records.
"""


def picture(record: Array, value_range: tuple[float, float]) -> str:
    """Return an image record, grey or with 1 or 3 channels first or last, as a PNG data URI.

    Values from ``value_range`` become black to white; what lies outside is clipped, NaN is black.
    """
    image = channels_last(np.asarray(record)[None])[0]
    return data_uri(png(pixels(shrunk(image), value_range)))


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
    """Return the same with one byte per pixel: colours are reduced to 256."""
    if image.ndim == 2 or image.shape[2] == 1:
        return png(image)
    places, palette = indexed(image)
    return _file(places, _PALETTE, palette)


def data_uri(content: bytes) -> str:
    """Return a PNG file as a data URI."""
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


COLOURS = 256


def indexed(image: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return (height, width) places in a palette, and the palette, (colours, 3), by median cut.

    An image of no more than 256 colours keeps them exactly.

    >>> places, palette = indexed(np.array([[[9, 8, 7], [0, 0, 0]]], dtype=np.uint8))
    >>> palette[places].tolist()
    [[[9, 8, 7], [0, 0, 0]]]
    """
    flat = image.reshape(-1, 3).astype(np.int64)
    keys = flat[:, 0] << 16 | flat[:, 1] << 8 | flat[:, 2]
    distinct, places = np.unique(keys, return_inverse=True)
    if len(distinct) > COLOURS:
        # Colours are grouped in steps of eight: a hundred times fewer to sort.
        cube = flat >> 3
        keys = cube[:, 0] << 10 | cube[:, 1] << 5 | cube[:, 2]
        distinct, places = np.unique(keys, return_inverse=True)
    counts = np.bincount(places).astype(np.float64)
    sums = [np.bincount(places, weights=channel) for channel in flat.T]
    box_of, palette = _cut(np.stack(sums, axis=1) / counts[:, None], counts)
    return box_of[places].reshape(image.shape[:2]), palette


def _cut(colours: FloatArray, counts: FloatArray) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Split the box with the largest weighted spread, until there are enough boxes."""
    boxes = [np.arange(len(colours))]
    worth = [_worth(colours, counts, boxes[0])]
    while len(boxes) < COLOURS and max(worth) > 0:
        place = int(np.argmax(worth))
        halves = _halves(colours, counts, boxes[place])
        boxes[place : place + 1] = halves
        worth[place : place + 1] = [_worth(colours, counts, half) for half in halves]
    box_of = np.zeros(len(colours), dtype=np.uint8)
    palette = np.zeros((len(boxes), 3), dtype=np.uint8)
    for place, box in enumerate(boxes):
        box_of[box] = place
        palette[place] = np.rint(np.average(colours[box], axis=0, weights=counts[box]))
    return box_of, palette


def _worth(colours: FloatArray, counts: FloatArray, box: NDArray[np.intp]) -> float:
    """The benefit of a split: the spread of the widest channel, weighted by its pixels."""
    return float(np.ptp(colours[box], axis=0).max() * np.sqrt(counts[box].sum()))


def _halves(
    colours: FloatArray, counts: FloatArray, box: NDArray[np.intp]
) -> list[NDArray[np.intp]]:
    widest = int(np.argmax(np.ptp(colours[box], axis=0)))
    order = box[np.argsort(colours[box, widest], kind="stable")]
    passed = np.cumsum(counts[order])
    middle = int(np.searchsorted(passed, passed[-1] / 2)) + 1
    middle = min(max(middle, 1), len(order) - 1)
    return [order[:middle], order[middle:]]
