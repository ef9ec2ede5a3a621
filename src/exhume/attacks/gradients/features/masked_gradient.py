"""The released part of a head's gradient, and the entries that a defence withheld."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import shown
from exhume.protocol.mechanism import Mechanism

_PARTIAL = 1e-3
_GAP = 20.0


@dataclass(frozen=True, eq=False)
class MaskedGradient:
    """The gradient G (m, K) of the output weights; ``released`` (m, K) is None if complete.

    Entries that a defence pruned are unknown, not 0: only released ones are fitted. ``threshold``
    is a known bound on pruned entries, or infinity.
    """

    gradient: FloatArray
    released: Array | None = None
    threshold: float = np.inf

    @property
    def total(self) -> float:
        """The sum of the squares to be explained."""
        return max(float((self.gradient**2).sum()), 1e-300)

    @property
    def count(self) -> int:
        """The number of released entries."""
        return self.gradient.size if self.released is None else int(self.released.sum())

    def part(self, rows: Array) -> MaskedGradient:
        """Return the released part of the hidden units ``rows`` (m,)."""
        released = None if self.released is None else self.released[rows]
        return MaskedGradient(self.gradient[rows], released, self.threshold)

    def left(self, fitted: FloatArray) -> FloatArray:
        """Return G minus ``fitted`` (m, K); at pruned entries, the excess over the threshold."""
        left = self.gradient - fitted
        if self.released is None:
            return left
        excess = np.clip(fitted, -self.threshold, self.threshold) - fitted
        return np.where(self.released, left, excess)


def sent_factor(mechanism: Mechanism | None) -> float:
    """Return the factor of known defences on the entries they send: dropout scales them up."""
    if mechanism is None:
        return 1.0
    return float(np.prod([defence.sent_factor for defence in shown(mechanism)]))


def observe(gradient: FloatArray) -> MaskedGradient:
    """Distinguish entries of ``gradient`` (m, K) that a defence set to 0 from natural zeros.

    An inactive unit leaves a row of zeros, while other rows have arbitrarily small entries. Rows
    that are partly 0, or a gap below the smallest entry, come from a defence. The gap shows that it
    kept the largest entries.

    >>> observe(np.array([[0.5, 0.0], [-0.7, 0.2]])).released.tolist()
    [[True, False], [True, True]]
    """
    present = gradient != 0.0
    if present.all() or not present.any():
        return MaskedGradient(gradient)
    partial = present.any(axis=1) & ~present.all(axis=1)
    sizes = np.abs(gradient[present])
    smallest = float(sizes.min())
    gap = smallest > _GAP * float(np.sqrt(np.mean(sizes**2))) / sizes.size
    if not gap and partial.mean() <= _PARTIAL:
        return MaskedGradient(gradient)
    return MaskedGradient(gradient, present, smallest if gap else np.inf)


def moment_weights(observed: MaskedGradient) -> FloatArray | None:
    """Return the weight of each entry (m, K) in moments if entries were dropped at random.

    A dropped entry has weight 0: counted as a 0, it would add the whole entry as noise, including
    its mean and its first order. A row of zeros is an inactive unit or was dropped completely. Its
    weight is the probability of the former times the share of entries sent, so that units occur in
    the moments as they were drawn. Returns None if nothing is missing, if entries were selected by
    size, or if K = 1: then a dropped entry looks like an inactive unit.

    >>> sent = np.array([[0.5, 0.0], [-0.7, 0.2], [0.0, 0.1], [0.0, 0.0], [0.0, 0.0]])
    >>> moment_weights(MaskedGradient(sent, sent != 0.0)).round(2).tolist()
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
    """Return the share of entries sent, given that share within rows with at least one."""
    found = share
    for _ in range(50):
        found = share * (1.0 - (1.0 - found) ** outputs)
    return found
