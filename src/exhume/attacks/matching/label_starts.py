"""Features of a batch, unmixed from the labels on.

What comes back to a layer, δ = D Vᵀ(p − e_y), hangs on the label y far more than on the features:
on them only through the answer p and the units D that they switch on. So δ at features of the right
size and direction begins an unmixing well. It needs no features that are unlike each other, which
independent components do, and no unit that only one record leaves at zero, which zeros do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.analytic.consistency import Consistency
from exhume.attacks.analytic.factor import Factors

_SPREAD = 0.5
"""How far records are put apart at a start, over the length of what they have in common."""


def starts(
    against: Consistency, responses: Array, rng: np.random.Generator, *, count: int
) -> Iterator[FloatArray]:
    """Yield ``count`` unmixings (rank, rank) to begin with, for ``responses`` (rank,).

    The first has all features the same where that tells the columns of Δ apart; the others, and all
    where a label comes twice, have features drawn around it.
    """
    factors, places = against.factors, np.arange(len(responses))
    alone = len(np.unique(responses)) == len(responses)
    for number in range(count):
        unmixing = np.tile(_centre(factors), (len(responses), 1))
        if number > 0 or not alone:
            unmixing = unmixing + _drawn(factors, rng)
        returned = against.backward.directions(against.records(unmixing))
        yield against.explaining(returned[places, responses].T)


def likely_responses(against: Consistency, last_bias: FloatArray) -> Array:
    """Return the labels' indices (rank,) that the gradient of the scores' bias (classes,) says.

    It is the mean over records of p − e_y, and p is taken at the features that records share.
    """
    records = against.records(_centre(against.factors)[None])
    wanted = against.factors.rank * (against.backward.answers(records)[0] - last_bias)
    found = []
    for _ in range(against.factors.rank):
        found.append(int(np.argmax(wanted)))
        wanted[found[-1]] -= 1.0
    return np.array(found)


def _centre(factors: Factors) -> FloatArray:
    """Return the row (rank,) that mixes features as the bias gradient does: about their mean."""
    return factors.scale / max(float(factors.scale @ factors.scale), 1e-300)


def _drawn(factors: Factors, rng: np.random.Generator) -> FloatArray:
    """Return rows (rank, rank) to add to the centre: random features, their scale kept."""
    centre = _centre(factors)
    rows = rng.normal(size=(factors.rank, factors.rank))
    rows = rows - np.outer(rows @ factors.scale, centre)
    length = np.maximum(np.linalg.norm(rows @ factors.right, axis=1, keepdims=True), 1e-300)
    return np.asarray(_SPREAD * np.linalg.norm(centre @ factors.right) * rows / length)
