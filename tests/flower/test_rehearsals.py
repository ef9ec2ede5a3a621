"""Flower's own simulation, two clients on loopback: what is stored is what was sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.flower.rehearsal import RECORDS, Net
from tests.patience import PATIENCE_SECONDS

from exhume.audit.plan import make_plan
from exhume.audit.setting import ThreatSetting
from exhume.config import load
from exhume.data.array_files import read_arrays

pytestmark = pytest.mark.slow

NAMES = {name for name, _ in Net().named_parameters()}
ROUNDING = 2.0**-22
"""Parameters are below 1 and float32: a difference of two is off by half a last place of each."""

RANGE, STEP = 8.0, 2.0**-18
"""SecAgg+ rounds parameters in ±8 at random to 2²² steps of 16 / 2²²."""


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the rehearsals, which run in a process of their own."""
    folder = tmp_path_factory.mktemp("rehearsals")
    own = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    # Ray would kill clients where other tests take most of the memory.
    own["RAY_memory_monitor_refresh_ms"] = "0"
    around = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("rehearsal.py")), str(folder)],
        env={**around, **own, "FLWR_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (folder / "said.txt").write_text(done.stderr)
    return folder


def settings(folder: Path) -> dict[str, ThreatSetting]:
    plan = make_plan(load(folder))
    return {table.name: plan.setting(index) for index, table in enumerate(plan.config.setting)}


def left(setting: ThreatSetting) -> np.ndarray:
    """What the stored update has beyond that of the described training on the true records."""
    mechanism = setting.mechanism
    inner, _ = mechanism.under_noise(setting.records) if noisy(setting) else (mechanism, 0.0)
    own = inner.publish(setting.targets, rng=np.random.default_rng(0))
    given = setting.given.changes
    return np.concatenate([(given[n] - change).ravel() for n, change in own.arrays()])


def noisy(setting: ThreatSetting) -> bool:
    return type(setting.mechanism).__name__ == "Noise"


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def test_server_and_clients_store_what_training_did(rehearsed: Path) -> None:
    found = settings(rehearsed / "plain" / "rounds")
    assert len(found) == 9
    stored = [one.name for one in load(rehearsed / "plain" / "clients").setting]
    assert {name for name in found if "client-" in name} == set(stored)
    clients = settings(rehearsed / "plain" / "clients" / "round-0002")
    for name, setting in {**clients, **found}.items():
        assert set(setting.given.changes) == NAMES
        assert setting.batch == (2 * RECORDS if name.endswith("aggregate") else RECORDS)
        assert np.abs(left(setting)).max() < ROUNDING
        assert max(np.abs(a).max() for a in setting.given.changes.values()) > 1000 * ROUNDING


def test_the_verdict_is_in_the_runs_metrics(rehearsed: Path) -> None:
    """Every second round, beside the user's own; three records behind a ReLU are exact."""
    found = metrics(rehearsed / "plain")
    assert [sorted(found[number]) for number in ("0", "1", "3")] == [["own"]] * 3
    verdict = found["2"]
    assert verdict["own"] == 1.0
    assert verdict["exhume-client-reached"] == 1.0
    assert 0 < verdict["exhume-client-low"] < 1.0 == verdict["exhume-client-high"]
    assert verdict["exhume-client-blind"] == 0.0
    assert "exhume-client-bound" not in verdict
    report = rehearsed / "plain" / "rounds" / "round-0002" / "audit" / "report.html"
    assert report.is_file()


def test_what_is_stored_is_private(rehearsed: Path) -> None:
    for part in ("rounds", "clients"):
        for path in [rehearsed / "plain" / part, *(rehearsed / "plain" / part).rglob("*")]:
            assert not path.stat().st_mode & 0o077, path


def test_local_privacy_leaves_noise_of_its_own_size_and_a_bound(rehearsed: Path) -> None:
    """Flower's mod clips and adds noise; the bound follows from what it adds, not from its ε."""
    found = settings(rehearsed / "private" / "rounds" / "round-0003")
    clients = {name: one for name, one in found.items() if "client-" in name}
    assert len(clients) == 2
    for setting in clients.values():
        _, size = setting.mechanism.under_noise(RECORDS)
        assert size == pytest.approx(np.sqrt(2 * np.log(1.25e5)) / 4)
        rest = left(setting)
        # 1,092 numbers, drawn with a seed: a relative standard error of 4.3 % of the variance.
        assert abs(np.mean(rest**2) / size**2 - 1.0) < 0.2
    verdict = metrics(rehearsed / "private")["2"]
    # A Gaussian mechanism of multiplier 1.21, for a guess that is blind once in 17 at most.
    assert 0.1 < verdict["exhume-client-bound"] < 0.5
    assert verdict["exhume-client-reached"] <= verdict["exhume-client-bound"]


@dataclass(frozen=True)
class Rounded:
    """What two clients hand to SecAgg+ in a round, in steps of its grid, and what comes out.

    Each client has 3 of the weights' limit of 3, so that its parameters count as they are.
    """

    places: np.ndarray
    """Where each parameter of each client lies on the grid, in Flower's single precision."""
    spacing: np.ndarray
    """The distance of two such places, which is a power of ½: fractions are multiples of it."""
    moved: np.ndarray
    """Which parameters both clients moved by 100 steps or more: those can lie anywhere."""
    mean: np.ndarray

    @classmethod
    def of(cls, place: Path, number: int) -> Rounded:
        folder = place / "clients" / f"round-000{number}"
        after = [flat(path) for path in sorted(folder.glob("*/after.safetensors"))]
        before = flat(place / "rounds" / f"round-000{number}" / "before.safetensors")
        from_below = np.float32(after) + np.float32(RANGE)
        return cls(
            (from_below * np.float32(1 / STEP)).astype(np.float64),
            np.spacing(from_below) / STEP,
            (np.abs(after - before) > 100 * STEP).all(axis=0),
            flat(place / "rounds" / f"round-000{number}" / "aggregate" / "after.safetensors"),
        )

    @property
    def exact(self) -> np.ndarray:
        """The mean without rounding at random."""
        return self.places.mean(axis=0) * STEP - RANGE

    @property
    def variances(self) -> np.ndarray:
        """Of each client's rounding: f (1 − f) squared steps, for a place f above the grid."""
        fractions = self.places % 1.0
        return fractions * (1.0 - fractions)


def flat(path: Path) -> np.ndarray:
    arrays = read_arrays(path)
    return np.concatenate([arrays[name].ravel() for name, _ in Net().named_parameters()])


def test_secure_aggregation_shows_sums_only(rehearsed: Path) -> None:
    place = rehearsed / "secure"
    found = settings(place / "rounds")
    assert set(found) == {f"round-000{number}/aggregate" for number in (1, 2, 3)}
    assert "the server sees sums only" in (rehearsed / "said.txt").read_text()
    for number in (1, 2, 3):
        setting = found[f"round-000{number}/aggregate"]
        assert set(setting.given.changes) == NAMES
        rounded = Rounded.of(place, number)
        # What is left is the rounding at random, and that of adding the range in single precision.
        apart = left(setting) - (rounded.mean - rounded.exact)
        assert np.abs(apart).max() < STEP / 8 + ROUNDING
    # A client, behind the protocol, still has its own.
    assert len(load(place / "clients").setting) == 6
    verdict = metrics(place)
    assert verdict["exhume-aggregate-unanswered"][0][0] == 3
    assert not any(key.startswith("exhume-client") for key in verdict)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_sums_rounding_is_the_described_noise(rehearsed: Path, number: int) -> None:
    """Of the variance that each place on the grid implies, and of the described one on average.

    A parameter that no client moved lies where the last round's sum left it, on the grid or half
    way between: there the variance is 0 or ½ of a squared step, and never ⅓.
    """
    place = rehearsed / "secure"
    rounded = Rounded.of(place, number)
    one, other = rounded.variances
    variance = one + other
    fourth = one * (1 - 3 * one) + other * (1 - 3 * other) + 6 * one * other
    error = 2.0 * (rounded.mean - rounded.exact) / STEP
    # A sum of 1,092 independent squares, whose deviation is known: 6 of these are beyond chance.
    apart = abs(np.sum(error**2 - variance)) / np.sqrt(np.sum(fourth - variance**2))
    assert apart < 6.0
    setting = settings(place / "rounds")[f"round-000{number}/aggregate"]
    _, size = setting.mechanism.under_noise(2 * RECORDS)
    assert size**2 == pytest.approx(STEP**2 / 12)
    # Fractions that are multiples of s at random have the mean variance (1 − s²) / 6; both clients'
    # together differ from theirs by less than 0.15 from place to place.
    moved = rounded.moved
    assert moved.sum() > 300
    expected = (1.0 - rounded.spacing**2).sum(axis=0) / 6.0
    gap = abs(np.mean(variance[moved] - expected[moved]))
    assert gap < 6.0 * 0.15 / np.sqrt(moved.sum())
    assert expected.min() * STEP**2 / 4 > 0.9 * size**2


def test_parameters_in_a_list_get_the_names_of_the_state_dict(rehearsed: Path) -> None:
    """The legacy API sends lists: in the model's own order, not in the alphabet's."""
    start = read_arrays(rehearsed / "secure" / "rounds" / "round-0001" / "before.safetensors")
    shapes = {name: tuple(p.shape) for name, p in Net().named_parameters()}
    assert {name: array.shape for name, array in start.items()} == shapes
