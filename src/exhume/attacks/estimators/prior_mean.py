"""What a search left open, filled in by how the known records spread."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from exhume.attacks.estimators.refit_search import EXACT, SolvedRecord
from exhume.protocol.arrays import Array, FloatArray

_CHAINS, _SWEEPS = 48, 45
_SHRINKAGE = 0.1
"""The share of the columns' own variances in the covariance: rows are few."""


@dataclass(frozen=True, eq=False)
class PriorMean:
    """Mean and precision of records, from the known ones (n, unknowns) in standard units."""

    mean: FloatArray
    precision: FloatArray

    @staticmethod
    def of(rows: FloatArray) -> PriorMean:
        """Return the prior of records like ``rows``."""
        covariance = np.atleast_2d(np.cov(rows.T, bias=True))
        own = np.diag(np.maximum(np.diag(covariance), 1e-12))
        shrunk = (1.0 - _SHRINKAGE) * covariance + _SHRINKAGE * own
        return PriorMean(rows.mean(axis=0), np.asarray(np.linalg.inv(shrunk)))

    def given(self, unknowns: FloatArray, known: Array) -> FloatArray:
        """Return the likeliest record with the values that are ``known`` (unknowns, bool)."""
        open_, apart = ~known, unknowns - self.mean
        filled = unknowns.copy()
        if open_.any():
            pull = self.precision[np.ix_(open_, known)] @ apart[known]
            own = self.precision[np.ix_(open_, open_)]
            filled[open_] = self.mean[open_] - np.linalg.solve(own, pull)
        return filled

    def within(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean and deviation of records in a box (unknowns,), by Gibbs sampling.

        The Gaussian is cut off at the box; a column whose ``low`` is its ``high`` is known.
        """
        rng = np.random.default_rng(0)
        x = np.repeat(np.clip(self.mean, low, high)[None], _CHAINS, axis=0)
        kept, free = [], np.flatnonzero(high > low)
        for sweep in range(_SWEEPS):
            for column in free:
                own = self.precision[column, column]
                pull = (x - self.mean) @ self.precision[column]
                middle = x[:, column] - pull / own
                ends = [ndtr((side[column] - middle) * np.sqrt(own)) for side in (low, high)]
                share = ends[0] + rng.random(_CHAINS) * (ends[1] - ends[0])
                drawn = middle + ndtri(np.clip(share, 1e-12, 1 - 1e-12)) / np.sqrt(own)
                x[:, column] = np.clip(drawn, low[column], high[column])
            if sweep >= _SWEEPS // 3:
                kept.append(x.copy())
        found = np.concatenate(kept)
        return np.asarray(found.mean(axis=0)), np.asarray(found.std(axis=0))

    def filled(self, found: SolvedRecord) -> tuple[SolvedRecord, FloatArray]:
        """Return the record's posterior mean, and each unknown's deviation (at most 1).

        The release is linear near the record, and what the search left of it is Gaussian. Only
        unknowns on a line move; the others stay, and condition them.
        """
        errors = found.errors()
        if found.slopes is None or found.alike:
            return found, errors
        free = np.arange(len(errors)) if found.free is None else np.asarray(found.free)
        held = np.setdiff1d(np.arange(len(errors)), free)
        prior = self.precision[np.ix_(free, free)]
        apart = found.unknowns - self.mean
        pull = prior @ apart[free] + self.precision[np.ix_(free, held)] @ apart[held]
        normal = found.slopes.T @ found.slopes
        # The residual says how well the record explains the release; errors count a fit's noise.
        moved = found.unknowns.copy()
        moved[free] -= np.linalg.solve(normal / max(found.residual, EXACT) ** 2 + prior, pull)
        spread = np.sqrt(np.diag(np.linalg.inv(normal / found.left**2 + prior)))
        errors = errors.copy()
        errors[free] = np.minimum(errors[free], spread)
        return replace(found, unknowns=moved), errors
