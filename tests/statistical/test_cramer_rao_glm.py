"""Against noise, the attack comes close to what no unbiased attack can beat."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contract.cases import model, records

from exhume.attacks import GLM as Attack
from exhume.bounds.floors import cramer_rao_from_jacobian
from exhume.defences import OutputPerturbation
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import Family, Penalty
from exhume.training.newton import minimise

_DRAWS = 40


def _jacobian(defence: OutputPerturbation, fixed_set: Records, target: Records) -> np.ndarray:
    """∂(parameters)/∂x by central differences of the training itself, (parameters, features)."""

    def trained(x: np.ndarray) -> np.ndarray:
        data = fixed_set.with_record(Records(x[None], target.y))
        return minimise(defence.inner.problem(defence.prepared(data), {})).ravel()

    x, step = target.x[0], 1e-4
    return np.stack(
        [(trained(x + step * e) - trained(x - step * e)) / (2 * step) for e in np.eye(len(x))],
        axis=1,
    )


@pytest.fixture(scope="module", params=[Family.LOGISTIC, Family.MULTINOMIAL], ids=["2", "3"])
def errors_and_floors(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean squared errors and own estimates over 40 noises, beside the floor, of four targets."""
    family = request.param
    data = records(family, count=104)
    fixed_set = data.take(np.arange(100))
    defence = OutputPerturbation(model(family, Penalty(1.0, intercept=True)), 1e-5, 8.0)
    errors, estimates, floors = [], [], []
    for i in range(100, 104):
        target = data.take([i])
        twins = data.take([i] * _DRAWS)
        streams = [np.random.default_rng([i, j]) for j in range(_DRAWS)]
        releases = defence.publish_each(fixed_set, twins, rngs=streams)
        knowledge = Knowledge(
            record_shape=(4,), training=defence, fixed_set=fixed_set, labels=target.y
        )
        found = Attack().reconstruct_each(releases, [knowledge] * _DRAWS, rngs=streams)
        gaps = np.stack([r.samples[0] for r in found]) - target.x
        errors.append(np.mean(gaps**2))
        estimates.append(np.mean([float(r.error_estimate[0]) ** 2 for r in found]))
        jacobian = _jacobian(defence, fixed_set, target)
        floors.append(cramer_rao_from_jacobian(jacobian, defence.deviation(101)).value)
    return np.array(errors), np.array(estimates), np.array(floors)


def test_within_a_factor_of_the_floor(
    errors_and_floors: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """With the label known, no target's error is above 1.6 floors, all together not above 1.25.

    160 squared errors a target have a relative deviation of about an eighth.
    """
    errors, _, floors = errors_and_floors
    assert (errors <= 1.6 * floors).all()
    assert np.mean(errors / floors) <= 1.25


def test_not_below_the_floor(
    errors_and_floors: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """The prior is far wider than this noise: the attack is all but unbiased, the floor binds."""
    errors, _, floors = errors_and_floors
    assert (errors >= 0.6 * floors).all()
    assert np.mean(errors / floors) >= 0.8


def test_the_attack_expects_as_much(
    errors_and_floors: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    errors, estimates, _ = errors_and_floors
    assert ((estimates / errors > 0.5) & (estimates / errors < 2.0)).all()


def test_strong_noise_is_met_with_the_prior() -> None:
    """Beyond the spread of the records the attack falls back on them, and beats the floor so."""
    data = records(Family.LOGISTIC, count=120)
    fixed_set, targets = data.take(np.arange(100)), data.take(np.arange(100, 120))
    defence = OutputPerturbation(model(Family.LOGISTIC, Penalty(1.0, intercept=True)), 0.5, 8.0)
    streams = [np.random.default_rng(i) for i in range(20)]
    releases = defence.publish_each(fixed_set, targets, rngs=streams)
    knowledge = [
        Knowledge(
            record_shape=(4,), training=defence, fixed_set=fixed_set, labels=targets.labels[[i]]
        )
        for i in range(20)
    ]
    found = Attack().reconstruct_each(releases, knowledge, rngs=streams)
    gaps = np.stack([r.samples[0] for r in found]) - targets.x
    floor = cramer_rao_from_jacobian(
        _jacobian(defence, fixed_set, targets.take([0])), defence.deviation(101)
    )
    assert np.mean(gaps**2) <= 1.5 * float(np.var(fixed_set.x))
    assert np.mean(gaps**2) < 0.1 * floor.value
