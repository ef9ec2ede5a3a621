"""Noise on the parameters of a one-output model, compared with the target's effect on them.

Let H be the fixed set's Hessian. A target with row x̃ moves the optimum along H⁻¹x̃. With noise of
known deviation on each parameter, H⁻¹g = α·H⁻¹x̃ + noise. Here α = (c + κ·⟨x̃, H⁻¹g⟩)/(1 + κ·⟨x̃,
H⁻¹x̃⟩), and κ is the target's own curvature (Sherman–Morrison). For a given α, the posterior of x
is Gaussian; the attack searches over α.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dtrtri
from scipy.special import logsumexp

from exhume.attacks.linear.gradient_noise import Fit, Prior
from exhume.attacks.linear.levenberg_marquardt import Unknowns, levenberg_marquardt
from exhume.attacks.linear.read_release import Reading
from exhume.protocol.arrays import Array, FloatArray
from exhume.training.families import Family

_POLISH = 30
_RUNGS = 12
_FINER_RUNGS = 6
_ROUNDS = 7
_SPREAD_OUT = 2.0
"""The grid of α counts as the posterior if at least this many of its points share the weight."""
_EXPLAINED = 10.0
"""The mean squared misfit that noise may leave, in units of its own variance."""
_NEGLIGIBLE_GAIN = 1e-8


@dataclass(frozen=True, eq=False)
class Displaced:
    """The linear algebra that all labels of a reading share.

    ``inverse`` (p, p) is H⁻¹, and ``moved`` (p,) is H⁻¹g. ``whitened`` (p, p) and ``seen`` (p,) are
    the same in units of each parameter's noise. ``gram`` (p, p) is whitenedᵀ·whitened.
    """

    reading: Reading
    inverse: FloatArray
    moved: FloatArray
    whitened: FloatArray
    seen: FloatArray
    gram: FloatArray


def displaced(reading: Reading) -> Displaced | None:
    """Invert the fixed set's Hessian, and convert everything to units of the noise.

    Returns None if the Hessian has no inverse: then the fixed set determines nothing at these
    parameters.
    """
    try:
        inverse = np.linalg.inv(reading.problem.hessian(reading.theta))
    except np.linalg.LinAlgError:
        return None
    deviation = np.sqrt(
        reading.theta_deviation[:, 0] ** 2
        + reading.gradient_deviation**2 * np.sum(inverse**2, axis=1)
    )
    moved = inverse @ reading.gradient[:, 0]
    whitened = inverse / deviation[:, None]
    gram = np.asarray(whitened.T @ whitened)
    if not (np.isfinite(gram).all() and np.isfinite(moved).all()):
        return None
    return Displaced(reading, inverse, moved, whitened, moved / deviation, gram)


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """A label that may explain the displacement; a ``response`` of None is fitted (regressions)."""

    prior: Prior
    response: float | None
    weight: float
    fixed: Array
    values: FloatArray
    """The known features' values; only those marked by ``fixed`` count."""


def explain(
    shared: Displaced, hypothesis: Hypothesis, guesses: Sequence[tuple[FloatArray, float]] = ()
) -> Fit:
    """Return the most probable target under a hypothesis, or the mean if α is uncertain.

    A given α fixes the residual c, and with it the target's score. The posterior of x is then a
    Gaussian on a plane, and its evidence is the weight of that α. (The mode over x and α together
    would explain the noise by a large α.) The grid of α is refined around its best point until
    several points share the weight. These points are the posterior, and their mean is returned. If
    the noise is so small that one point always has all the weight, the mode is refined instead.
    """
    free = np.flatnonzero(~hypothesis.fixed)
    starts = [(np.where(hypothesis.fixed, hypothesis.values, x), y) for x, y in guesses]
    # Points may share the weight although none explains the data: compare with the guesses.
    misfits = [float(np.mean(_missed(shared, hypothesis, *start) ** 2)) for start in starts]
    explained = max(_EXPLAINED, min(misfits, default=np.inf))
    alphas = _alphas(shared, hypothesis)
    for _ in range(_ROUNDS):
        rungs = [_rung(shared, hypothesis, alpha, free) for alpha in alphas]
        share = _shares(rungs)
        best = rungs[int(np.argmax(share))]
        if 1.0 / float(share @ share) >= _SPREAD_OUT and best.misfit <= explained:
            return _mixture(rungs, share, hypothesis.prior)
        alphas = _drawn_in(alphas, int(np.argmax(share)))
    starts.append((best.x, best.response))
    starts.sort(key=lambda start: _cost(shared, hypothesis, *start))
    return _polished(shared, hypothesis, *starts[0], free)


def descend(shared: Displaced, hypothesis: Hypothesis, x: FloatArray, response: float) -> Fit:
    """Return the most probable target near ``x``."""
    start = np.where(hypothesis.fixed, hypothesis.values, x)
    return _polished(shared, hypothesis, start, response, np.flatnonzero(~hypothesis.fixed))


def _drawn_in(alphas: FloatArray, best: int) -> FloatArray:
    """A finer grid between the neighbours of the best point, of the same sign."""
    same = np.flatnonzero(np.sign(alphas) == np.sign(alphas[best]))
    sizes = np.sort(np.abs(alphas[same]))
    i = int(np.searchsorted(sizes, abs(alphas[best])))
    low, high = sizes[max(i - 1, 0)], sizes[min(i + 1, len(sizes) - 1)]
    return np.asarray(np.sign(alphas[best]) * np.geomspace(low, high, _FINER_RUNGS))


def _mixture(rungs: Sequence[_Rung], share: FloatArray, prior: Prior) -> Fit:
    x = share @ np.stack([rung.x for rung in rungs])
    variance = np.zeros(len(x))
    for weight, rung in zip(share, rungs, strict=True):
        if weight > 0.02:
            variance += weight * (rung.variance() + (rung.x - x) ** 2)
    response = float(share @ np.array([rung.response for rung in rungs]))
    cost = -float(logsumexp([rung.log_weight for rung in rungs]))
    free = rungs[0].free
    misfit = float(share @ np.array([rung.misfit for rung in rungs]))
    variance[free] = _doubted(variance, misfit, prior, x)[free]
    return Fit(x, np.array([response]), cost, variance, True)


def _doubted(variance: FloatArray, misfit: float, prior: Prior, x: FloatArray) -> FloatArray:
    """Raise the variance of a point that explains the data badly, up to that of the prior."""
    most = np.maximum(variance, prior.variance + (x - prior.mean) ** 2)
    return np.asarray(np.minimum(variance * max(1.0, misfit), most))


@dataclass(frozen=True, eq=False)
class _Rung:
    """The posterior at one α: the mean of x, the response, and the log of its weight.

    ``factor`` is the Cholesky factor of the precision of the ``free`` features. ``plane`` is the
    direction that the fixed score determines. ``misfit`` is the mean square of the unexplained
    rest, in units of the noise.
    """

    x: FloatArray
    response: float
    log_weight: float
    factor: FloatArray
    free: Array
    plane: FloatArray
    misfit: float

    def variance(self) -> FloatArray:
        """The variance of each feature."""
        inverse, _ = dtrtri(self.factor, lower=1)
        variance = np.zeros(len(self.x))
        # LAPACK leaves the other triangle unchanged.
        variance[self.free] = np.maximum(np.sum(np.tril(inverse) ** 2, axis=0) - self.plane**2, 0.0)
        return variance


def _shares(rungs: Sequence[_Rung]) -> FloatArray:
    logs = np.array([rung.log_weight for rung in rungs])
    share = np.exp(logs - logs.max())
    return np.asarray(share / share.sum())


def _rung(shared: Displaced, hypothesis: Hypothesis, alpha: float, free: Array) -> _Rung:
    prior, skip = hypothesis.prior, int(shared.reading.model.intercept)
    base = np.where(hypothesis.fixed, hypothesis.values, prior.mean)
    target = shared.whitened.T @ shared.seen - alpha * (shared.gram @ _row(shared, base))
    hessian = alpha**2 * shared.gram[skip:, skip:] + prior.precision
    if len(free) < len(base):
        hessian = hessian[np.ix_(free, free)]
    right = (alpha * target[skip:] - prior.precision @ (base - prior.mean))[free]
    factor = cho_factor(hessian, lower=True, check_finite=False, overwrite_a=True)
    x = base.copy()
    x[free] += cho_solve(factor, right, check_finite=False)
    plane = np.zeros(len(free))
    log_weight = prior.log_volume - float(np.sum(np.log(np.diag(factor[0])))) + np.log(abs(alpha))
    if hypothesis.response is None:
        response = _response_of(shared, hypothesis, x, alpha)
        log_weight -= 0.5 * _surprise(hypothesis, response) ** 2
    else:
        response = hypothesis.response
        slopes = shared.reading.theta[skip:, 0][free]
        along = cho_solve(factor, slopes, check_finite=False)
        give = float(slopes @ along)
        score = float(_row(shared, x) @ shared.reading.theta[:, 0])
        wanted, pace = _score_at(shared, hypothesis, x, alpha, near=score)
        # If all slopes are 0 (by rounding), the score and x can't move.
        if give > 0.0:
            x[free] += along * (wanted - score) / give
            plane = along / np.sqrt(give)
            log_weight += -0.5 * np.log(give)
        log_weight += np.log(max(abs(pace), 1e-300))
    missed = alpha * (shared.whitened @ _row(shared, x)) - shared.seen
    away = x - prior.mean
    log_weight -= 0.5 * float(missed @ missed) + 0.5 * float(away @ prior.precision @ away)
    misfit = float(np.mean(missed**2))
    return _Rung(x, response, float(log_weight), factor[0], free, plane, misfit)


def _score_at(
    shared: Displaced, hypothesis: Hypothesis, x: FloatArray, alpha: float, *, near: float
) -> tuple[float, float]:
    """The score near ``near`` at which a record like x moves the parameters by α; ds/dα."""
    family, row = shared.reading.model.family, _row(shared, x)
    along, length = float(row @ shared.moved), float(row @ shared.inverse @ row)
    assert hypothesis.response is not None
    if family is Family.LINEAR:
        pace = 1.0 / hypothesis.weight + length
        return hypothesis.response - alpha * pace + along, pace
    scores = np.linspace(-40.0, 40.0, 4001)
    kappa = hypothesis.weight * family.slope(scores)
    c = hypothesis.weight * (hypothesis.response - family.mean(scores))
    reached = (c + kappa * along) / (1.0 + kappa * length)
    crossing = np.flatnonzero(np.diff(np.sign(reached - alpha)) != 0)
    if len(crossing) == 0:
        i = int(np.argmin(np.abs(reached - alpha)))
        return float(scores[i]), 1e-3
    i = int(crossing[np.argmin(np.abs(scores[crossing] - near))])
    rise = float(reached[i + 1] - reached[i])
    part = (alpha - float(reached[i])) / rise if rise else 0.5
    step = float(scores[1] - scores[0])
    return float(scores[i]) + part * step, step / rise if rise else 1e-3


def _row(shared: Displaced, x: FloatArray) -> FloatArray:
    return np.concatenate([[1.0], x]) if shared.reading.model.intercept else x


def _alphas(shared: Displaced, hypothesis: Hypothesis) -> FloatArray:
    """A grid of possible residuals: up to 1 for a class, up to the spread for a regression."""
    if hypothesis.response is not None and shared.reading.model.family.classifies:
        sign = 1.0 if hypothesis.response > 0.5 else -1.0
        return np.asarray(sign * hypothesis.weight * np.geomspace(1e-3, 1.0, _RUNGS))
    largest = 2.0 * hypothesis.prior.response_deviation * hypothesis.weight
    ladder = largest * np.geomspace(1e-3, 1.0, _RUNGS)
    return np.concatenate([-ladder, ladder])


def _response_of(shared: Displaced, hypothesis: Hypothesis, x: FloatArray, alpha: float) -> float:
    """The response at which a record x moves the parameters by α."""
    row = _row(shared, x)
    score = row @ shared.reading.theta
    kappa = hypothesis.weight * float(shared.reading.model.family.slope(score)[0])
    c = alpha * (1.0 + kappa * float(row @ shared.inverse @ row)) - kappa * float(
        row @ shared.moved
    )
    return float(shared.reading.model.family.mean(score)[0]) + c / hypothesis.weight


def _alpha(
    shared: Displaced, hypothesis: Hypothesis, x: FloatArray, response: float
) -> tuple[float, FloatArray, float]:
    """α at (x, response), its gradient in x, and its derivative in the response."""
    family, skip = shared.reading.model.family, int(shared.reading.model.intercept)
    row = _row(shared, x)
    score, slopes = row @ shared.reading.theta, shared.reading.theta[skip:, 0]
    first = float(family.slope(score)[0])
    kappa, bend = hypothesis.weight * first, hypothesis.weight * family.bend(float(score[0]))
    c = hypothesis.weight * (response - float(family.mean(score)[0]))
    along, turned = float(row @ shared.moved), shared.inverse @ row
    length = float(row @ turned)
    below = 1.0 + kappa * length
    alpha = (c + kappa * along) / below
    d_above = (bend * along - kappa) * slopes + kappa * shared.moved[skip:]
    d_below = bend * length * slopes + 2.0 * kappa * turned[skip:]
    return alpha, np.asarray((d_above - alpha * d_below) / below), hypothesis.weight / below


def _missed(
    shared: Displaced, hypothesis: Hypothesis, x: FloatArray, response: float
) -> FloatArray:
    """The unexplained part of each parameter's displacement, in units of its noise."""
    alpha, _, _ = _alpha(shared, hypothesis, x, response)
    return np.asarray(alpha * (shared.whitened @ _row(shared, x)) - shared.seen)


def _cost(shared: Displaced, hypothesis: Hypothesis, x: FloatArray, response: float) -> float:
    missed = _missed(shared, hypothesis, x, response)
    away = x - hypothesis.prior.mean
    cost = 0.5 * float(missed @ missed) + 0.5 * float(away @ hypothesis.prior.precision @ away)
    if hypothesis.response is None:
        cost += 0.5 * _surprise(hypothesis, response) ** 2
    return cost if np.isfinite(cost) else float("inf")


def _surprise(hypothesis: Hypothesis, response: float) -> float:
    return (response - hypothesis.prior.response_mean) / hypothesis.prior.response_deviation


def _polished(
    shared: Displaced, hypothesis: Hypothesis, x: FloatArray, response: float, free: Array
) -> Fit:
    """Levenberg–Marquardt on x, and on the response if it is free."""
    unknowns = Unknowns(x, np.array([response]), free, hypothesis.response is None)

    def target(at: FloatArray) -> tuple[FloatArray, float]:
        features, responses = unknowns.target(at)
        return features, float(responses[0])

    found = levenberg_marquardt(
        lambda at: _cost(shared, hypothesis, *target(at)),
        lambda at: _normal_equations(shared, hypothesis, *target(at), free),
        unknowns.start,
        damping=1e-4,
        steps=_POLISH,
        settled=lambda attempt: attempt.taken and attempt.promised <= _NEGLIGIBLE_GAIN,
    )
    x, response = target(found.unknowns)
    variance = np.zeros(len(x))
    variance[free] = found.variance[: len(free)]
    misfit = float(np.mean(_missed(shared, hypothesis, x, response) ** 2))
    variance[free] = _doubted(variance, misfit, hypothesis.prior, x)[free]
    cost = found.cost + found.volume - hypothesis.prior.log_volume
    return Fit(x, np.array([response]), cost, variance, found.converged)


def _normal_equations(
    shared: Displaced, hypothesis: Hypothesis, x: FloatArray, response: float, free: Array
) -> tuple[FloatArray, FloatArray]:
    skip, prior = int(shared.reading.model.intercept), hypothesis.prior
    alpha, d_alpha, d_response = _alpha(shared, hypothesis, x, response)
    row = _row(shared, x)
    spread = shared.whitened @ row
    missed = alpha * spread - shared.seen
    mixed = (shared.gram @ row)[skip:]
    size = float(spread @ spread)
    hessian = alpha**2 * shared.gram[skip:, skip:] + alpha * (
        np.outer(mixed, d_alpha) + np.outer(d_alpha, mixed)
    )
    hessian += size * np.outer(d_alpha, d_alpha) + prior.precision
    toward = float(spread @ missed)
    slope = alpha * (shared.whitened.T @ missed)[skip:] + toward * d_alpha
    slope += prior.precision @ (x - prior.mean)
    hessian, slope = hessian[np.ix_(free, free)], slope[free]
    if hypothesis.response is not None:
        return hessian, slope
    cross = d_response * (alpha * mixed + size * d_alpha)[free]
    own = d_response**2 * size + prior.response_deviation**-2
    last = d_response * toward + _surprise(hypothesis, response) / prior.response_deviation
    full = np.block([[hessian, cross[:, None]], [cross[None, :], np.array([[own]])]])
    return full, np.append(slope, last)
