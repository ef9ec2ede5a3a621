"""What a learned attack may claim, judged by its errors on shadow targets that it did not see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import FloatArray
from exhume.reconstruction import Status
from exhume.records import Records

_SAMPLE = 200


@dataclass(frozen=True, eq=False)
class Evidence:
    """Squared errors of k shadow targets that the fit did not see, and what they compare with.

    ``errors`` and ``blind`` (k,) are each shadow's mean squared error, by the attack and by the
    mean record; ``spacing`` the typical RMS distance of a record to the nearest other one known.
    """

    errors: FloatArray
    blind: FloatArray
    spacing: float

    @property
    def informative(self) -> bool:
        """Whether the attack beats the mean record by more than chance explains."""
        gains = self.blind - self.errors
        doubt = float(gains.std()) / np.sqrt(len(gains))
        return bool(gains.mean() > 2.0 * doubt and gains.mean() > 0.01 * self.blind.mean())

    @property
    def error(self) -> float:
        """The RMS error over all shadow targets."""
        return float(np.sqrt(self.errors.mean()))

    @property
    def blind_error(self) -> float:
        """The RMS error of the mean record."""
        return float(np.sqrt(self.blind.mean()))

    def status(self, error: float) -> Status:
        """Converged means: closer, by its own estimate, than known records are to one another."""
        if not self.informative:
            return Status.NO_INFORMATION
        return Status.CONVERGED if error < self.spacing else Status.APPROXIMATE

    def confidence(self, error: float) -> float:
        """Return the share of a record's variance that is explained, in [0, 1]."""
        return float(np.clip(1.0 - (error / max(self.blind_error, 1e-300)) ** 2, 0.0, 1.0))


def spacing(targets: Records, fixed_set: Records) -> float:
    """Return the mean RMS distance of shadow targets to the nearest other record of the pool."""
    own = np.asarray(targets.x, dtype=np.float64).reshape(len(targets), -1)
    other = np.asarray(fixed_set.x, dtype=np.float64).reshape(len(fixed_set), -1)
    pool = np.concatenate([own, other])
    sample = own[:_SAMPLE]
    squares = np.square(pool).sum(axis=1)
    table = squares[: len(sample), None] + squares[None] - 2.0 * sample @ pool.T
    table[np.arange(len(sample)), np.arange(len(sample))] = np.inf
    nearest = np.maximum(table.min(axis=1), 0.0) / own.shape[1]
    return float(np.sqrt(nearest).mean())
