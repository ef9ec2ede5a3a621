"""Colours cut down to 256, so that a pixel takes one byte and not three."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from exhume.arrays import FloatArray

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
        # Neighbours in steps of eight go together: a hundred times fewer to sort.
        cube = flat >> 3
        keys = cube[:, 0] << 10 | cube[:, 1] << 5 | cube[:, 2]
        distinct, places = np.unique(keys, return_inverse=True)
    counts = np.bincount(places).astype(np.float64)
    sums = [np.bincount(places, weights=channel) for channel in flat.T]
    box_of, palette = _cut(np.stack(sums, axis=1) / counts[:, None], counts)
    return box_of[places].reshape(image.shape[:2]), palette


def _cut(colours: FloatArray, counts: FloatArray) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Halve the box that spreads most pixels widest, until there are enough boxes."""
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
    """How much a cut would help: the spread of the widest channel, weighed by its pixels."""
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
