"""Reading a record of which part is known: the known entries are regressors like any other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.reconstructor.reading import (
    Learned,
    Range,
    by_labels,
    squared_errors,
    trusted_line,
    with_misread,
)
from exhume.attacks.reconstructor.regression import KernelRidge, fit
from exhume.knowledge import KnownAttributes

_WEIGHTS = (0.0, 0.1, 0.3, 1.0, 10.0)
"""Tried weights of what is known, beside 1 for the release."""


@dataclass(frozen=True, eq=False)
class Informed:
    """A regression on releases and on the entries in ``mask`` (d,), for the entries outside it.

    ``seen`` (k, known) are the shadow targets' own known entries less their mean, scaled so that
    their kernel adds to that of the releases.
    """

    taught: Learned
    mask: Array
    mean: FloatArray
    scale: float
    seen: FloatArray
    regression: KernelRidge | None
    line: tuple[float, float]

    def read(
        self, difference: FloatArray, label: Array | None, known: KnownAttributes
    ) -> tuple[FloatArray, float]:
        """Return the record (d,), known entries as they are, and its expected squared error."""
        values = known.values.reshape(-1)
        x = np.array(values)
        if self.regression is None:
            return x, 0.0
        own = (values[self.mask] - self.mean) * self.scale
        row, itself = self.taught.reading.row(
            self.taught.directions,
            difference,
            self.taught.same(label),
            more=(self.seen @ own, float(own @ own)),
        )
        x[~self.mask] = self.regression.predict(row)
        squared = self.line[0] + self.line[1] * self.regression.spread_at(row, itself)
        return x, squared * float((~self.mask).mean())


@lru_cache(maxsize=2)
def informed(taught: Learned, mask_bytes: bytes, value_range: Range | None) -> Informed:
    """Fit once for all targets of which the same entries (a mask's bytes) are known.

    How much they count beside the release is chosen by leave-one-out errors on shadow targets.
    """
    mask = np.frombuffer(mask_bytes, dtype=bool)
    truth = np.asarray(taught.shadows.targets.x, dtype=np.float64).reshape(len(taught.shadows), -1)
    mean = truth[:, mask].mean(axis=0)
    seen, wanted = truth[:, mask] - mean, truth[:, ~mask]
    if mask.all():
        return Informed(taught, mask, mean, 0.0, seen, None, (0.0, 0.0))
    table = taught.reading.kernel.of(*taught.directions.table(len(truth)))
    size = float(np.sqrt(np.square(seen).sum(axis=1).mean())) or 1.0
    gram = (seen / size) @ (seen / size).T
    tried = {}
    for weight in _WEIGHTS if mask.any() else (0.0,):
        kernel = table + weight * gram
        if taught.reading.by_label:
            kernel = by_labels(kernel, taught.shadows.targets.labels)
        regression = fit(kernel, wanted, judged=wanted.shape[1])
        errors = squared_errors(regression.left_out, wanted, value_range)
        tried[weight] = (float(errors.mean()), errors, regression)
    weight = min(tried, key=lambda one: tried[one][0])
    _, errors, regression = tried[weight]
    if taught.labeller is not None:
        errors = with_misread(errors, taught.evidence.blind, taught.misread)
    scale = float(np.sqrt(weight)) / size
    line = trusted_line(regression.spread, errors)
    return Informed(taught, mask, mean, scale, seen * scale, regression, line)
