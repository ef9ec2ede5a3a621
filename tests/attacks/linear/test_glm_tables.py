"""Real tables: every record comes back, to what double precision leaves of it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attacks.linear.trials import Trials, attacked, table

from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty

# (table, targets, model). A penalty of 1 is scikit-learn's default C = 1, alpha = 1.
_TABLES = {
    "breast cancer": (284, GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1))),
    "breast cancer, strong penalty": (284, GLM(Family.LOGISTIC, Penalty(10.0), classes=(0, 1))),
    "wine": (89, GLM(Family.MULTINOMIAL, Penalty(1.0), classes=(0, 1, 2))),
    "digits": (30, GLM(Family.MULTINOMIAL, Penalty(1.0), classes=tuple(range(10)))),
    "diabetes": (221, GLM(Family.LINEAR)),
    "diabetes, ridge": (221, GLM(Family.LINEAR, Penalty(1.0))),
    "diabetes, counts": (221, GLM(Family.POISSON, Penalty(1.0))),
}


@pytest.fixture(scope="module", params=_TABLES)
def trials(request: pytest.FixtureRequest) -> Trials:
    count, model = _TABLES[request.param]
    return attacked(model, table(request.param.split(",")[0]), count)


def test_nine_in_ten_records_come_back_to_nine_digits(trials: Trials) -> None:
    assert np.mean(trials.relative_errors <= 1e-9) >= 0.9


def test_the_rest_is_rounding_over_residual(trials: Trials) -> None:
    """The error of *every* target is a rounding error divided by what the model leaves of it.

    x is the gradient over y − μ, so that a sum of n terms in double precision sets the limit.
    """
    assert (trials.errors * trials.residuals <= 10.0 * _rounding(trials)).all()


def _rounding(trials: Trials) -> float:
    """Four units in the last place of the root-mean-square term of a gradient's coordinate."""
    model = trials.mechanism
    assert isinstance(model, GLM)
    theta = model.theta(trials.releases[0].parameters)
    rows, responses = (
        model.design(trials.fixed_set.x, {}),
        model.responses(trials.fixed_set.labels),
    )
    left = responses - model.family.mean(rows @ theta)
    terms = np.sum((rows[:, :, None] * left[:, None, :]) ** 2, axis=0)
    penalty = (model.penalty.strength * theta) ** 2
    return 4.0 * np.finfo(np.float64).eps * float(np.sqrt(np.mean(terms + penalty)))


def test_the_attack_knows_how_wrong_it_is(trials: Trials) -> None:
    ratio = trials.estimates / np.maximum(trials.errors, 1e-300)
    assert np.mean((ratio >= 1 / 30) & (ratio <= 30)) >= 0.95


def test_the_labels_come_back_too(trials: Trials) -> None:
    assert trials.labels_right.all()


def test_all_are_claimed(trials: Trials) -> None:
    assert trials.converged.all()


def test_pictures_come_back_as_pictures() -> None:
    """Records of any shape: digits as 8 × 8 pictures, from a model that sees 64 columns."""
    flat = table("digits")
    keep = flat.labels < 2
    pictures = Records(flat.x[keep].reshape(-1, 8, 8), flat.labels[keep])
    trials = attacked(GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1)), pictures, 20)
    assert trials.found[0].samples.shape[1:] == (8, 8)
    assert (trials.errors * trials.residuals <= 10.0 * _rounding(trials)).all()


def test_raw_units_do_not_matter() -> None:
    """Columns from 1e-3 to 4e3, as they come: the penalty acts on them, the attack undoes it."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    trials = attacked(GLM(Family.LOGISTIC, Penalty(1.0), classes=(0, 1)), Records(x, y), 60)
    assert np.mean(trials.relative_errors <= 1e-9) >= 0.8
    assert trials.labels_right[trials.converged].all()


def test_single_precision_releases_are_weighed_as_such() -> None:
    """Parameters stored as float32: errors grow to what that leaves, and the attack says so."""
    from exhume.attacks import GLM as Attack
    from exhume.protocol.knowledge import Knowledge
    from exhume.protocol.release import Weights

    exact = attacked(GLM(Family.LINEAR, Penalty(1.0)), table("diabetes"), 40)
    errors, estimates = [], []
    for release, truth in zip(exact.releases, exact.targets.x, strict=True):
        single = Weights({n: a.astype(np.float32) for n, a in release.parameters.items()})
        knowledge = Knowledge(
            record_shape=truth.shape, training=exact.mechanism, fixed_set=exact.fixed_set
        )
        found = Attack().reconstruct(single, knowledge, rng=0)
        errors.append(float(np.sqrt(np.mean((found.samples[0] - truth) ** 2))))
        estimates.append(float(found.error_estimate[0]))
    ratio = np.array(estimates) / np.array(errors)
    assert 1e-8 < np.median(errors) < 1e-2
    assert np.mean((ratio > 1 / 30) & (ratio < 30)) >= 0.95
