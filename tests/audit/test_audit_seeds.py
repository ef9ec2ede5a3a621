"""One seed, one result; and nothing that is added moves what was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.audit import small

from exhume.attacks import Attack
from exhume.audit import Serial, run

TARGETS = 6


def _run(folder: Path, *texts: str, seed: int = 4, extra: tuple[Attack, ...] = ()) -> Path:
    plan = small.plan(*texts, small.audit(TARGETS, seed=seed), extra=extra)
    run(plan, folder, Serial())
    return folder


def _truth(folder: Path, index: int = 0) -> np.ndarray:
    path = folder / "artefacts" / f"{index:03d}-truth.safetensors"
    return small.load_file(path)["targets"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise in the release, and an attack that rolls dice: everything random there is."""
    return _run(tmp_path_factory.mktemp("seeds") / "run", small.NOISY, extra=(small.Drawing(),))


def test_the_same_seed_gives_the_same_records(base: Path, tmp_path: Path) -> None:
    again = _run(tmp_path / "run", small.NOISY, extra=(small.Drawing(),))
    small.same(small.outcome(again), small.outcome(base))
    small.same(small.artefacts(again), small.artefacts(base))


def test_another_seed_gives_other_targets_noise_and_draws(base: Path, tmp_path: Path) -> None:
    other = _run(tmp_path / "run", small.NOISY, seed=5, extra=(small.Drawing(),))
    assert not set(small.rows(base)) & set(small.rows(other))
    for target in _truth(other):
        assert np.abs(_truth(base) - target).max(axis=1).min() > 0
    one, two = _numbers(base), _numbers(other)
    assert one.keys() == two.keys()
    same = [key for key in one if one[key] is not None and one[key] == two[key]]
    assert not same


def _numbers(folder: Path) -> dict[tuple[str, int], Any]:
    rows = small.rows(folder).values()
    return {(r["attack"], r["target"]): r["distance"] for r in rows}


def test_an_attack_more_changes_no_other(base: Path, tmp_path: Path) -> None:
    more = _run(tmp_path / "run", small.NOISY, extra=(small.Raising(), small.Drawing()))
    found = {k: r for k, r in small.outcome(more).items() if r["attack"] != "raising"}
    small.same(found, small.outcome(base))


def test_an_attack_less_changes_no_other(base: Path, tmp_path: Path) -> None:
    """Naming the attacks is choosing, not seeding."""
    text = small.audit(TARGETS, seed=4, attacks='["glm"]')
    run(small.plan(small.NOISY, text, extra=(small.Drawing(),)), tmp_path / "run", Serial())
    fewer = small.outcome(tmp_path / "run")
    assert {r["attack"] for r in fewer.values()} == {"glm", "oblivious", "drawing"}
    small.same(fewer, {k: r for k, r in small.outcome(base).items() if k in fewer})


def test_a_setting_more_changes_no_other(base: Path, tmp_path: Path) -> None:
    more = _run(tmp_path / "run", small.NOISY, small.PLAIN, extra=(small.Drawing(),))
    found = {k: r for k, r in small.outcome(more).items() if r["setting"] == "noisy"}
    small.same(found, small.outcome(base))


def test_nor_does_one_before_it(base: Path, tmp_path: Path) -> None:
    """Only the names of the files with the candidates count settings."""
    more = _run(tmp_path / "run", small.SCALED, small.NOISY, extra=(small.Drawing(),))
    found = {k: _unnamed(r) for k, r in small.outcome(more).items() if r["setting"] == "noisy"}
    small.same(found, {k: _unnamed(r) for k, r in small.outcome(base).items()})


def _unnamed(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "artefact"}


def test_settings_on_the_same_data_share_targets(tmp_path: Path) -> None:
    """A defence is compared on the very records that it is to defend."""
    both = _run(tmp_path / "run", small.PLAIN, small.NOISY)
    np.testing.assert_array_equal(_truth(both, 0), _truth(both, 1))


def test_targets_are_neither_known_nor_twice(base: Path) -> None:
    truth = small.load_file(base / "artefacts" / "000-truth.safetensors")
    assert (truth["nearest_distance"] > 0).all()
    assert len(np.unique(truth["targets"], axis=0)) == TARGETS
