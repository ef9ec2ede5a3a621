"""Exact separation of errors that passed a ReLU, by directions with many zeros.

∂W = Δ X with Δ = left · Q⁻¹. A neuron that is inactive for a record gets no error from it. So a
column of Δ is zero in about half of the neurons, and no other direction in the span is (Dimitrov et
al. 2024). A guess of a record predicts which neurons: the column is the direction with the smallest
values there, and its zeros prove it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.attacks.gradients.analytic.factorisation import Factors
from exhume.protocol.arrays import Array, FloatArray

_SPLIT = 8
"""The most columns that a search separates within a mixed direction."""
_ESSENTIAL = 0.999
"""Leverage from which a neuron is zero only because the direction was fitted to make it so."""


@dataclass(frozen=True, eq=False)
class Neurons:
    """The first layer's neurons as rows of unit length (width, rank), without dead ones.

    ``blur`` (width,) is the noise in a row times q per unit of ‖q / singular‖.
    """

    rows: FloatArray
    alive: Array
    blur: FloatArray
    singular: FloatArray

    @property
    def rank(self) -> int:
        """The number of columns to find."""
        return int(self.rows.shape[1])

    def returned(self, column: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return |rows · q| over its deviation across neurons, and the threshold for zero."""
        values = np.abs(self.rows @ column)
        size = max(float(np.sqrt(np.mean(values**2))), 1e-300)
        blur = 8.0 * self.blur * np.linalg.norm(column / self.singular)
        return values / size, np.maximum(blur / size, 1e-9)

    def same(self, one: FloatArray, other: FloatArray) -> bool:
        """Whether two unit directions agree up to the noise."""
        slack = max(1e-6, float(np.median(self.returned(one)[1])) ** 2)
        return bool(abs(float(one @ other)) > 1.0 - slack)


def neurons(factors: Factors) -> Neurons:
    """Return the neurons that at least one record reached."""
    length = np.linalg.norm(factors.left, axis=1)
    blur = factors.noise * np.linalg.norm(1.0 / factors.singular)
    alive = length > max(30.0 * blur, 1e-12)
    rows = factors.left[alive] / length[alive, None]
    return Neurons(rows, alive, factors.noise / length[alive], factors.singular)


def believed_inactive(preactivations: FloatArray, rank: int, *, share: float) -> Array:
    """Return the ``share`` of neurons, a mask (width,), that a guess puts furthest below zero.

    Neurons close to zero are the most likely errors, but ``rank`` unknowns need as many neurons.
    """
    below = np.flatnonzero(preactivations < 0)
    wanted = min(len(below), int(max(share * len(below), 1.6 * rank)))
    inactive = np.zeros(len(preactivations), dtype=bool)
    inactive[below[np.argsort(preactivations[below], kind="stable")[:wanted]]] = True
    return inactive


def sharpened(found: Neurons, inactive: Array, *, iterations: int = 25) -> FloatArray:
    """Return the direction q (rank,) that is smallest on the neurons believed ``inactive``.

    Uses reweighted least squares with a shrinking threshold: neurons that are not really inactive
    become outliers and lose their weight.
    """
    rows = found.rows[inactive]
    weight: FloatArray = np.ones(len(rows))
    level = np.inf
    column: FloatArray = np.zeros(found.rank)
    for _ in range(iterations):
        column = np.linalg.eigh((rows * weight[:, None]).T @ rows)[1][:, 0]
        values, floor = found.returned(column)
        values = values[inactive]
        floor_level = float(np.median(floor))
        level = max(min(0.7 * level, float(np.median(values))), floor_level)
        weight = 1.0 / (values**2 + level**2)
        if level <= floor_level:
            break
    return np.asarray(column)


def columns(found: Neurons, column: FloatArray, rng: np.random.Generator) -> list[FloatArray]:
    """Return the columns of Δ that a sharpened direction proves: usually one or none.

    If the direction mixes a few columns, its zeros are those they share. A search within the
    mixture then separates them.
    """
    space = settled(found, column)
    if space.shape[1] == 1:
        return [space[:, 0]]
    if not 1 < space.shape[1] <= min(_SPLIT, found.rank - 1):
        return []
    parts = sparse_directions(found, space, rng)
    proved = [settled(found, part) for part in parts]
    return [one[:, 0] for one in proved if one.shape[1] == 1]


def settled(found: Neurons, column: FloatArray) -> FloatArray:
    """Return a basis (rank, p) of all directions that are zero where ``column`` surely is.

    Any direction can be fitted to be zero at rank − 1 neurons. Such zeros have leverage 1 among the
    zeros, because no other zero supports them; they are removed. The remaining zeros prove one
    column if p = 1, or a mixture of p columns.
    """
    values, floor = found.returned(column)
    # Neurons that hardly any error reached are mostly noise, and would set the threshold for all.
    clear = floor < min(0.05, 10.0 * float(np.median(floor)))
    zeros = np.flatnonzero((values < floor) & clear)
    while len(zeros):
        left, singular, right = np.linalg.svd(found.rows[zeros], full_matrices=True)
        # A zero lies within eight deviations of what noise alone gives for as many neurons.
        blurred = np.linalg.norm(floor[zeros]) / np.sqrt(found.rank)
        level = max(1e-7 * singular[0], 0.5 * blurred)
        rank = int(np.sum(singular > level))
        leverage = np.sum(left[:, :rank] ** 2, axis=1)
        if leverage.max(initial=0.0) <= _ESSENTIAL:
            return np.asarray(right[rank:].T)
        zeros = zeros[leverage <= _ESSENTIAL]
    return np.eye(found.rank)


def sparse_directions(
    found: Neurons, space: FloatArray, rng: np.random.Generator, *, trials: int = 2000
) -> list[FloatArray]:
    """Search ``space`` (rank, p) for directions with more zeros than expected by chance.

    Each trial draws p − 1 neurons and tests the direction in which all of them are zero. It is a
    column of Δ whenever a record left all of them inactive (Dimitrov et al. 2024, section 4).
    """
    inside = found.rows @ space
    length = np.linalg.norm(inside, axis=1)
    usable = np.flatnonzero(length > 1e-3)
    p = space.shape[1]
    if len(usable) < p:
        return []
    rows = inside[usable] / length[usable, None]
    best: list[tuple[int, FloatArray]] = []
    for start in range(0, trials, 256):
        for direction, count in _drawn(found, space, rows, rng, min(256, trials - start)):
            _keep(best, direction, count)
        if len(best) >= p:
            break
    return [direction for _, direction in sorted(best, key=lambda one: -one[0])[:p]]


def _drawn(
    found: Neurons, space: FloatArray, rows: FloatArray, rng: np.random.Generator, trials: int
) -> list[tuple[FloatArray, int]]:
    """Return directions that are zero at the drawn neurons and at clearly more than those."""
    p = rows.shape[1]
    chosen = rng.integers(len(rows), size=(trials, p - 1))
    directions = np.linalg.svd(rows[chosen], full_matrices=True)[2][:, -1]
    level = 50.0 * float(np.median(found.blur)) * np.linalg.norm(1.0 / found.singular)
    near = np.abs(directions @ rows.T) < max(min(level, 1e-2), 1e-7)
    counts = near.sum(axis=1)
    enough = np.flatnonzero(counts >= p - 1 + max(3, len(rows) // 50))
    return [(space @ directions[i], int(counts[i])) for i in enough]


def _keep(best: list[tuple[int, FloatArray]], direction: FloatArray, count: int) -> None:
    for i, (other_count, other) in enumerate(best):
        if abs(float(other @ direction)) > 0.9999:
            if count > other_count:
                best[i] = (count, direction)
            return
    best.append((count, direction))
