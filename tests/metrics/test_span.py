"""The span of a batch's candidates, as Liu et al. 2024 measure features."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.attacks.gradients.features import projection_residual
from exhume.metrics.span import SpanResidual

TRUTH, FOUND = np.random.default_rng(0).standard_normal((2, 3, 4, 5))


def test_is_the_papers_measure():
    flat = TRUTH.reshape(3, -1), FOUND.reshape(3, -1)
    assert SpanResidual()(TRUTH, FOUND).mean() == pytest.approx(projection_residual(*flat))


def test_neither_length_nor_sign_nor_mixing_counts():
    mixed = np.einsum("ij,jkl->ikl", np.random.default_rng(1).standard_normal((3, 3)), TRUTH)
    assert SpanResidual()(TRUTH, mixed) == pytest.approx(0, abs=1e-9)
    assert SpanResidual()(TRUTH, -7.0 * FOUND) == pytest.approx(SpanResidual()(TRUTH, FOUND))


def test_pairs_are_scored_each_by_itself():
    table = SpanResidual().pairwise(TRUTH, FOUND)
    assert table.shape == (3, 3)
    assert table[1, 2] == pytest.approx(SpanResidual()(TRUTH[[1]], FOUND[[2]])[0])
    assert (table >= SpanResidual()(TRUTH, FOUND)[:, None] - 1e-12).all()


def test_what_stands_at_right_angles_is_left_whole():
    assert SpanResidual()(np.eye(2)[[0]], np.eye(2)[[1]]).tolist() == [1.0]
    assert SpanResidual()(np.eye(2)[[0]], np.zeros((1, 2))).tolist() == [1.0]
