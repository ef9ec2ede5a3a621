"""Labels beside points without overlaps: each label takes the nearest free place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_ANGLES = (0, 180, 60, 120, 300, 240, 90, 270, 30, 150, 330, 210)
_RADII = (7.0, 13.0, 20.0, 29.0, 40.0, 54.0, 70.0, 90.0)
_MARK = 4.0
"""Half the size of a point's mark, which no label may cover."""


@dataclass(frozen=True)
class Box:
    """A rectangle in the drawing's own points, y upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Return the area that both cover.

        >>> Box(0, 0, 2, 2).overlap(Box(1, 1, 5, 5)), Box(0, 0, 1, 1).overlap(Box(1, 0, 2, 1))
        (1.0, 0.0)
        """
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return float(max(width, 0.0) * max(height, 0.0))

    def outside(self, frame: Box) -> float:
        """Return the area that lies outside ``frame``."""
        area = (self.right - self.left) * (self.top - self.bottom)
        return area - self.overlap(frame)


@dataclass(frozen=True)
class Label:
    """The place of a label: its box, and whether its distance from the point needs a line."""

    box: Box
    far: bool


def placed(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    frame: Box,
    taken: Sequence[Box] = (),
) -> list[Label]:
    """Place a label of each size beside its point, inside ``frame``, off marks and off ``taken``.

    If no free place is left, the one that covers least is taken.
    """
    marks = [Box(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in points]
    blocked = [*marks, *taken]
    found: dict[int, Label] = {}
    # Labels in crowded regions choose first: the others have more room.
    for place in _crowded_first(points):
        best, least = None, np.inf
        for radius in _RADII:
            for angle in _ANGLES:
                box = _beside(points[place], sizes[place], radius, angle)
                covers = sum(box.overlap(other) for other in blocked) + 3 * box.outside(frame)
                if covers < least:
                    best, least = Label(box, radius > _RADII[1]), covers
            if least == 0:
                break
        assert best is not None
        found[place] = best
        blocked.append(best.box)
    return [found[place] for place in range(len(points))]


def _crowded_first(points: Sequence[tuple[float, float]]) -> list[int]:
    at = np.array(points, dtype=np.float64).reshape(-1, 2)
    distances = np.linalg.norm(at[:, None] - at[None], axis=2)
    closeness = (1.0 / (distances + 10.0)).sum(axis=1)
    return [int(place) for place in np.argsort(-closeness, kind="stable")]


def _beside(
    point: tuple[float, float], size: tuple[float, float], radius: float, angle: float
) -> Box:
    """The box whose nearest edge is ``radius`` from the point in the direction of ``angle``."""
    towards = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])
    half = np.array(size) / 2
    middle = np.array(point) + towards * radius + np.round(towards, 3) * half
    left, bottom = (float(v) for v in middle - half)
    right, top = (float(v) for v in middle + half)
    return Box(left, bottom, right, top)
