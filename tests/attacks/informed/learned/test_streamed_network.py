"""φ from a mapped file, against φ from the same rows in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.attacks.informed.learned.test_reconstructor_network import fitting, shadows

from exhume.attacks.informed.learned import phi as phi_module
from exhume.attacks.informed.learned.phi import standardised
from exhume.attacks.informed.learned.train_network import MOST_WEIGHTS, network_for, trained
from exhume.runtime import cache_rows
from exhume.shadows import ShadowSet

pytestmark = pytest.mark.slow


def mapped(sets: ShadowSet, folder: Path) -> ShadowSet:
    """The same set, with its differences in a file."""
    rows = np.memmap(folder / "rows", np.float32, "w+", shape=sets.differences.shape)
    rows[:] = sets.differences
    return replace(sets, differences=rows)


def test_the_same_network_to_rounding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three rows: only the moments are summed in another order."""
    sets = shadows(count=150)
    dense = trained(sets, fitting(epochs=5))
    monkeypatch.setattr(cache_rows, "_BLOCK_BYTES", 3 * 4 * 370)
    streamed = trained(mapped(sets, tmp_path), fitting(epochs=5))
    assert streamed.epochs == dense.epochs
    np.testing.assert_allclose(streamed.standard.mean, dense.standard.mean, rtol=1e-9)
    np.testing.assert_allclose(streamed.standard.scale, dense.standard.scale, rtol=1e-9)
    np.testing.assert_allclose(streamed.held_out, dense.held_out, atol=1e-4)


def test_moments_of_rows_far_from_zero() -> None:
    rows = np.random.default_rng(0).normal(1e4, 1.0, (500, 3)).astype(np.float32)
    found = standardised(rows, 3)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(1 / found.scale, rows.std(axis=0, dtype=np.float64), rtol=1e-5)


def test_inputs_are_projected_where_weights_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many shadow models there are, the directions are those of the first ones."""
    monkeypatch.setattr(phi_module, "MOST_INPUTS", 32)
    monkeypatch.setattr(
        "exhume.attacks.informed.learned.train_network.MOST_INPUTS", phi_module.MOST_INPUTS
    )
    sets = shadows(count=120)
    wide = replace(sets, differences=np.tile(sets.differences, (1, 60)))
    settings = fitting(hidden=(1000,), epochs=8)
    network = network_for(wide, settings)
    assert network.inputs == 32
    assert network.weights() < MOST_WEIGHTS
    found = trained(mapped(wide, tmp_path), settings)
    assert found.standard.directions is not None
    assert found.standard.directions.shape == (32, 370 * 60)
    inputs = found.standard(wide.differences[:32])
    assert np.linalg.matrix_rank(inputs) >= 30
    assert np.square(found.held_out).mean() < found.blind.mean()
