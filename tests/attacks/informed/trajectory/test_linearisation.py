"""The cheap model of the training map, held to what trainings that differ a little end in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from exhume.attacks.informed.trajectory.many_targets import follow_directions as module
from exhume.attacks.informed.trajectory.many_targets.first_layer_inverse import (
    Heard,
    Preconditioner,
    SignalSimulator,
)
from exhume.attacks.informed.trajectory.many_targets.linearisation import LocalMaps
from exhume.data import load
from exhume.models import MLP, Activation
from exhume.protocol.arrays import FloatArray
from exhume.training import SGD, Batches, Training


@dataclass(frozen=True, eq=False)
class Case:
    """A record, what its training ends in and hears, and the engine behind it."""

    simulator: SignalSimulator
    preconditioner: Preconditioner
    x: FloatArray
    y: int
    heard: Heard

    def slope(self, change: FloatArray) -> FloatArray:
        """Return how the end of training answers a change (inputs,), by central differences."""
        rows = np.array([self.x + 1e-3 * change, self.x - 1e-3 * change]).reshape(2, 28, 28)
        ends = self.simulator.simulate(rows, np.array([self.y, self.y])).differences
        return np.asarray((ends[0] - ends[1]) / 2e-3)


def case(batches: Batches | None, activation: Activation) -> Case:
    data = load("fashion-mnist-small").train
    network = MLP((28, 28), 10, (8,), activation)
    training = Training(
        network, tuple(range(10)), SGD(0.05 if batches is None else 0.01, 0.9), 20, batches
    )
    simulator = SignalSimulator(training, data.take(np.arange(240)))
    x, y = np.asarray(data.x[300], dtype=np.float64).ravel(), int(data.labels[300])
    heard = simulator.simulate(x.reshape(1, 28, 28), np.array([y])).heard
    return Case(simulator, Preconditioner(simulator.nominal), x, y, heard)


@pytest.fixture(scope="module", params=["whole", "batches"])
def elu(request: pytest.FixtureRequest) -> Case:
    batches = Batches(60) if request.param == "batches" else None
    return case(batches, Activation.ELU)


def test_one_step_leaves_far_less_than_with_each_direction_by_itself(elu: Case) -> None:
    maps = LocalMaps(elu.preconditioner)
    assert maps.wide >= 16
    local = maps.at(elu.x[None], [elu.y], elu.heard)[0]
    left = []
    for change in elu.simulator.nominal.basis[:-1, [0, 1, 3, 7]].T:
        seen = elu.slope(change)
        alone = elu.preconditioner.steps(seen[None], elu.heard.signals)[0]
        rests = [seen] + [seen - elu.slope(step) for step in (local.step(seen, 0.1), alone)]
        left.append(np.linalg.norm(local.coordinates(np.array(rests)), axis=1))
    start, modelled, single = np.mean(left, axis=0)
    assert modelled < 0.25 * start
    assert single > 2.0 * modelled


def test_without_wide_directions_it_is_the_preconditioner(
    elu: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WIDE", ())
    local = LocalMaps(elu.preconditioner).at(elu.x[None], [elu.y], elu.heard)[0]
    seen = elu.slope(elu.simulator.nominal.basis[:-1, 40])
    alone = elu.preconditioner.steps(seen[None], elu.heard.signals)[0]
    assert local.step(seen, 0.0) == pytest.approx(alone, rel=1e-4, abs=1e-6)
    assert local.step(seen, 1.0) == pytest.approx(0.5 * alone, rel=1e-4, abs=1e-6)


def test_several_records_are_followed_as_one_by_one(elu: Case) -> None:
    maps = LocalMaps(elu.preconditioner)
    rows = np.array([elu.x, 0.5 * elu.x])
    heard = elu.simulator.simulate(rows.reshape(2, 28, 28), np.array([elu.y] * 2)).heard
    both = maps.at(rows, [elu.y] * 2, heard)
    seen = elu.slope(elu.simulator.nominal.basis[:-1, 2])
    for i, local in enumerate(both):
        single = maps.at(rows[[i]], [elu.y], heard.of(slice(i, i + 1)))[0]
        assert local.step(seen, 0.1) == pytest.approx(single.step(seen, 0.1), rel=1e-2, abs=1e-4)
