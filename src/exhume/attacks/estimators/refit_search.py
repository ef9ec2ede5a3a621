"""Levenberg–Marquardt through a training that can only be repeated, starting from shadow fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from exhume.attacks.estimators.release_map import Shadow, UnknownChoice
from exhume.protocol.arrays import Array, FloatArray

_FAR = 6.0
"""No record is further from the mean than this many deviations."""
_DAMPINGS = 8
_ALIKE = 3
_DESCENTS = 6
_FINER = 0.1
"""Short steps are worth a descent of their own if their noise is below this share."""
EXACT = 1e-9


class Searched(Protocol):
    """What a search needs of a map from records to releases, both in standard units."""

    @property
    def fits(self) -> int:
        """The fits so far."""

    @property
    def noise(self) -> float:
        """The deviation of a fit's random part."""

    @property
    def fine(self) -> float:
        """The same over the shortest steps."""

    @property
    def shadows(self) -> Sequence[Shadow]:
        """Records with their releases, to start from."""

    @property
    def free(self) -> Array:
        """The unknowns that lie on a line."""

    @property
    def choices(self) -> Sequence[UnknownChoice]:
        """The unknowns that have one of a few values."""

    def start(self, unknowns: FloatArray) -> FloatArray:
        """Return the nearest record that a search may start from."""

    def missing(self, unknowns: FloatArray) -> int:
        """Return how many cells of a record are missing."""

    def __call__(self, unknowns: FloatArray) -> FloatArray | None:
        """Return a record's release, None if there is none."""


@dataclass(frozen=True, eq=False)
class SolvedRecord:
    """A record in standard units.

    ``residual`` is the distance of its release from the released one. The unit is the distance
    between the releases of two records. ``slopes`` (directions, free) say how its release changes
    with the ``free`` unknowns, up to ``noise``. Records in ``alike`` explain the release as well.
    """

    unknowns: FloatArray
    residual: float
    slopes: FloatArray | None = None
    free: Array | None = None
    alike: tuple[FloatArray, ...] = field(default=())
    noise: float = 0.0

    @property
    def left(self) -> float:
        """The length of what is left in all directions: the residual and a fit's noise."""
        count = 1 if self.slopes is None else len(self.slopes)
        # A residual of exactly zero says nothing where the release does not depend on the record.
        return float(max(np.hypot(self.residual, self.noise), EXACT) * np.sqrt(count))

    def errors(self) -> FloatArray:
        """Return each unknown's deviation due to residual and noise; 1 if it is undetermined.

        An unknown that has one of a few values is right, unless a record that is alike differs.
        """
        errors = np.ones_like(self.unknowns)
        if self.slopes is None:
            return errors
        free = np.arange(len(errors)) if self.free is None else self.free
        errors[np.setdiff1d(np.arange(len(errors)), free)] = 0.0
        _, sizes, rows = np.linalg.svd(self.slopes, full_matrices=True)
        sizes = np.concatenate([sizes, np.zeros(len(rows) - len(sizes))])
        spread = np.minimum(self.left / np.maximum(sizes, 1e-300), 1.0)
        errors[free] = np.sqrt((rows.T**2) @ spread**2)
        for other in self.alike:
            errors = np.maximum(errors, np.minimum(np.abs(other - self.unknowns), 1.0))
        return errors


def search(
    map_: Searched, target: FloatArray, *, fits: int, given: Sequence[FloatArray] = ()
) -> SolvedRecord | None:
    """Return the record whose release is nearest to ``target``, within about ``fits`` fits.

    ``given`` are records to start from, beside those that the shadows suggest.
    """
    from exhume.attacks.estimators.mixed_search import descend_mixed, with_alternatives

    starts = sorted(_starts(map_, target, given), key=lambda one: one.residual)
    best, last = None, map_.fits + fits
    # What a search by coarse steps ends with is worth a share of the fits by fine ones.
    coarse = last - (fits // 3 if map_.fine < _FINER * map_.noise else 0)
    for start in starts[:_DESCENTS]:
        found = (descend_mixed if map_.choices else descend)(map_, target, start, coarse)
        if best is None or found.residual < best.residual:
            best = found
        if best.residual < max(EXACT, 3.0 * map_.noise) or map_.fits > coarse:
            break
    if best is None:
        return None
    if map_.fine < _FINER * map_.noise and best.residual > EXACT:
        best = _polished(map_, target, best, last)
    return with_alternatives(map_, target, best)


def _polished(map_: Searched, target: FloatArray, best: SolvedRecord, last: int) -> SolvedRecord:
    """Return the record after a descent by the shortest steps, if that is nearer."""
    found = descend(map_, target, best, last, noise=map_.fine)
    return found if found.residual < best.residual else best


def _starts(
    map_: Searched, target: FloatArray, given: Sequence[FloatArray]
) -> Iterator[SolvedRecord]:
    """Yield ridge regression on the shadows, and the shadows most like the target."""
    releases = np.stack([one.release for one in map_.shadows])
    unknowns = np.stack([one.unknowns for one in map_.shadows])
    # Many releases move in one direction per record; its prediction error sets how far.
    alike = np.argsort(-_cosines(releases, target))[:_ALIKE].tolist()
    nearest = int(np.linalg.norm(releases - target, axis=1).argmin())
    places = dict.fromkeys([nearest, *alike])
    regressed = _regressed(releases, unknowns, target)
    for start in (*given, regressed, *unknowns[list(places)]):
        start = map_.start(start)
        release = map_(start)
        if release is not None:
            yield SolvedRecord(start, size(release - target), free=map_.free)


def _cosines(releases: FloatArray, target: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(releases, axis=1) * np.linalg.norm(target)
    return np.asarray(releases @ target / np.maximum(lengths, 1e-300))


def _regressed(releases: FloatArray, unknowns: FloatArray, target: FloatArray) -> FloatArray:
    centre, middle = releases.mean(axis=0), unknowns.mean(axis=0)
    apart = releases - centre
    gram = apart @ apart.T
    gram[np.diag_indices(len(gram))] += 1e-3 * np.trace(gram) / len(gram) + 1e-12
    weights = np.linalg.solve(gram, unknowns - middle)
    return np.asarray(np.clip(middle + (target - centre) @ apart.T @ weights, -_FAR, _FAR))


def size(difference: FloatArray) -> float:
    """Return a root mean square."""
    return float(np.sqrt(np.mean(difference**2)))


def descend(
    map_: Searched,
    target: FloatArray,
    start: SolvedRecord,
    last: int,
    *,
    noise: float | None = None,
) -> SolvedRecord:
    """Descend from a start: slopes by differences once, then updated after each step.

    ``noise`` is that of the steps of these differences, by default the map's.
    """
    noise = map_.noise if noise is None else noise
    now: FloatArray = start.unknowns
    release = map_(now)
    if release is None:
        return start
    rest: FloatArray = release - target
    slopes, fresh, damping = None, False, 1e-3
    while map_.fits < last and size(rest) > max(EXACT, noise):
        if slopes is None:
            slopes, fresh = slopes_at(map_, now, rest, target, noise), True
            if slopes is None:
                break
        step = _step(map_, target, now, rest, slopes, damping)
        if step is None:
            if fresh:
                break
            slopes, damping = None, 1e-3
            continue
        moved, after, damping = step
        # Broyden's update: the step itself measures one more slope.
        taken = (moved - now)[map_.free]
        slopes = slopes + np.outer((after - rest) - slopes @ taken, taken) / (taken @ taken)
        slow = size(after) > 0.3 * size(rest)
        now, rest = moved, after
        slopes, fresh = (None, False) if slow and not fresh else (slopes, False)
    final = slopes_at(map_, now, rest, target, noise)
    return SolvedRecord(now, size(rest), final, map_.free, noise=noise)


def slopes_at(
    map_: Searched, now: FloatArray, rest: FloatArray, target: FloatArray, noise: float
) -> FloatArray | None:
    """Return ∂release/∂unknowns (directions, free unknowns) by differences."""
    width = float(np.clip(np.sqrt(noise), 1e-5, 0.1))
    columns = []
    for place in map_.free:
        moved = now.copy()
        moved[place] += width
        release = map_(moved)
        if release is None:
            return None
        columns.append((release - target - rest) / width)
    return np.column_stack(columns) if columns else np.zeros((len(rest), 0))


def _step(
    map_: Searched,
    target: FloatArray,
    now: FloatArray,
    rest: FloatArray,
    slopes: FloatArray,
    damping: float,
) -> tuple[FloatArray, FloatArray, float] | None:
    """Return a step that helps: its end point, its residual, and the next damping."""
    if not slopes.shape[1]:
        return None
    normal, gradient = slopes.T @ slopes, slopes.T @ rest
    for _ in range(_DAMPINGS):
        damped = normal.copy()
        damped[np.diag_indices(len(damped))] += damping * np.trace(normal) / len(normal) + 1e-300
        step = -np.linalg.lstsq(damped, gradient, rcond=None)[0]
        step *= min(1.0, 3.0 / max(float(np.linalg.norm(step)), 1e-300))
        moved = now.copy()
        moved[map_.free] = np.clip(now[map_.free] + step, -_FAR, _FAR)
        release = map_(moved) if (moved != now).any() else None
        if release is not None and size(release - target) < size(rest):
            return moved, release - target, max(damping / 30, 1e-14)
        damping *= 10
    return None
