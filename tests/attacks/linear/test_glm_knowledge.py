"""What the adversary knew of the target beforehand: label, attributes, range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.linear.trials import Trials, attacked, table
from tests.contract.cases import model, records, standardised, without_intercept

from exhume.attacks import GLM as Attack
from exhume.defences import Rounding
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.training import GLM, Family, Penalty

_MASK = np.array([True, False, True, False])
families = pytest.mark.parametrize("family", Family, ids=lambda f: f.value)


def _knowledge(trials: Trials, i: int) -> Knowledge:
    return Knowledge(
        record_shape=trials.targets.record_shape,
        training=trials.mechanism,
        fixed_set=trials.fixed_set,
    )


def _with_attributes(trials: Trials, i: int, off: float = 0.0) -> Reconstruction:
    values = trials.targets.x[i].copy()
    values[2] += off
    knowledge = replace(_knowledge(trials, i), known_attributes=KnownAttributes(_MASK, values))
    return Attack().reconstruct(trials.releases[i], knowledge, rng=0)


@families
def test_known_attributes_are_taken_as_given(family: Family) -> None:
    trials = attacked(model(family), records(family, count=120), 10)
    for i, truth in enumerate(trials.targets.x):
        found = _with_attributes(trials, i)
        assert found.status is Status.CONVERGED
        np.testing.assert_array_equal(found.samples[0][_MASK], truth[_MASK])
        np.testing.assert_allclose(found.samples[0], truth, rtol=1e-8, atol=1e-9)


@families
@pytest.mark.parametrize("off", [-0.5, 1e-3])
def test_a_wrong_attribute_is_named(family: Family, off: float) -> None:
    trials = attacked(model(family), records(family, count=120), 10)
    for i in range(10):
        found = _with_attributes(trials, i, off)
        assert found.status is Status.WRONG_ASSUMPTION
        assert "attribute 2 " in found.message
        assert "1 of 2 given attributes disagree" in found.message


def test_a_wrong_attribute_is_named_behind_a_scaler() -> None:
    """Attributes are given in the record's units, whatever the model sees."""
    trials = attacked(standardised(Family.LINEAR), records(Family.LINEAR, count=120), 5)
    for i in range(5):
        found = _with_attributes(trials, i, 0.1)
        assert found.status is Status.WRONG_ASSUMPTION
        assert "attribute 2 " in found.message


def test_attributes_help_against_noise() -> None:
    """Behind rounding, half of the attributes known leave the other half better known too."""
    trials = attacked(Rounding(model(Family.LOGISTIC), 2), records(Family.LOGISTIC, count=120), 30)
    without = np.array([r.samples[0] for r in trials.found])[:, ~_MASK]
    given = np.array([_with_attributes(trials, i).samples[0] for i in range(30)])[:, ~_MASK]
    truth = trials.targets.x[:, ~_MASK]
    assert np.mean((given - truth) ** 2) < 0.8 * np.mean((without - truth) ** 2)


def test_an_attribute_fixes_the_length_of_a_regression() -> None:
    trials = attacked(
        without_intercept(Family.LINEAR), records(Family.LINEAR, count=120), 10, labels_known=True
    )
    for i, truth in enumerate(trials.targets.x):
        found = _with_attributes(trials, i)
        np.testing.assert_allclose(found.samples[0], truth, rtol=1e-7, atol=1e-9)
        assert found.labels[0] == pytest.approx(float(trials.targets.labels[i]), rel=1e-7)


def test_what_is_not_known_is_wiped() -> None:
    known = KnownAttributes(_MASK, np.array([1.0, 2.0, 3.0, 4.0]))
    assert known.values.tolist() == [1.0, 0.0, 3.0, 0.0]


@families
def test_the_label_is_recovered_and_a_given_one_kept(family: Family) -> None:
    data = records(family, count=120)
    blind = attacked(model(family), data, 20)
    told = attacked(model(family), data, 20, labels_known=True)
    assert blind.labels_right.all()
    assert told.labels_right.all()
    np.testing.assert_allclose(
        [r.samples[0] for r in told.found], [r.samples[0] for r in blind.found], atol=1e-9
    )


def test_a_known_label_sharpens_a_blurred_release() -> None:
    """With y known the residual has one unknown less (ERRATA: the bound with y known)."""
    data, training = table("breast cancer"), GLM(Family.LOGISTIC, Penalty(10.0), classes=(0, 1))
    blind = attacked(Rounding(training, 5), data, 30)
    told = attacked(Rounding(training, 5), data, 30, labels_known=True)
    assert told.labels_right.all()
    assert np.mean(np.minimum(told.errors, 1) ** 2) <= np.mean(np.minimum(blind.errors, 1) ** 2)


@pytest.mark.parametrize(
    ("labels", "reason"), [([7], "label is given as 7"), ([0, 1], "one target, so one label")]
)
def test_an_impossible_label_is_refused(labels: list[int], reason: str) -> None:
    trials = attacked(model(Family.LOGISTIC), records(Family.LOGISTIC), 1)
    knowledge = replace(_knowledge(trials, 0), labels=np.array(labels))
    found = Attack().reconstruct(trials.releases[0], knowledge, rng=0)
    assert found.status is Status.REFUSED
    assert reason in found.message


def test_the_range_decides_between_lengths() -> None:
    """Two lengths fit; pixels can't be brighter than white, and that settles it."""
    data = table("digits")
    keep = data.labels < 2
    pixels = replace(data.take(np.flatnonzero(keep)))
    training = GLM(Family.LOGISTIC, Penalty(1.0), intercept=False, classes=(0, 1))
    trials = attacked(training, pixels, 40, labels_known=True)
    right = 0
    for i, truth in enumerate(trials.targets.x):
        knowledge = replace(
            _knowledge(trials, i), value_range=(0.0, 1.0), labels=trials.targets.labels[[i]]
        )
        found = Attack().reconstruct(trials.releases[i], knowledge, rng=0)
        assert found.samples.min() >= 0.0
        assert found.samples.max() <= 1.0
        right += np.allclose(found.samples[0], truth, atol=1e-6)
    assert right >= max(38, int(np.sum(trials.relative_errors <= 1e-6)))


def test_nothing_known_of_the_training_is_refused() -> None:
    trials = attacked(model(Family.LOGISTIC), records(Family.LOGISTIC), 1)
    whole = _knowledge(trials, 0)
    for knowledge, reason in (
        (replace(whole, training=None), "needs to know the training"),
        (replace(whole, fixed_set=None), "needs the other training records"),
        (replace(whole, training=model(Family.MULTINOMIAL)), "has 4 entries, the model has 12"),
        (replace(whole, training=standardised(Family.LOGISTIC)), "lacks 'scaler.mean'"),
        (replace(whole, training=without_intercept(Family.LOGISTIC)), "has 'intercept'"),
    ):
        found = Attack().reconstruct(trials.releases[0], knowledge, rng=0)
        assert found.status in (Status.REFUSED, Status.UNINFORMED)
        assert reason in found.message
