"""The noise that is added is the noise that is accounted for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.contract.cases import model, records

from exhume.defences import OutputPerturbation
from exhume.training import Family, Penalty

_DRAWS = 2500
_LEVEL = 1e-4
"""A right implementation fails a test once in ten thousand choices of the seed, which is fixed."""


def _noise(family: Family) -> tuple[np.ndarray, OutputPerturbation]:
    """What 2500 releases of one training add to its exact parameters, (draws, parameters)."""
    data = records(family)
    defence = OutputPerturbation(model(family, Penalty(1.0, intercept=True)), 0.7, 5.0)
    fixed_set, twins = data.take(np.arange(62)), data.take([62] * _DRAWS)
    streams = [np.random.default_rng([8, i]) for i in range(_DRAWS)]
    releases = defence.publish_each(fixed_set, twins, rngs=streams)
    exact = defence.inner.publish(defence.prepared(data), rng=np.random.default_rng(0))
    added = [
        np.concatenate([(release.parameters[n] - a).ravel() for n, a in exact.parameters.items()])
        for release in releases
    ]
    return np.stack(added), defence


@pytest.fixture(scope="module", params=[Family.LOGISTIC, Family.MULTINOMIAL], ids=["2", "3"])
def noise(request: pytest.FixtureRequest) -> tuple[np.ndarray, OutputPerturbation]:
    return _noise(request.param)


def _accepts(draws: np.ndarray, deviation: float) -> bool:
    """Two-sided χ² test of the variance, mean known to be zero."""
    statistic = float(np.sum((draws / deviation) ** 2))
    lower = stats.chi2.cdf(statistic, draws.size)
    return bool(min(lower, 1 - lower) > _LEVEL / 2)


def test_the_right_deviation_is_accepted_and_wrong_ones_rejected(
    noise: tuple[np.ndarray, OutputPerturbation],
) -> None:
    draws, defence = noise
    deviation = defence.noise_multiplier * defence.optimum_moves()
    assert defence.deviation(63) == deviation
    assert _accepts(draws, deviation)
    assert not _accepts(draws, 1.1 * deviation)
    assert not _accepts(draws, deviation / 1.1)


def test_every_parameter_gets_its_share(noise: tuple[np.ndarray, OutputPerturbation]) -> None:
    """Each parameter by itself, the intercept too: the right deviation only."""
    draws, defence = noise
    for column in draws.T:
        assert _accepts(column, defence.deviation(63))
        assert not _accepts(column, 1.1 * defence.deviation(63))


def test_it_is_gaussian_and_centred(noise: tuple[np.ndarray, OutputPerturbation]) -> None:
    draws, defence = noise
    units = draws.ravel() / defence.deviation(63)
    assert stats.kstest(units, "norm").pvalue > _LEVEL
    assert abs(units.mean()) <= 4.0 / np.sqrt(units.size)
    # The same test sees a mean that is a twentieth of a deviation off, and a uniform of that size.
    assert stats.kstest(units + 0.05, "norm").pvalue < _LEVEL
    uniform = np.random.default_rng(0).uniform(-(3**0.5), 3**0.5, units.size)
    assert stats.kstest(uniform, "norm").pvalue < _LEVEL


def test_draws_do_not_know_of_each_other(noise: tuple[np.ndarray, OutputPerturbation]) -> None:
    """No correlation between parameters of one release, nor between releases."""
    draws, _ = noise
    between = np.corrcoef(draws.T)[np.triu_indices(draws.shape[1], 1)]
    limit = stats.norm.isf(_LEVEL / 2 / len(between)) / np.sqrt(len(draws))
    assert np.abs(between).max() < limit
    following = np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]
    assert abs(following) < 4.0 / np.sqrt(draws.size)
