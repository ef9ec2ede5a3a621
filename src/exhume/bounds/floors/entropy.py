"""The entropy floor: the error that limited information implies for any attack, biased or not.

For a record x of d coordinates with differential entropy h(x) and any attack x̂ on a release:

    h(x) - I(x; release) ≤ h(x) - I(x; x̂) = h(x | x̂) ≤ h(x - x̂) ≤ (d/2) log(2πe · MSE).

The reasons, in order: data processing; conditioning lowers entropy; a Gaussian has the largest
entropy for its mean square. So MSE ≥ N(x) exp(-2 I/d), with the entropy power N(x) = exp(2
h(x)/d)/(2πe).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.checks import require_count, require_positive
from exhume.bounds.floors.base import (
    ErrorUnit,
    Floor,
    FloorBinds,
    checked_jacobian,
    checked_noise,
    require_amount,
)
from exhume.bounds.floors.gaussian import checked_covariance
from exhume.protocol.errors import InputError


def entropy_floor(information: float, *, dimension: int, entropy_power: float) -> Floor:
    """Floor on the mean squared error per coordinate of any attack, averaged over the prior.

    ``information`` bounds the mutual information of record and release in nats (at least 0, may be
    infinite: the floor is then 0); ``dimension`` is d; ``entropy_power`` is that of the prior, see
    ``gaussian_entropy_power`` and ``uniform_entropy_power``. Over the prior's mean square
    (``relative_to``) this is exp(-2ρ/d) for a centred isotropic Gaussian prior.

    >>> round(entropy_floor(0.5, dimension=1, entropy_power=1.0).value, 4)
    0.3679
    """
    require_amount("information", information)
    require_count("dimension", dimension, at_least=1)
    require_positive("entropy_power", entropy_power)
    return Floor(
        value=entropy_power * math.exp(-2.0 * information / dimension),
        unit=ErrorUnit.MSE,
        method=f"entropy, at most {information:.4g} nats, {dimension} coordinates",
        binds=FloorBinds.ALL,
        note="averaged over the prior",
    )


def gaussian_entropy_power(covariance: ArrayLike, *, dimension: int) -> float:
    """The entropy power of a Gaussian prior: det(S)^(1/d), for isotropic noise its variance.

    ``covariance`` is one variance, one per coordinate, or a matrix.

    >>> gaussian_entropy_power(0.25, dimension=3)
    0.25
    """
    require_count("dimension", dimension, at_least=1)
    matrix = checked_covariance(covariance, dimension, "covariance")
    return math.exp(np.linalg.slogdet(matrix)[1] / dimension)


def uniform_entropy_power(low: float, high: float) -> float:
    """The entropy power of coordinates that are independent and uniform on [low, high].

    >>> round(uniform_entropy_power(0.0, 1.0), 4)
    0.0585
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"a value range needs finite low < high, got {low:g} and {high:g}")
    return (high - low) ** 2 / (2.0 * math.pi * math.e)


def linear_channel_information(
    jacobian: ArrayLike, noise_std: ArrayLike, *, prior_covariance: ArrayLike
) -> float:
    """The mutual information, in nats, of a Gaussian record and J x + Gaussian noise.

    ½ log det(I + S JᵀJ/σ²): ``jacobian`` (outputs, inputs), ``noise_std`` one number or one per
    output, S the prior's covariance. Exact for a release that is linear in the record. For others
    use ``channel_information``: a Jacobian at one record bounds nothing.

    >>> round(linear_channel_information([[1.0]], 1.0, prior_covariance=np.e**2 - 1), 12)
    1.0
    """
    array = checked_jacobian(jacobian)
    noise = checked_noise(noise_std, len(array))
    covariance = checked_covariance(prior_covariance, array.shape[1], "prior_covariance")
    weighted = (array / noise[:, None]) @ np.linalg.cholesky(covariance)
    singular = np.linalg.svd(weighted, compute_uv=False)
    return float(0.5 * np.log1p(singular**2).sum())


def channel_information(release_covariance: ArrayLike, noise_std: ArrayLike) -> float:
    """Bound, in nats, the information of any release with that covariance, plus Gaussian noise.

    ½ log det(I + C/σ²), where C (outputs, outputs) is the covariance of the release before noise,
    over the record's prior. Among all inputs of one covariance, a Gaussian one carries the most
    information. No Jacobian and no linearity is needed. A covariance estimated from few draws is
    too small in some directions, and then this bound is too small as well.
    """
    array = np.asarray(release_covariance, dtype=np.float64)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not np.isfinite(array).all():
        raise InputError(f"release_covariance must be a finite square matrix, got {array.shape}")
    noise = checked_noise(noise_std, len(array))
    eigenvalues = np.linalg.eigvalsh(array / np.outer(noise, noise))
    if eigenvalues[0] < -1e-9 * max(1.0, eigenvalues[-1]):
        raise InputError(
            f"release_covariance has the negative eigenvalue {eigenvalues[0]:g} in units of noise"
        )
    return float(0.5 * np.log1p(np.maximum(eigenvalues, 0.0)).sum())
