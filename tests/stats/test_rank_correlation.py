"""Spearman's rank correlation against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from exhume.stats.rank_correlation import rank_correlation


@pytest.mark.parametrize("levels", [3, 10**9], ids=["ties", "no ties"])
def test_it_is_scipys(levels: int) -> None:
    rng = np.random.default_rng(0)
    for count in (3, 10, 200):
        one, other = rng.integers(levels, size=(2, count)).astype(np.float64)
        one[0], other[-1] = -1.0, -1.0
        expected = stats.spearmanr(one, other).statistic
        assert rank_correlation(one, other) == pytest.approx(expected, abs=1e-12)
