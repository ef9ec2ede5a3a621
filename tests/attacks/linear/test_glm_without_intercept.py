"""No intercept: the record's length is one unknown more, and up to two lengths fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.linear.trials import attacked, table
from tests.contract.cases import model, records, without_intercept

from exhume.attacks import GLM as Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty

_BINARY = GLM(Family.LOGISTIC, Penalty(1.0), intercept=False, classes=(0, 1))
_WINE = GLM(Family.MULTINOMIAL, Penalty(1.0), intercept=False, classes=(0, 1, 2))


def _shifted() -> Records:
    """Diabetes away from the origin, where a model without intercept makes sense."""
    data = table("diabetes")
    return Records(data.x + 0.1, data.y)


@pytest.mark.parametrize(
    ("training", "data", "count"),
    [
        (_BINARY, table("breast cancer"), 200),
        (replace(_BINARY, penalty=Penalty(10.0)), table("breast cancer"), 200),
        (_WINE, table("wine"), 89),
        (GLM(Family.LINEAR, intercept=False), _shifted(), 200),
        (GLM(Family.LINEAR, Penalty(0.1), intercept=False), _shifted(), 200),
        (GLM(Family.POISSON, Penalty(0.1), intercept=False), _shifted(), 100),
    ],
    ids=["breast cancer", "strong penalty", "wine", "linear", "ridge", "poisson"],
)
def test_the_right_length_comes_first(training: GLM, data: Records, count: int) -> None:
    trials = attacked(training, data, count, labels_known=True)
    assert np.mean(trials.relative_errors <= 1e-6) >= 0.9
    assert np.mean(trials.best_relative_errors <= 1e-6) >= 0.95


@pytest.mark.parametrize("family", [Family.LINEAR, Family.LOGISTIC, Family.POISSON])
def test_both_candidates_explain_the_release(family: Family) -> None:
    """Wherever there are two, training with either of them gives the released model."""
    training = without_intercept(family)
    trials = attacked(training, records(family, count=300), 40, labels_known=True)
    assert (trials.best_relative_errors <= 1e-9).all()
    two = [i for i, found in enumerate(trials.found) if len(found) == 2]
    assert len(two) >= 20
    for i in two[:8]:
        for sample in trials.found[i].samples:
            candidate = Records(sample[None], trials.targets.labels[[i]])
            again = training.publish(
                trials.fixed_set.with_record(candidate), rng=np.random.default_rng(0)
            )
            np.testing.assert_allclose(
                again.parameters["coef"], trials.releases[i].parameters["coef"], rtol=1e-8
            )


def test_theorem_8_on_a_hand_made_case() -> None:
    """Least squares through the origin on (1, 1), x = 2, y = 3: θ = 7/5, roots 1/(y − s) and 1/s.

    Balle et al. 2022, Theorem 8: with s = ⟨x, θ⟩ = 2.8 and g = x (y − s) = 0.4 the candidates are
    g / (y − s) = 2 and g / s = 1/7.
    """
    fixed = Records(np.array([[1.0]]), np.array([1.0]))
    target = Records(np.array([[2.0]]), np.array([3.0]))
    training = GLM(Family.LINEAR, intercept=False)
    release = training.publish(fixed.with_record(target), rng=np.random.default_rng(0))
    assert release.parameters["coef"][0, 0] == pytest.approx(1.4)
    knowledge = Knowledge(
        record_shape=(1,), training=training, fixed_set=fixed, labels=np.array([3.0])
    )
    found = Attack().reconstruct(release, knowledge, rng=0)
    assert sorted(found.samples[:, 0]) == pytest.approx([1 / 7, 2.0], rel=1e-12)


@pytest.mark.parametrize("family", [Family.LINEAR, Family.LOGISTIC, Family.POISSON])
def test_confidence_means_what_it_says(family: Family) -> None:
    """Records are Gaussian here, as the prior has it: stated and observed frequencies agree."""
    trials = attacked(without_intercept(family), records(family, count=500), 300, labels_known=True)
    right = trials.relative_errors <= 1e-6
    stated = np.array([found.confidence[0] for found in trials.found])
    deviation = np.sqrt(np.sum(stated * (1 - stated))) / len(stated)
    assert abs(stated.mean() - right.mean()) <= 4 * deviation + 0.01


def test_without_label_the_record_is_among_the_candidates() -> None:
    trials = attacked(_BINARY, table("breast cancer"), 100)
    assert np.mean(trials.best_relative_errors <= 1e-6) >= 0.9
    assert max(len(found) for found in trials.found) == 4


def test_several_outputs_tell_the_label_and_the_length() -> None:
    trials = attacked(_WINE, table("wine"), 89)
    assert (trials.relative_errors <= 1e-9).all()
    assert trials.labels_right.all()
    assert all(len(found) == 1 for found in trials.found)


@pytest.mark.parametrize("family", [Family.LINEAR, Family.POISSON])
def test_a_regression_without_label_is_refused(family: Family) -> None:
    trials = attacked(without_intercept(family), records(family), 1)
    assert trials.found[0].status is Status.REFUSED
    assert "only up to its length" in trials.found[0].message


@pytest.mark.parametrize("units", [1e-6, 1e-3, 1e3])
@pytest.mark.parametrize("family", list(Family), ids=lambda f: f.value)
def test_units_of_the_records_do_not_matter(family: Family, units: float) -> None:
    """The penalty scaled along, x in other units is the same problem."""
    data = records(family, count=120)
    scaled = Records(data.x * units, data.y)
    training = replace(model(family, Penalty(units**2)), intercept=False)
    trials = attacked(training, scaled, 15, labels_known=True)
    assert (trials.best_relative_errors <= 1e-8).all()
