"""Linear models to fifty digits: the theorems, and how far double precision is from them.

The oracle is mpmath's Newton iteration on the optimality condition, at 50 digits. The golden
numbers below are its, printed to 17 digits.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest

from exhume.attacks import GLM as Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty

# Six records of two features; the last is the target.
_X = [[0.5, 1.0], [-1.0, 0.25], [2.0, -0.5], [0.0, 1.5], [1.0, 1.0], [-0.75, 2.0]]
_Y = {
    Family.LINEAR: [1.0, -0.5, 2.0, 0.25, 1.5, -1.0],
    Family.LOGISTIC: [1, 0, 1, 0, 0, 1],
    Family.POISSON: [1, 0, 4, 1, 2, 3],
    Family.MULTINOMIAL: [0, 1, 2, 0, 2, 1],
}
_CLASSES = {Family.LOGISTIC: (0, 1), Family.MULTINOMIAL: (0, 1, 2)}

# Intercept and slopes at λ = 1 (none on the intercept), mpmath at 50 digits.
_GOLDEN = {
    Family.LINEAR: ["0.46483876117496807", "0.79549808429118774", "-0.17736270753512133"],
    Family.LOGISTIC: ["-0.15845211134548489", "0.35993379354494919", "0.061288218989496442"],
    Family.POISSON: ["0.10036410743433518", "0.55393781305758871", "0.27673832771110901"],
}
_MEANS: dict[Family, Callable[[mp.mpf], mp.mpf]] = {
    Family.LINEAR: lambda s: s,
    Family.LOGISTIC: lambda s: 1 / (1 + mp.exp(-s)),
    Family.POISSON: mp.exp,
}
one_output = pytest.mark.parametrize("family", _GOLDEN, ids=lambda f: f.value)


@pytest.fixture(autouse=True)
def _fifty_digits() -> object:
    with mp.workdps(50):
        yield


def _model(family: Family) -> GLM:
    return GLM(family, Penalty(1.0), classes=_CLASSES.get(family))


def _gradient(family: Family, theta: mp.matrix, count: int) -> list[mp.mpf]:
    """Σ over the first ``count`` records of (μ − y)·(1, x), and λθ on the slopes."""
    total = [mp.mpf(0)] + [theta[j] for j in (1, 2)]
    for row, y in zip(_X[:count], _Y[family][:count], strict=True):
        rest = _MEANS[family](theta[0] + theta[1] * row[0] + theta[2] * row[1]) - y
        total = [t + rest * z for t, z in zip(total, [1, *row], strict=True)]
    return total


def _optimum(family: Family) -> mp.matrix:
    def condition(*theta: mp.mpf) -> list[mp.mpf]:
        return _gradient(family, mp.matrix(theta), len(_X))

    return mp.findroot(condition, (0.1, 0.1, 0.1), tol=1e-80)


def _released(family: Family) -> np.ndarray:
    data = Records(np.array(_X), np.array(_Y[family]))
    return _model(family).publish(data, rng=np.random.default_rng(0)).parameters


@one_output
def test_the_oracle_gives_the_golden_numbers(family: Family) -> None:
    for found, golden in zip(_optimum(family), _GOLDEN[family], strict=True):
        assert mp.almosteq(found, mp.mpf(golden), rel_eps=mp.mpf(10) ** -14)


@one_output
def test_training_is_right_to_the_last_digits(family: Family) -> None:
    parameters = _released(family)
    theta = [parameters["intercept"][0], *parameters["coef"][0]]
    np.testing.assert_allclose(theta, [float(g) for g in _GOLDEN[family]], rtol=4e-15)


@one_output
def test_theorem_1_corrected(family: Family) -> None:
    """Balle et al. 2022, Theorem 1, with x = g / g₁ and y = μ(⟨x, θ⟩) + g₁: exact to 40 digits."""
    theta = _optimum(family)
    g = _gradient(family, theta, len(_X) - 1)
    x = [g[1] / g[0], g[2] / g[0]]
    y = _MEANS[family](theta[0] + theta[1] * x[0] + theta[2] * x[1]) + g[0]
    for found, truth in zip([*x, y], [*_X[-1], _Y[family][-1]], strict=True):
        assert abs(found - truth) < mp.mpf(10) ** -40


@one_output
def test_the_attack_is_right_to_rounding(family: Family) -> None:
    data = Records(np.array(_X), np.array(_Y[family]))
    training = _model(family)
    release = training.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=(2,), training=training, fixed_set=data.take(np.arange(len(_X) - 1))
    )
    found = Attack().reconstruct(release, knowledge, rng=0)
    np.testing.assert_allclose(found.samples[0], _X[-1], rtol=1e-14)
    assert float(found.labels[0]) == pytest.approx(_Y[family][-1], rel=1e-14)


def test_softmax_to_fifty_digits() -> None:
    """G = x(p − e_y)ᵀ up to sign: x = G a / ‖a‖² with a the bias row, y where p − e_y is least."""
    y = _Y[Family.MULTINOMIAL]

    def gradient(theta: list[mp.mpf], count: int) -> mp.matrix:
        table = mp.matrix(3, 3)
        for j in (1, 2):
            for k in range(3):
                table[j, k] = theta[3 * j + k]
        for row, label in zip(_X[:count], y[:count], strict=True):
            scores = [theta[k] + theta[3 + k] * row[0] + theta[6 + k] * row[1] for k in range(3)]
            total = sum(mp.exp(s) for s in scores)
            for k in range(3):
                rest = mp.exp(scores[k]) / total - (1 if k == label else 0)
                for j, z in enumerate([1, *row]):
                    table[j, k] += rest * z
        return table

    def condition(*theta: mp.mpf) -> list[mp.mpf]:
        flat = list(gradient(list(theta), len(_X)))
        # The intercepts' sum is free: fix it at zero instead of the last, redundant equation.
        flat[2] = theta[0] + theta[1] + theta[2]
        return flat

    theta = list(mp.findroot(condition, [mp.mpf("0.01")] * 9, tol=1e-80))
    table = -gradient(theta, len(_X) - 1)
    a = [table[0, k] for k in range(3)]
    size = sum(v * v for v in a)
    x = [sum(table[j, k] * a[k] for k in range(3)) / size for j in (1, 2)]
    for found, truth in zip(x, _X[-1], strict=True):
        assert abs(found - truth) < mp.mpf(10) ** -40
    assert min(range(3), key=lambda k: a[k]) == y[-1]

    parameters = _released(Family.MULTINOMIAL)
    ours = np.concatenate([parameters["intercept"], parameters["coef"].T.ravel()])
    np.testing.assert_allclose(ours, [float(t) for t in theta], rtol=1e-13, atol=1e-15)


def test_theorem_8_to_fifty_digits() -> None:
    """No intercept, least squares: 1/(y − s) leads to the target, 1/s to the other candidate."""
    y = [mp.mpf(v) for v in _Y[Family.LINEAR]]
    rows = mp.matrix(_X)
    theta = mp.lu_solve(rows.T * rows, rows.T * mp.matrix(y))
    v = mp.matrix(2, 1)
    for row, label in zip(_X[:-1], y[:-1], strict=True):
        rest = theta[0] * row[0] + theta[1] * row[1] - label
        v += rest * mp.matrix(row)
    q = v[0] * theta[0] + v[1] * theta[1]
    # x = v·c⁻¹ with c(y − c) = q, where c = y − s or c = s.
    half = mp.sqrt(y[-1] ** 2 - 4 * q) / 2
    candidates = [[v[0] / c, v[1] / c] for c in (y[-1] / 2 + half, y[-1] / 2 - half)]
    gaps = [max(abs(a - b) for a, b in zip(x, _X[-1], strict=True)) for x in candidates]
    assert min(gaps) < mp.mpf(10) ** -40
    s = theta[0] * _X[-1][0] + theta[1] * _X[-1][1]
    assert abs(half - abs(y[-1] - 2 * s) / 2) < mp.mpf(10) ** -40

    data = Records(np.array(_X), np.array(_Y[Family.LINEAR]))
    training = GLM(Family.LINEAR, intercept=False)
    release = training.publish(data, rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=(2,),
        training=training,
        fixed_set=data.take(np.arange(5)),
        labels=np.array([_Y[Family.LINEAR][-1]]),
    )
    found = Attack().reconstruct(release, knowledge, rng=0)
    ours = sorted(found.samples.tolist())
    theirs = sorted([float(v) for v in x] for x in candidates)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
