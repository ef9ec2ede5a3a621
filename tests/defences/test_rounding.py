"""Rounding: exactly that, on every kind of release, and never mistaken for a guarantee."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.attacks.linear.trials import attacked, table
from tests.contract.cases import model, records

from exhume.attacks import GLM as Attack
from exhume.defences import OutputPerturbation, Rounding, undefended
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Outputs, Release, Update, Weights
from exhume.training import GLM, Family, Penalty


class _Fixed(Mechanism):
    """Publishes whatever it was given."""

    def __init__(self, release: Release) -> None:
        self.release = release

    def publish(self, data: Records, *, rng: np.random.Generator) -> Release:
        return self.release


_VALUES = np.array([[0.123456, -7.654321], [1e-9, 12345.678]])


@pytest.mark.parametrize(
    "release",
    [
        Weights({"w": _VALUES}),
        Gradient({"w": _VALUES}, batch_size=3),
        Update({"w": _VALUES}, batch_size=3, steps=2),
        Outputs(np.array([[0.5555], [0.7777]]), _VALUES),
    ],
    ids=["weights", "gradient", "update", "outputs"],
)
def test_every_kind_of_release(release: Release) -> None:
    rounded = Rounding(_Fixed(release), 2).publish(Records(_VALUES), rng=np.random.default_rng(0))
    assert type(rounded) is type(release)
    arrays = dict(rounded.arrays())
    np.testing.assert_array_equal(
        arrays["values" if isinstance(release, Outputs) else "w"],
        [[0.12, -7.65], [0.0, 12345.68]],
    )
    if isinstance(release, Outputs):
        # The questions were the adversary's own.
        np.testing.assert_array_equal(arrays["queries"], release.queries)
    if isinstance(release, Gradient | Update):
        assert rounded.batch_size == 3


@settings(deadline=None, max_examples=50)
@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), decimals=st.integers(0, 8))
def test_no_number_moves_by_more_than_half_a_unit(values: list[float], decimals: int) -> None:
    release = Weights({"w": np.array(values)})
    data = Records(np.zeros((1, 1)))
    defence = Rounding(_Fixed(release), decimals)
    rounded = defence.publish(data, rng=np.random.default_rng(0))
    moved = np.abs(rounded.parameters["w"] - release.parameters["w"])
    assert (moved <= 0.5 * 10.0**-decimals * (1 + 1e-6) + 1e-9).all()
    again = Rounding(_Fixed(rounded), decimals).publish(data, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(again.parameters["w"], rounded.parameters["w"])


def test_its_deviation_is_a_uniform_errors() -> None:
    """Half a unit either way: 10^-k / √12, and what rounding really does to a model's numbers."""
    values = np.random.default_rng(0).normal(size=100_000)
    for decimals in (1, 3):
        defence = Rounding(_Fixed(Weights({"w": values})), decimals)
        rounded = defence.publish(Records(np.zeros((1, 1))), rng=np.random.default_rng(0))
        moved = rounded.parameters["w"] - values
        assert defence.deviation(10) == pytest.approx(10.0**-decimals / 12**0.5, rel=1e-12)
        assert moved.std() == pytest.approx(defence.deviation(10), rel=0.01)


@pytest.mark.parametrize("decimals", [-1, 18])
def test_decimals_that_make_no_sense(decimals: int) -> None:
    with pytest.raises(InputError, match=f"decimals must be from 0 to 17, got {decimals}"):
        Rounding(model(Family.LINEAR), decimals)


def test_it_buys_no_guarantee_and_takes_none_away() -> None:
    import dp_accounting

    private = OutputPerturbation(model(Family.LOGISTIC, Penalty(1.0, intercept=True)), 3.0, 5.0)
    assert Rounding(private, 2).event(50) == dp_accounting.GaussianDpEvent(3.0)
    plain = Rounding(model(Family.LINEAR), 0)
    assert isinstance(plain.event(50), dp_accounting.NonPrivateDpEvent)
    assert undefended(Rounding(Rounding(plain, 1), 2)) == model(Family.LINEAR)


@pytest.mark.parametrize("decimals", [3, 5, 7])
@pytest.mark.parametrize("family", [Family.LINEAR, Family.LOGISTIC], ids=["linear", "logistic"])
def test_the_attack_knows_what_rounding_costs_it(family: Family, decimals: int) -> None:
    """Its own estimate follows the error over four decades, neither bold nor timid."""
    trials = attacked(Rounding(model(family), decimals), records(family, count=145), 25)
    ratio = trials.estimates / trials.errors
    assert np.mean((ratio > 1 / 10) & (ratio < 10)) >= 0.9
    overconfident = trials.converged & (trials.errors > 10 * trials.estimates)
    assert overconfident.mean() <= 0.05


def test_fewer_decimals_leave_less() -> None:
    data = table("diabetes")
    medians = [
        np.median(attacked(Rounding(GLM(Family.LINEAR, Penalty(1.0)), k), data, 25).errors)
        for k in (6, 4, 2)
    ]
    assert medians[0] < 0.1 * medians[1] < 0.1 * medians[2]


def test_rounding_to_integers_leaves_no_more_than_the_prior() -> None:
    """Where nothing is left of the record, the attack says so and guesses near the middle."""
    data = table("breast cancer")
    training = Rounding(GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1)), 0)
    trials = attacked(training, data, 20, attack=Attack())
    assert trials.converged.mean() <= 0.05
    assert np.median(trials.errors) <= 2.0 * float(data.x.std())
