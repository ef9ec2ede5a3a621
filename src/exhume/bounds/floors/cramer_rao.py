"""Cramér–Rao: the least error of an unbiased attack on a release with Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.checks import require_count, require_not_negative
from exhume.bounds.floors.base import (
    ErrorUnit,
    Floor,
    FloorBinds,
    checked_jacobian,
    checked_noise,
)
from exhume.bounds.floors.bidiagonal import Operator, Products, Quadrature, inverse_forms
from exhume.bounds.floors.jacobian import DEFAULT_MEMORY_LIMIT
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.seeds import Seed, generator
from exhume.stats.means import standard_error

if TYPE_CHECKING:
    from exhume.bounds.floors.jacobian import Record, ReleaseFunction


@dataclass(frozen=True, kw_only=True)
class Probing:
    """The effort if the Jacobian does not fit in memory: random probes, and steps per probe.

    More probes lower the standard error, more steps the shortfall. The steps end early once the
    estimated shortfall is below ``accuracy``.
    """

    probes: int = 32
    steps: int = 100
    accuracy: float = 1e-3

    def __post_init__(self) -> None:
        require_count("steps", self.steps, at_least=1)
        # One probe alone gives no estimate of its error.
        require_count("probes", self.probes, at_least=2)
        require_not_negative("accuracy", self.accuracy)


def cramer_rao(
    release: ReleaseFunction,
    record: Record,
    noise_std: ArrayLike,
    *,
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    probing: Probing | None = None,
    rng: Seed = 0,
) -> Floor:
    """Floor on the mean squared error per coordinate of unbiased attacks on ``release`` + noise.

    ``release`` maps a torch tensor of the record's shape to what is released: a tensor, or a
    sequence or mapping of them (a gradient, weights after training, logits). Gaussian noise of
    standard deviation ``noise_std`` (one number, or one per output) is added to it. The floor is
    tr(F⁻¹)/d with F = JᵀJ/σ² at this record (Liu et al. 2024, eq. 28, over d). The whole Jacobian
    is used if that takes at most ``memory_limit`` bytes (three times 8·outputs·inputs). Otherwise
    products with it give an estimate, as ``probing`` says: see ``cramer_rao_from_products``.
    """
    from exhume.bounds.floors.jacobian import Jacobian

    jacobian = Jacobian(release, record)
    if 3 * 8 * jacobian.outputs * jacobian.inputs <= memory_limit:
        dense = jacobian.dense(memory_limit=memory_limit)
        tolerance = _tolerance(jacobian.epsilon, jacobian.outputs, jacobian.inputs)
        return cramer_rao_from_jacobian(dense, noise_std, rank_tolerance=tolerance)
    return cramer_rao_from_products(
        jacobian.times,
        jacobian.transposed_times,
        noise_std,
        shape=(jacobian.outputs, jacobian.inputs),
        epsilon=jacobian.epsilon,
        memory_limit=memory_limit,
        probing=probing,
        rng=rng,
    )


def cramer_rao_from_jacobian(
    jacobian: ArrayLike, noise_std: ArrayLike, *, rank_tolerance: float | None = None
) -> Floor:
    """Floor on the mean squared error per coordinate from the Jacobian (outputs, inputs) itself.

    ``noise_std`` is one number or one per output, above 0. Singular values of at most
    ``rank_tolerance`` times the largest count as 0 (default: 8 √(longer side) rounding errors). In
    such a direction, the release does not change with the record, no unbiased attack exists, and
    the floor is infinite. ``identifiable_value`` keeps the floor of the other directions.

    >>> cramer_rao_from_jacobian([[2.0, 0.0], [0.0, 1.0]], 0.1).value
    0.00625
    >>> cramer_rao_from_jacobian([[1.0, 1.0]], 0.1).unidentifiable
    1
    """
    array = checked_jacobian(jacobian)
    outputs, inputs = array.shape
    if rank_tolerance is None:
        rank_tolerance = _tolerance(_precision(jacobian), outputs, inputs)
    noise = checked_noise(noise_std, outputs)
    singular = np.linalg.svd(array / noise[:, None], compute_uv=False)
    kept = singular[singular > rank_tolerance * singular[0]]
    identifiable = float((1 / kept**2).sum() / inputs)
    lost = inputs - len(kept)
    return Floor(
        value=math.inf if lost else identifiable,
        unit=ErrorUnit.MSE,
        method="Cramér–Rao, exact Jacobian",
        binds=FloorBinds.UNBIASED,
        unidentifiable=lost,
        identifiable_value=identifiable,
        note=_lost_note(f"{lost} of {inputs}") if lost else "",
    )


def cramer_rao_from_products(
    times: Products,
    transposed_times: Products,
    noise_std: ArrayLike,
    *,
    shape: tuple[int, int],
    epsilon: float = float(np.finfo(np.float64).eps),
    memory_limit: int = DEFAULT_MEMORY_LIMIT,
    probing: Probing | None = None,
    rng: Seed = 0,
) -> Floor:
    """Estimate the Cramér–Rao floor from products J v and Jᵀ u alone.

    ``times`` maps rows (r, inputs) to (r, outputs), ``transposed_times`` the reverse. ``shape`` is
    (outputs, inputs), ``epsilon`` the relative precision of the products. tr(F⁻¹) is the mean of
    vᵀF⁻¹v over random sign vectors v (Hutchinson), each by Gauss quadrature. A Gauss rule lies
    below vᵀF⁻¹v: stopping early lowers the floor and never makes it invalid. ``standard_error`` is
    the random error; ``shortfall`` estimates the loss by stopping early.
    """
    probing = Probing() if probing is None else probing
    outputs, inputs = shape
    noise = checked_noise(noise_std, outputs)
    if outputs < inputs:
        return _singular_floor(f"at least {inputs - outputs} of {inputs}")
    operator = Operator(
        times=lambda rows: times(rows) / noise,
        transposed_times=lambda rows: transposed_times(rows / noise),
        outputs=outputs,
        inputs=inputs,
        tolerance=_tolerance(epsilon, outputs, inputs),
    )
    signs = generator(rng).choice([-1.0, 1.0], size=(probing.probes, inputs))
    parts = []
    for rows in np.array_split(signs, _batches(operator, probing, memory_limit)):
        part = inverse_forms(operator, rows, steps=probing.steps, accuracy=probing.accuracy)
        if part.singular:
            return _singular_floor(f"at least 1 of {inputs}")
        parts.append(part)
    return _estimated_floor(parts, inputs)


def _estimated_floor(parts: list[Quadrature], inputs: int) -> Floor:
    values: FloatArray = np.concatenate([part.values for part in parts]) / inputs
    missing = np.concatenate([part.values * part.shortfalls for part in parts]) / inputs
    return Floor(
        value=float(values.mean()),
        unit=ErrorUnit.MSE,
        method=f"Cramér–Rao, estimated with {len(values)} probes",
        binds=FloorBinds.UNBIASED,
        standard_error=standard_error(values),
        shortfall=float(missing.mean() / values.mean()),
    )


def _singular_floor(lost: str) -> Floor:
    return Floor(
        value=math.inf,
        unit=ErrorUnit.MSE,
        method="Cramér–Rao, from products",
        binds=FloorBinds.UNBIASED,
        note=_lost_note(lost),
    )


def _lost_note(lost: str) -> str:
    return f"no unbiased attack exists: the release does not move in {lost} directions"


def _batches(operator: Operator, probing: Probing, memory_limit: int) -> int:
    steps = min(probing.steps, operator.inputs)
    one = 8 * (steps * operator.inputs + steps**2 + 4 * (operator.outputs + operator.inputs))
    if one > memory_limit:
        raise InputError(
            f"one probe of {steps} steps needs {one} bytes, the memory limit is {memory_limit}; "
            "raise it, or take fewer steps"
        )
    return math.ceil(probing.probes / (memory_limit // one))


def _precision(values: ArrayLike) -> float:
    dtype = np.asarray(values).dtype
    return float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)


def _tolerance(epsilon: float, outputs: int, inputs: int) -> float:
    # The usual rule, eps times the longer side, would drop directions that float32 resolves.
    return 8 * epsilon * math.sqrt(max(outputs, inputs))
