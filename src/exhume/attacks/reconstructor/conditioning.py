"""What is known of a record corrects what is not: errors at one entry tell of errors at others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.reconstructor.regression import KernelRidge, fit
from exhume.knowledge import KnownAttributes


@dataclass(frozen=True, eq=False)
class Conditioner:
    """Errors of unknown entries predicted from errors of known ones (``mask``, (d,)).

    ``left`` is the share of the squared error of the unknown entries that is left.
    """

    mask: Array
    seen: FloatArray
    unit: float
    regression: KernelRidge | None
    left: float

    def __call__(
        self, x: FloatArray, squared: float, known: KnownAttributes
    ) -> tuple[FloatArray, float]:
        """Return ``x`` (d,) with what is known in it and the rest corrected, and its error."""
        values = known.values.reshape(-1)
        result = np.where(self.mask, values, x)
        if self.regression is not None:
            errors = (values - x)[self.mask] / self.unit
            result[~self.mask] += self.regression.predict(self.seen @ errors)
        return result, squared * self.left * float((~self.mask).mean())


def conditioner(residuals: FloatArray, mask: Array) -> Conditioner:
    """Fit ridge regression among ``residuals`` (k, d), errors on shadow targets that were left out.

    That is Gaussian conditioning with their covariance, shrunk as cross-validation finds right;
    where it finds nothing to be gained, the unknown entries are left as they are.
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
