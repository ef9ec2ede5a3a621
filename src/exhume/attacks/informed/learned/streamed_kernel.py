"""Kernel ridge on a block of shadow models that are read from a mapped file, 1,024 at a time.

One Cholesky factor per penalty that is tried takes the place of the eigendecomposition, which takes
several times as long. Memory: 16 bytes × models² of the block, and four arrays of the rows that are
read at a time (256 MB each at most).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.attacks.informed.learned.kernel_ridge import PENALTIES, Kernel, over, scaled
from exhume.attacks.informed.learned.shadow_regression import OTHER_LABEL
from exhume.protocol.arrays import Array, FloatArray
from exhume.runtime.pages import forget

_ROWS, _BYTES = 1024, 1 << 28
_STEP = 2
"""The search for a penalty goes this far along ``PENALTIES`` at a time: half a decade."""
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StreamedDirections:
    """Some rows of a table (k, P), ``places``, prepared for comparing their directions.

    ``norms`` (3, places) are those of all numbers, of the first ``split`` ones, and of the rest;
    ``size`` brings the largest number to 1.
    """

    differences: Array
    places: Places
    split: int
    size: float
    norms: FloatArray

    @classmethod
    def of(cls, differences: Array, places: Places, split: int, size: float) -> StreamedDirections:
        """Return the rows at these places with their norms."""
        blank = cls(differences, places, split, size, np.zeros((3, len(places))))
        for part, rows in blank.parts():
            for norm, columns in zip(blank.norms[1:], blank.columns(rows), strict=True):
                norm[part] = np.sqrt(np.square(columns, dtype=np.float64).sum(axis=1))
        blank.norms[0] = np.hypot(blank.norms[1], blank.norms[2])
        return blank

    def parts(self) -> Iterator[tuple[slice, Array]]:
        """Yield 1,024 rows at a time, or 256 MB, with their places among these."""
        count = max(1, min(_ROWS, _BYTES // (4 * self.differences.shape[1])))
        for start in range(0, len(self.places), count):
            part = slice(start, min(start + count, len(self.places)))
            yield part, self.differences[self.places[part]] / np.float32(self.size)
            forget(self.differences)

    def columns(self, rows: Array) -> tuple[Array, Array]:
        """Return the first block of rows, and the rest."""
        return rows[..., : self.split], rows[..., self.split :]

    def kernel(self, kernel: Kernel, vector: FloatArray) -> FloatArray:
        """Return the kernel (places,) of one difference with all of them."""
        vector = scaled(vector).astype(np.float32)
        dots = np.empty((2, len(self.places)))
        for part, rows in self.parts():
            for dot, own, other in zip(dots, self.columns(rows), self.columns(vector), strict=True):
                dot[part] = own @ other
        first, rest = (np.linalg.norm(one.astype(np.float64)) for one in self.columns(vector))
        own = np.array([np.hypot(first, rest), first, rest])
        return _kernel(kernel, dots, self.norms * own[:, None])

    def table(self, kernel: Kernel) -> FloatArray:
        """Return the kernel (places, places) among them; each pair of parts is read once."""
        found = np.empty((len(self.places), len(self.places)))
        for part, rows in self.parts():
            for other, across in self.parts():
                if other.start > part.start:
                    break
                pairs = zip(self.columns(rows), self.columns(across), strict=True)
                dots = np.array([a @ b.T for a, b in pairs], dtype=np.float64)
                norms = self.norms[:, part, None] * self.norms[:, None, other]
                values = _kernel(kernel, dots, norms)
                found[part, other], found[other, part] = values, values.T
            # A product of single precision is not exactly symmetric, and means must agree.
            found[part, part] = (found[part, part] + found[part, part].T) / 2
        return found


def _kernel(kernel: Kernel, dots: FloatArray, norms: FloatArray) -> FloatArray:
    """Return kernel values from the products of first blocks and of rests, and three norms."""
    first, rest = dots
    return kernel.of(over(first + rest, norms[0]), over(first, norms[1]), over(rest, norms[2]))


@dataclass(frozen=True, eq=False)
class BlockRegression:
    """Kernel ridge on one block; responses are a record's entries, then a column per class.

    With ``labels`` (places,), models of the target's label count more than others. ``left_out`` are
    leave-one-out predictions. ``spread`` is the gap between each model's kernel with itself and
    with the nearest other one: the farther, the larger is the error.
    """

    compared: StreamedDirections
    kernel: Kernel
    labels: Array | None
    coefficients: Array
    mean: FloatArray
    column_means: FloatArray
    left_out: Array
    spread: FloatArray
    penalty: float

    def read(self, difference: FloatArray, label: object = None) -> tuple[FloatArray, float]:
        """Return the responses (d,) for a difference, and its own gap to the nearest model."""
        row, most = self.compared.kernel(self.kernel, difference), 1.0
        if self.labels is not None:
            row, most = row * (OTHER_LABEL + (self.labels == label)), 1.0 + OTHER_LABEL
        found = self.mean + (row - self.column_means) @ self.coefficients
        one = np.ones(1)
        own = most * float(self.kernel.of(one, one, one)[0])
        return np.asarray(found), own - float(row.max())


def block_regression(
    compared: StreamedDirections,
    kernel: Kernel,
    responses: FloatArray,
    penalty: Callable[[Callable[[int], float]], int],
    *,
    judged: int,
    labels: Array | None = None,
) -> tuple[BlockRegression, int]:
    """Fit ``responses`` (places, d) on a block, and return the place of its penalty.

    ``penalty`` chooses the place in ``PENALTIES`` (in units of the kernel's mean eigenvalue), given
    the generalised cross-validation error of the first ``judged`` columns at a place.
    """
    table = compared.table(kernel)
    if labels is not None:
        for row, label in zip(table, labels, strict=True):
            row *= OTHER_LABEL + (labels == label)
    own = table.diagonal().copy()
    np.fill_diagonal(table, -np.inf)
    spread = own - table.max(axis=1)
    np.fill_diagonal(table, own)
    means, mean = table.mean(axis=0), responses.mean(axis=0)
    total = float(means.mean())
    table -= means[None]
    table -= means[:, None] - total
    unit = float(np.trace(table)) / len(table) or 1.0
    solved: dict[int, tuple[FloatArray, FloatArray] | None] = {}

    def error(place: int) -> float:
        solved.clear()
        solved[place] = _solved(table, responses - mean, unit * PENALTIES[place])
        found = solved[place]
        if found is None:
            return np.inf
        coefficients, complement = found
        return float(np.square(coefficients[:, :judged]).sum() / complement.sum() ** 2)

    place = penalty(error)
    if place not in solved:
        error(place)
    found = solved[place]
    if found is None:
        raise np.linalg.LinAlgError("the kernel of the shadow models is not positive")
    left_out = responses - _gaps(found)
    return BlockRegression(
        compared,
        kernel,
        labels,
        found[0].astype(np.float32),
        mean,
        means,
        left_out.astype(np.float32),
        spread,
        unit * float(PENALTIES[place]),
    ), place


def _solved(
    centred: FloatArray, responses: FloatArray, penalty: float
) -> tuple[FloatArray, FloatArray] | None:
    """Return (K + λ)⁻¹Y and the inverse's diagonal without the constant; None if K is not positive.

    The constant belongs to the mean, which is not penalised.
    """
    from scipy.linalg import lapack

    count = len(centred)
    work = centred.copy().T  # symmetric, and in LAPACK's order
    work.flat[:: count + 1] += penalty
    factor, failed = lapack.dpotrf(work, lower=1, overwrite_a=1, clean=0)
    if failed:
        return None
    coefficients, _ = lapack.dpotrs(factor, responses, lower=1)
    coefficients -= coefficients.mean(axis=0)
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    complement = np.maximum(inverse.diagonal() - 1.0 / (penalty * count), 1e-300)
    return np.asarray(coefficients), complement


def _gaps(solved: tuple[FloatArray, FloatArray]) -> FloatArray:
    """Return the leave-one-out residuals."""
    coefficients, complement = solved
    return np.asarray(coefficients / complement[:, None])


def sought(start: int) -> Callable[[Callable[[int], float]], int]:
    """Return a search in ``PENALTIES`` from one place to a minimum, half a decade at a time."""

    def search(error: Callable[[int], float]) -> int:
        place, least = start, error(start)
        for step in (-_STEP, _STEP):
            moved = False
            while 0 <= place + step < len(PENALTIES) and (found := error(place + step)) < least:
                place, least, moved = place + step, found, True
            if moved:
                break
        return place

    return search
