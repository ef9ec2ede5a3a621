"""A scaler fitted with the record in it gives the record away by itself."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.linear.trials import attacked
from tests.contract.cases import records, standardised

from exhume.attacks import GLM, ScalerMoments
from exhume.defences import Rounding
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import Family

_FAMILIES = pytest.mark.parametrize("family", Family, ids=lambda f: f.value)


def _shifted(family: Family) -> Records:
    """Columns of very different centre and spread, as a scaler is meant for."""
    plain = records(family, count=200)
    return Records(
        np.array([1e3, -5.0, 0.0, 1e-2]) + np.array([10.0, 1.0, 1e-3, 1e-2]) * plain.x, plain.y
    )


@_FAMILIES
def test_the_mean_gives_the_record_away(family: Family) -> None:
    """n·mean − Σ of the others, to about n units in the last place of the mean."""
    trials = attacked(standardised(family), _shifted(family), 20, attack=ScalerMoments())
    truth = trials.targets.x
    found = np.stack([r.samples[0] for r in trials.found])
    unit = np.finfo(np.float64).eps * np.abs(trials.fixed_set.x).max(axis=0)
    assert (np.abs(found - truth) <= 2 * (len(trials.fixed_set) + 1) * unit).all()
    assert trials.converged.all()


@_FAMILIES
def test_the_model_attack_uses_it(family: Family) -> None:
    """The closed form and the scaler's mean: whichever is sharper comes first."""
    trials = attacked(standardised(family), _shifted(family), 20, attack=GLM())
    assert (trials.relative_errors <= 1e-12).all()
    assert trials.labels_right.all()


def test_the_estimate_follows_rounding() -> None:
    """A rounded mean is off by a uniform error, and the record by n times as much."""
    plain = records(Family.LINEAR, count=200)
    wide = Records(10.0 * plain.x, plain.y)
    for decimals in (2, 4, 6):
        training = Rounding(standardised(Family.LINEAR), decimals)
        trials = attacked(training, wide, 60, attack=ScalerMoments())
        expected = 10.0**-decimals / np.sqrt(12.0) * 141
        assert np.sqrt(np.mean(trials.errors**2)) == pytest.approx(expected, rel=0.15)
        np.testing.assert_allclose(trials.estimates, expected, rtol=1e-3)


def test_noise_beyond_the_spread_is_no_success() -> None:
    trials = attacked(
        Rounding(standardised(Family.LOGISTIC), 0),
        records(Family.LOGISTIC, count=100),
        3,
        attack=ScalerMoments(),
    )
    assert not trials.converged.any()


def test_a_scaler_of_other_records_is_refused() -> None:
    data = records(Family.LOGISTIC, count=100)
    trials = attacked(standardised(Family.LOGISTIC), data, 1)
    knowledge = Knowledge(
        record_shape=(4,),
        training=trials.mechanism,
        fixed_set=trials.fixed_set.take(np.arange(50)),
    )
    found = ScalerMoments().reconstruct(trials.releases[0], knowledge, rng=0)
    assert found.status is Status.REFUSED
    assert "saw 100 records, the fixed set and the target are 51" in found.message


def test_a_scaler_that_saw_more_is_passed_over_by_the_model_attack() -> None:
    """A scaler fitted elsewhere: no leak of its own, but the model's gradient still tells."""
    data = records(Family.LOGISTIC, count=120)
    training = standardised(Family.LOGISTIC)
    fixed, target = data.take(np.arange(119)), data.take([119])
    scaler = {
        "scaler.mean": np.full(4, 0.1),
        "scaler.scale": np.full(4, 1.5),
        "scaler.count": np.asarray(5000),
    }
    from exhume.training.newton import minimise

    theta = minimise(training.problem(fixed.with_record(target), scaler))
    release = Weights({**training.parameters(theta), **scaler})
    knowledge = Knowledge(record_shape=(4,), training=training, fixed_set=fixed)
    assert ScalerMoments().accepts(release, knowledge) is not None
    found = GLM().reconstruct(release, knowledge, rng=0)
    assert found.stats["how"] == "closed form"
    np.testing.assert_allclose(found.samples[0], target.x[0], rtol=1e-9)


def test_the_whole_scaler_must_be_there() -> None:
    trials = attacked(standardised(Family.LINEAR), records(Family.LINEAR), 1)
    release = trials.releases[0]
    for name in ("scaler.count", "scaler.scale"):
        less = Weights({n: a for n, a in release.parameters.items() if n != name})
        knowledge = Knowledge(
            record_shape=(4,), training=trials.mechanism, fixed_set=trials.fixed_set
        )
        assert name in str(ScalerMoments().accepts(less, knowledge))
        unlabelled = replace(knowledge, fixed_set=Records(trials.fixed_set.x))
        assert ScalerMoments().accepts(release, unlabelled) is not None


def test_a_scale_that_was_rounded_away_is_said_to_be_and_warns_of_nothing() -> None:
    """One column varies by 1e-3, and one decimal leaves none of it."""
    family = Family.LOGISTIC
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trials = attacked(Rounding(standardised(family), 1), _shifted(family), 4, attack=GLM())
    assert {found.status for found in trials.found} == {Status.WRONG_ASSUMPTION}
    (message,) = {found.message for found in trials.found}
    assert "released scales are not above 0" in message
    assert "rounded to 0" in message
