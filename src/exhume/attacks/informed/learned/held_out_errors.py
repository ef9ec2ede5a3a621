"""The status and confidence of a learned attack, from its errors on held-out shadow targets.

Also the correction of unknown entries by known ones: their errors are correlated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.attacks.informed.learned.kernel_ridge import KernelRidge, fit
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.knowledge import KnownAttributes
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records

_SAMPLE = 200


@dataclass(frozen=True, eq=False)
class HeldOutErrors:
    """Squared errors on k shadow targets that the fit did not see, and what to compare them with.

    ``errors`` and ``blind`` (k,) are each shadow's mean squared error, by the attack and by the
    mean record. ``spacing`` is the typical RMS distance of a record to its nearest known record.
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
        """CONVERGED means an estimated error below the distance between known records."""
        if not self.informative:
            return Status.NO_INFORMATION
        return Status.CONVERGED if error < self.spacing else Status.APPROXIMATE

    def confidence(self, error: float) -> float:
        """Return the explained share of a record's variance, in [0, 1]."""
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


@dataclass(frozen=True, eq=False)
class Conditioner:
    """Predicts errors of unknown entries from errors of known ones (``mask``, (d,)).

    ``left`` is the remaining share of the squared error of the unknown entries.
    """

    mask: Array
    seen: FloatArray
    unit: float
    regression: KernelRidge | None
    left: float

    def __call__(
        self, x: FloatArray, squared: float, known: KnownAttributes
    ) -> tuple[FloatArray, float]:
        """Return ``x`` (d,) with known entries set and the rest corrected, and its error."""
        values = known.values.reshape(-1)
        result = np.where(self.mask, values, x)
        if self.regression is not None:
            errors = (values - x)[self.mask] / self.unit
            result[~self.mask] += self.regression.predict(self.seen @ errors)
        return result, squared * self.left * float((~self.mask).mean())


def conditioner(residuals: FloatArray, mask: Array) -> Conditioner:
    """Fit ridge regression among ``residuals`` (k, d), the errors on held-out shadow targets.

    This is Gaussian conditioning with their covariance, with a shrinkage chosen by cross-
    validation. If cross-validation shows no gain, the unknown entries are not corrected.
    """
    mask = np.asarray(mask, dtype=bool).reshape(-1)
    seen, wanted = residuals[:, mask], residuals[:, ~mask]
    unit = float(np.abs(seen).max(initial=0.0)) or 1.0
    seen = seen / unit
    if mask.all() or not mask.any():
        return Conditioner(mask, seen, unit, None, 1.0)
    regression = fit(seen @ seen.T, wanted, judged=wanted.shape[1])
    before = float(np.square(wanted).mean())
    after = float(np.square(wanted - regression.left_out).mean())
    if after >= before:
        return Conditioner(mask, seen, unit, None, 1.0)
    return Conditioner(mask, seen, unit, regression, after / before)
