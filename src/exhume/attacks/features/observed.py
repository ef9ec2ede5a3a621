"""What was released of a head's gradient, and what of it a defence withheld."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.mechanism import Mechanism

_PARTIAL = 1e-3
_GAP = 20.0


@dataclass(frozen=True, eq=False)
class Observed:
    """The gradient G (m, K) of the output weights; ``released`` (m, K) None where all of it is.

    Entries that a defence pruned are unknown, not 0: only released ones are fitted. ``threshold``
    is what pruned entries are known to stay below, infinity where that is not known.
    """

    gradient: FloatArray
    released: Array | None = None
    threshold: float = np.inf

    @property
    def total(self) -> float:
        """The sum of the squares that there are to be explained."""
        return max(float((self.gradient**2).sum()), 1e-300)

    @property
    def count(self) -> int:
        """How many entries were released."""
        return self.gradient.size if self.released is None else int(self.released.sum())

    def part(self, rows: Array) -> Observed:
        """Return what was released of the hidden units ``rows`` (m,)."""
        released = None if self.released is None else self.released[rows]
        return Observed(self.gradient[rows], released, self.threshold)

    def left(self, fitted: FloatArray) -> FloatArray:
        """Return what ``fitted`` (m, K) leaves of G; of a pruned entry, what it is too large by."""
        left = self.gradient - fitted
        if self.released is None:
            return left
        excess = np.clip(fitted, -self.threshold, self.threshold) - fitted
        return np.where(self.released, left, excess)


def sent_factor(mechanism: Mechanism | None) -> float:
    """Return what known defences multiply the entries by that they send: dropout scales them up."""
    from exhume.attacks.matching.stack import shown
    from exhume.defences import GradientDropout

    if mechanism is None:
        return 1.0
    rates = [d.rate for d in shown(mechanism) if isinstance(d, GradientDropout)]
    return float(np.prod([1.0 / (1.0 - rate) for rate in rates]))


def observe(gradient: FloatArray) -> Observed:
    """Tell what a defence set to 0 in ``gradient`` (m, K) from what is 0 by itself.

    An inactive unit leaves a row of zeros, beside rows with entries as small as can be. Rows that
    are 0 in part, or a gap below the smallest entry, are a defence's doing; the gap says that it
    kept the largest.

    >>> observe(np.array([[0.5, 0.0], [-0.7, 0.2]])).released.tolist()
    [[True, False], [True, True]]
    """
    present = gradient != 0.0
    if present.all() or not present.any():
        return Observed(gradient)
    partial = present.any(axis=1) & ~present.all(axis=1)
    sizes = np.abs(gradient[present])
    smallest = float(sizes.min())
    gap = smallest > _GAP * float(np.sqrt(np.mean(sizes**2))) / sizes.size
    if not gap and partial.mean() <= _PARTIAL:
        return Observed(gradient)
    return Observed(gradient, present, smallest if gap else np.inf)


def moment_weights(observed: Observed) -> FloatArray | None:
    """Return how much an entry (m, K) counts in moments where entries were dropped at random.

    A dropped entry counts nothing: as a 0 it would bring the whole entry in as noise, its mean and
    its first order too. A row of zeros alone is an inactive unit's or dropped as a whole; it counts
    with the probability of the first, times the share of entries that was sent, so that units
    stand in the moments as they were drawn. None where nothing is missing, and where entries were
    chosen by their size, or K = 1: a hole then can't be told from an inactive unit.

    >>> sent = np.array([[0.5, 0.0], [-0.7, 0.2], [0.0, 0.1], [0.0, 0.0], [0.0, 0.0]])
    >>> moment_weights(Observed(sent, sent != 0.0)).round(2).tolist()
    [[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.25, 0.25], [0.25, 0.25]]
    """
    if observed.released is None or np.isfinite(observed.threshold):
        return None
    released = observed.released
    (rows, outputs), active = released.shape, np.asarray(released.any(axis=1))
    if outputs == 1 or not active.any():
        return None
    share = _sent_share(float(released[active].mean()), outputs)
    silent = rows - int(active.sum())
    dropped = int(active.sum()) * (1.0 - share) ** outputs / (1.0 - (1.0 - share) ** outputs)
    inactive = max(0.0, 1.0 - dropped / silent) if silent else 0.0
    return np.where(active[:, None], released, share * inactive).astype(np.float64)


def _sent_share(share: float, outputs: int) -> float:
    """Return the share of entries that was sent, from that in rows of which at least one was."""
    found = share
    for _ in range(50):
        found = share * (1.0 - (1.0 - found) ** outputs)
    return found
