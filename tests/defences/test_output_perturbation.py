"""Output perturbation: its sensitivity is a bound, its noise is Gaussian, its event says so."""

from __future__ import annotations

from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st
from tests.attacks.linear.trials import attacked, table
from tests.contract.cases import model, records, standardised, without_intercept

from exhume.attacks import GLM as Attack
from exhume.defences import OutputPerturbation
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty, Solver
from exhume.training.newton import minimise

_EVERYWHERE = Penalty(1.0, intercept=True)
_CLASSIFIERS = [Family.LOGISTIC, Family.MULTINOMIAL]
classifiers = pytest.mark.parametrize("family", _CLASSIFIERS, ids=lambda f: f.value)


def _optimum(defence: OutputPerturbation, data: Records) -> np.ndarray:
    """The parameters before the noise; classes may be missing, as neighbours may lack them."""
    training = defence.inner
    assert isinstance(training, GLM)
    return minimise(training.problem(defence.prepared(data), {}))


@st.composite
def neighbours(draw: st.DrawFn, classes: int) -> tuple[Records, Records]:
    """A data set and the record that it has or has not: ordinary, duplicated, huge or zero."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count, features = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    size = draw(st.sampled_from([0.0, 1e-3, 1.0, 1e3, 1e8]))
    x = rng.normal(size=(count, features)) * draw(st.sampled_from([0.0, 0.1, 1.0, 1e4]))
    if draw(st.booleans()):
        x = np.repeat(x[:1], count, axis=0)
    y = np.full(count, draw(st.integers(0, classes - 1)))
    if draw(st.booleans()):
        y = rng.integers(0, classes, count)
    own = x[:1] if draw(st.booleans()) else size * rng.normal(size=(1, features))
    label = np.array([draw(st.integers(0, classes - 1))])
    return Records(x, y), Records(own, label)


@classifiers
@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_no_record_moves_the_optimum_further(family: Family, data: st.DataObject) -> None:
    """Random and adversarial neighbours, with hypothesis looking for the largest move."""
    classes = 2 if family is Family.LOGISTIC else 3
    penalty = data.draw(st.sampled_from([1e-3, 0.1, 1.0, 100.0]))
    intercept = data.draw(st.booleans())
    bound = data.draw(st.sampled_from([1.01, 2.0, 30.0]))
    training = replace(model(family, Penalty(penalty, intercept=True)), intercept=intercept)
    defence = OutputPerturbation(training, 1.0, bound)
    fixed_set, own = data.draw(neighbours(classes))
    before = _optimum(defence, fixed_set)
    after = _optimum(defence, fixed_set.with_record(own))
    share = float(np.linalg.norm(after - before)) / defence.optimum_moves()
    target(share, label="share of the sensitivity")
    assert share <= 1.0 + 1e-9


@classifiers
def test_the_bound_is_not_vacuous(family: Family) -> None:
    """A hostile record against one that pulls the other way moves the optimum by half of it.

    Alone against a strong penalty a record moves the parameters by ‖p − e_y‖·‖row‖/λ, with p
    uniform: ½ of the bound for two classes, √(2/3)/√2 = .577 for three.
    """
    defence = OutputPerturbation(model(family, Penalty(1e6, intercept=True)), 1.0, 5.0)
    far = Records(np.array([[100.0, 0.0, 0.0, 0.0]]), np.array([1]))
    nothing = Records(np.zeros((1, 4)), np.array([0]))
    moved = _optimum(defence, nothing.with_record(far)) - _optimum(defence, nothing)
    share = float(np.linalg.norm(moved)) / defence.optimum_moves()
    expected = 0.5 if family is Family.LOGISTIC else (2 / 3) ** 0.5 / 2**0.5
    assert share == pytest.approx(expected, rel=1e-3)


def test_sensitivity_in_numbers() -> None:
    """Lipschitz constant × bound / λ: 1 × 4 / 2 for two classes, √2 × 4 / 2 for more; λ doubled."""
    two = OutputPerturbation(model(Family.LOGISTIC, Penalty(2.0, intercept=True)), 1.5, 4.0)
    assert two.optimum_moves() == pytest.approx(2.0)
    assert two.deviation(100) == pytest.approx(3.0)
    three = OutputPerturbation(model(Family.MULTINOMIAL, Penalty(2.0, intercept=True)), 1.5, 4.0)
    assert three.optimum_moves() == pytest.approx(2.0 * 2**0.5)
    whole = Penalty(2.0, halved=False, intercept=True)
    doubled = OutputPerturbation(model(Family.LOGISTIC, whole), 1.5, 4.0)
    assert doubled.optimum_moves() == pytest.approx(1.0)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-9, 0.1, 1.0, 50.0, 1e9]),
    bound=st.sampled_from([1.001, 3.0, 40.0]),
    intercept=st.booleans(),
)
def test_rows_are_scaled_down_to_the_bound(
    seed: int, size: float, bound: float, intercept: bool
) -> None:
    rng = np.random.default_rng(seed)
    data = Records(size * rng.normal(size=(20, 2, 2)), rng.integers(0, 2, 20))
    training = replace(model(Family.LOGISTIC, _EVERYWHERE), intercept=intercept)
    prepared = OutputPerturbation(training, 1.0, bound).prepared(data)
    rows, short = prepared.x.reshape(20, 4), data.x.reshape(20, 4)
    norms = np.sqrt(np.sum(rows**2, axis=1) + intercept)
    assert (norms <= bound * (1 + 1e-12)).all()
    fits = np.sqrt(np.sum(short**2, axis=1) + intercept) <= bound
    np.testing.assert_array_equal(rows[fits], short[fits])
    cosine = np.sum(rows * short, axis=1) / np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(cosine, np.linalg.norm(short, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(prepared.labels, data.labels)


def test_the_event_is_one_gaussian() -> None:
    defence = OutputPerturbation(model(Family.LOGISTIC, _EVERYWHERE), 2.5, 4.0)
    assert defence.event(1000) == dp_accounting.GaussianDpEvent(2.5)
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(defence.event(1000))
    # Balle and Wang 2018, analytic Gaussian mechanism at σ = 2.5, δ = 1e-5: ε ≈ 1.7.
    assert accountant.get_epsilon(1e-5) == pytest.approx(_analytic_epsilon(2.5, 1e-5), rel=1e-3)


def _analytic_epsilon(sigma: float, delta: float) -> float:
    """ε with Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ) = δ (Balle and Wang 2018, Theorem 5)."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def excess(epsilon: float) -> float:
        one = norm.cdf(0.5 / sigma - epsilon * sigma)
        return float(one - np.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma) - delta)

    return float(brentq(excess, 0.0, 50.0))


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (model(Family.LINEAR, _EVERYWHERE), "other losses are not Lipschitz"),
        (model(Family.POISSON, _EVERYWHERE), "other losses are not Lipschitz"),
        (model(Family.LOGISTIC), "a penalty on every parameter"),
        (model(Family.LOGISTIC, Penalty(0.0, intercept=True)), "a penalty on every parameter"),
        (
            replace(model(Family.LOGISTIC, _EVERYWHERE), solver=Solver("lbfgs")),
            "the exact solver, got 'lbfgs'",
        ),
        (
            model(Family.LOGISTIC, Penalty(1.0, averaged=True, intercept=True)),
            "a summed loss without scaler or class weights",
        ),
        (
            replace(standardised(Family.LOGISTIC), penalty=_EVERYWHERE),
            "a summed loss without scaler or class weights",
        ),
        (
            replace(model(Family.LOGISTIC, _EVERYWHERE), class_weights=(1.0, 2.0)),
            "a summed loss without scaler or class weights",
        ),
    ],
    ids=["linear", "counts", "free intercept", "none", "solver", "mean", "scaler", "weights"],
)
def test_what_has_no_bound_is_refused(inner: GLM, reason: str) -> None:
    with pytest.raises(InputError, match=f"output perturbation needs .*{reason}"):
        OutputPerturbation(inner, 1.0, 5.0)


@pytest.mark.parametrize(
    ("noise", "bound", "reason"),
    [
        (0.0, 5.0, "noise_multiplier must be a positive number, got 0.0"),
        (-1.0, 5.0, "noise_multiplier must be a positive number"),
        (float("inf"), 5.0, "noise_multiplier must be a positive number"),
        (1.0, 0.0, "norm_bound must be a positive number"),
        (1.0, 1.0, "norm_bound must exceed 1, the intercept's own share"),
    ],
)
def test_settings_that_make_no_sense(noise: float, bound: float, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        OutputPerturbation(model(Family.LOGISTIC, _EVERYWHERE), noise, bound)


def test_without_intercept_any_bound_will_do() -> None:
    inner = without_intercept(Family.LOGISTIC)
    assert OutputPerturbation(inner, 1.0, 0.5).optimum_moves() == pytest.approx(0.5)


def test_weighted_records_are_refused() -> None:
    data = replace(records(Family.LOGISTIC), weight=np.ones(63))
    defence = OutputPerturbation(model(Family.LOGISTIC, _EVERYWHERE), 1.0, 5.0)
    with pytest.raises(InputError, match="does not cover weighted records"):
        defence.publish(data, rng=np.random.default_rng(0))


def test_more_noise_leaves_less() -> None:
    """From a whisper to a guarantee: the record fades, and the attack stops claiming it."""
    data = records(Family.LOGISTIC, count=160)
    errors, claims = [], []
    for noise in (1e-6, 1e-5, 1e-4, 1.0):
        defence = OutputPerturbation(model(Family.LOGISTIC, _EVERYWHERE), noise, 6.0)
        trials = attacked(defence, data, 25)
        errors.append(float(np.median(trials.errors)))
        claims.append(float(trials.converged.mean()))
    assert errors[0] < 1e-3
    assert errors == sorted(errors)
    assert errors[-1] >= 0.5
    assert claims[0] >= 0.9
    assert claims[-1] == 0.0


def test_the_attack_rebuilds_what_was_trained_on() -> None:
    """A record beyond the bound was scaled down before training: that is what can come back."""
    data = table("breast cancer")
    inner = GLM(Family.LOGISTIC, Penalty(10.0, intercept=True), classes=(0, 1))
    defence = OutputPerturbation(inner, 1e-9, 3.0)
    trials = attacked(defence, data, 20, attack=Attack())
    seen = defence.prepared(trials.targets).x
    clipped = np.linalg.norm(trials.targets.x, axis=1) > 3.0
    assert clipped.mean() > 0.5
    gaps = np.array(
        [np.abs(found.samples[0] - x).max() for found, x in zip(trials.found, seen, strict=True)]
    )
    assert np.median(gaps) < 1e-2
