"""Van Trees: Cramér–Rao with a Gaussian prior, which binds biased attacks too."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.floors.base import ErrorUnit, Floor, FloorBinds, checked_jacobian, checked_noise
from exhume.bounds.floors.gaussian import checked_covariance
from exhume.protocol.arrays import FloatArray
from exhume.stats.means import jackknife_error


def van_trees_from_jacobians(
    jacobians: ArrayLike, noise_std: ArrayLike, *, prior_covariance: ArrayLike
) -> Floor:
    """Floor on any attack's mean squared error per coordinate, averaged over a Gaussian prior.

    tr((E[F(x)] + S⁻¹)⁻¹)/d, where S is the prior's covariance (one variance, one per coordinate, or
    a matrix) and E averages F = JᵀJ/σ² over records drawn from that prior (Van Trees 1968, section
    2.4). If the release is linear in the record, one Jacobian (outputs, inputs) is enough, and the
    floor is the posterior mean's own error. Otherwise pass (draws, outputs, inputs), taken at draws
    from the prior: the Jacobian at one record gives no floor. With draws, the floor is an estimate.
    Its upward bias (the trace of an inverse is convex) is corrected by the jackknife, which also
    gives ``standard_error``.

    >>> van_trees_from_jacobians([[1.0]], 1.0, prior_covariance=1.0).value
    0.5
    """
    array = checked_jacobian(jacobians, dimensions=(2, 3))
    draws = array.reshape(-1, *array.shape[-2:])
    noise = checked_noise(noise_std, draws.shape[1])
    weighted = draws / noise[:, None]
    information = weighted.transpose(0, 2, 1) @ weighted
    dimension = draws.shape[2]
    covariance = checked_covariance(prior_covariance, dimension, "prior_covariance")
    value, error = _jackknife(information, np.asarray(np.linalg.inv(covariance), np.float64))
    return Floor(
        value=max(0.0, value),
        unit=ErrorUnit.MSE,
        method="Van Trees, Gaussian prior",
        binds=FloorBinds.ALL,
        standard_error=error,
        note="averaged over the prior"
        + ("" if len(draws) > 1 else "; for a release that is linear in the record"),
    )


def _jackknife(information: FloatArray, prior: FloatArray) -> tuple[float, float | None]:
    count = len(information)
    mean = information.mean(axis=0)
    whole = _mean_inverse(mean + prior)
    if count == 1:
        return whole, None
    others = np.array(
        [_mean_inverse(mean + (mean - one) / (count - 1) + prior) for one in information]
    )
    return count * whole - (count - 1) * float(others.mean()), jackknife_error(others)


def _mean_inverse(matrix: FloatArray) -> float:
    return float((1 / np.linalg.eigvalsh(matrix)).mean())
