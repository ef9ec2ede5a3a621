"""The reason why an attack ended where it did, by the adversary's own evidence.

Also whether a search failed because the inputs were normalised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from torch import Tensor

from exhume.attacks.gradients.matching.batch_norm import normalisation_mode
from exhume.attacks.gradients.matching.gauss_newton import release_products
from exhume.attacks.gradients.matching.loop import Descent, MatchingProblem, StepBudget, match
from exhume.attacks.gradients.matching.objectives import Cosine, batch_norm_distance
from exhume.attacks.gradients.matching.optimisers import SignedAdam
from exhume.attacks.gradients.matching.priors import Pixels
from exhume.attacks.gradients.matching.problem import MatchableRelease, problem_of
from exhume.derivatives.jacobian import JacobianProducts
from exhume.derivatives.smoothed_relu import Continuation
from exhume.protocol.defence import shown
from exhume.protocol.reconstruction import Status

NEAR = 5.0
"""A residual within this factor of its floor counts as at the floor."""


class Reason(Enum):
    """The reason for the end of an attack. The value is the text in the report."""

    NOTHING = "the release is explained down to its own rounding or noise"
    NO_INFORMATION = "the release hardly changes with the records"
    WRONG_ASSUMPTION = "what was assumed contradicts the release"
    BUDGET_SPENT = "the loss was still falling when the steps ran out"
    STUCK = "the optimiser stopped above the loss that the truth would reach"


@dataclass(frozen=True, eq=False, kw_only=True)
class Diagnosis:
    """The reason, and the figures behind it.

    ``residual`` is ‖g − g*‖/‖g*‖ at the answer, and ``floor`` its value at the truth, due to
    rounding and known noise. ``visible`` is the change of the release, in the same units, if every
    pixel changes by its usual deviation. ``condition`` is the ratio of the largest to the smallest
    singular value of the Jacobian seen in a few Lanczos steps: a lower bound of the true one.
    ``scale`` is the best-fitting factor on the simulated release.
    """

    reason: Reason
    message: str
    residual: float
    floor: float
    visible: float
    condition: float
    scale: float

    @property
    def status(self) -> Status:
        """The attack's status: CONVERGED only at the floor."""
        match self.reason:
            case Reason.NOTHING:
                return Status.CONVERGED
            case Reason.NO_INFORMATION:
                return Status.NO_INFORMATION
            case Reason.WRONG_ASSUMPTION:
                return Status.WRONG_ASSUMPTION
        return Status.APPROXIMATE if self.residual < 0.5 else Status.NOT_CONVERGED


def diagnose(
    reading: MatchableRelease,
    problem: MatchingProblem,
    run: Descent,
    rng: np.random.Generator,
    *,
    steps: int = 8,
) -> Diagnosis:
    """Return why ``run`` ended where it did; costs about 2·``steps`` evaluations."""
    problem.simulation.nuisances.put(run.nuisances)
    simulated = [g.detach() for g in problem.simulate(run.images, run.labels)]
    residual, turned, scale = _fit(simulated, problem.released.values)
    floor = truth_floor(reading, problem, run.images, run.labels)
    products = release_products(problem, run.images, run.labels)
    visible, condition = _sensitivity(products, problem, rng, steps)
    contradiction = _contradiction(reading, problem, run, residual, turned, scale)
    if contradiction is None and residual > 0.5 and not 0.8 < scale < 1.25:
        contradiction = normalised_inputs(reading, run, run.labels, rng)
    if residual <= NEAR * floor:
        reason, message = Reason.NOTHING, Reason.NOTHING.value
    elif visible <= NEAR * max(floor, 1e-9):
        reason, message = Reason.NO_INFORMATION, Reason.NO_INFORMATION.value
    elif contradiction is not None:
        reason, message = Reason.WRONG_ASSUMPTION, contradiction
    elif run.exhausted and _falling(run.history):
        reason, message = Reason.BUDGET_SPENT, Reason.BUDGET_SPENT.value
    else:
        reason, message = Reason.STUCK, Reason.STUCK.value
    return Diagnosis(
        reason=reason,
        message=message,
        residual=residual,
        floor=floor,
        visible=visible,
        condition=condition,
        scale=scale,
    )


def _fit(simulated: Sequence[Tensor], target: Sequence[Tensor]) -> tuple[float, float, float]:
    """Return the residual, the residual after the best factor, and that factor."""
    pairs = list(zip(simulated, target, strict=True))
    dot = sum(float((g.double() * t.double()).sum()) for g, t in pairs)
    own = sum(float(g.double().square().sum()) for g, _ in pairs)
    square = sum(float((g.double() - t.double()).square().sum()) for g, t in pairs)
    if not own > 0:
        return math.sqrt(square), 1.0, math.inf
    whole = sum(float(t.double().square().sum()) for _, t in pairs)
    left = math.sqrt(max(0.0, whole - dot**2 / own)) if math.isfinite(own) else math.inf
    return math.sqrt(square), left, dot / own


def truth_floor(
    reading: MatchableRelease, problem: MatchingProblem, images: Tensor, labels: Tensor
) -> float:
    """Return the relative residual of the truth itself, with rounding as at ``images``."""
    names = problem.simulation.names
    noise = math.sqrt(problem.released.noise)
    drawn = problem.simulation.nuisances.kept()
    made = []
    for precision in ("float32", "float64"):
        known = reading.knowledge.labels
        twin = problem_of(reading, problem.distance, labels=known, precision=precision)
        assert twin.simulation.names == names
        twin.simulation.nuisances.put(drawn)
        y = labels if not labels.is_floating_point() else labels.to(twin.frame.dtype)
        found = twin.simulate(images.to(twin.frame.dtype), y)
        made.append([g.detach().double() for g in found])
    rounding = math.sqrt(
        sum(float((a - b).square().sum()) for a, b in zip(made[0], made[1], strict=True))
    )
    if reading.step.precision == "float64":
        rounding = max(1e-13, rounding * 2.0**-29)
    return max(noise, rounding, _softness(reading, problem, made[1]))


def _softness(
    reading: MatchableRelease, problem: MatchingProblem, simulated: Sequence[Tensor]
) -> float:
    """Return the distance from a smooth stand-in to what a defence really sends, such as signs."""
    if not any(defence.smoothed for defence in shown(reading.stack)):
        return 0.0
    pairs = zip(simulated, problem.released.values, strict=True)
    return math.sqrt(sum(float((g.abs() - t.double().abs()).square().sum()) for g, t in pairs))


def _sensitivity(
    products: JacobianProducts, problem: MatchingProblem, rng: np.random.Generator, steps: int
) -> tuple[float, float]:
    """Return the effect of a usual change of all pixels, and the spread of singular values."""
    frame = problem.frame
    inputs = frame.count * math.prod(frame.record_shape)
    right = frame.tensor(rng.standard_normal((1, inputs)))
    visible = float(products.times(frame.spread * right).norm())
    values = _singular_values(products, right / right.norm(), steps)
    if not values[0] > 0 or not math.isfinite(values[0]):
        return visible, math.inf
    return visible, float(values[0] / max(values[-1], 1e-300))


def _singular_values(products: JacobianProducts, right: Tensor, steps: int) -> np.ndarray:
    """Return the values of a few Golub–Kahan steps from ``right`` (1, inputs), descending."""
    rights, lefts, diagonal, upper = [right], list[Tensor](), list[float](), list[float]()
    left = products.times(right)
    for _ in range(steps):
        for other in lefts:
            left = left - (left * other).sum() * other
        size = float(left.norm())
        diagonal.append(size)
        if not (math.isfinite(size) and size > 0):
            break
        lefts.append(left / size)
        following = products.transposed_times(lefts[-1])
        for other in rights:
            following = following - (following * other).sum() * other
        size = float(following.norm())
        if not (math.isfinite(size) and size > 0):
            break
        upper.append(size)
        rights.append(following / size)
        left = products.times(rights[-1]) - size * lefts[-1]
    matrix = np.nan_to_num(np.diag(diagonal) + np.diag(upper[: len(diagonal) - 1], 1))
    return np.asarray(np.linalg.svd(matrix, compute_uv=False))


def _contradiction(
    reading: MatchableRelease,
    problem: MatchingProblem,
    run: Descent,
    residual: float,
    turned: float,
    scale: float,
) -> str | None:
    """Return an assumption that the release contradicts, or None."""
    unseen = _unseen_class(reading)
    if unseen is not None:
        return f"class {unseen} is in the batch by its bias gradient, but not among the labels"
    mode, assumed = normalisation_mode(reading), reading.step.batch_norm
    if mode is not None and mode.batch_norm != assumed:
        return (
            f"batch normalisation was assumed in {assumed} mode, but the gradient indicates "
            f"{mode.batch_norm} mode: its part along the filters is {mode.radial:.2g} of that of "
            "unrelated directions"
        )
    # The cosine ignores the norm: the factor must explain most of the residual.
    if turned < min(0.2, 0.4 * residual) and not 0.8 < scale < 1.25:
        return (
            f"the simulated release fits after multiplying it by {scale:.3g}: the batch size, the "
            "learning rate, the range of the inputs or a clipping of the release is not as assumed"
        )
    # Running statistics are those of other batches: only the batch's own can be contradicted.
    if problem.statistics and reading.knowledge.batch_norm is not None:
        problem.simulate(run.images, run.labels)
        seen = problem.simulation.watch.statistics[: len(problem.statistics)]
        off = float(batch_norm_distance(seen, problem.statistics).detach())
        if turned < 0.2 and off > 1.0:
            return "the batch-norm statistics are not those of a batch with this release"
    return None


def _unseen_class(reading: MatchableRelease) -> str | None:
    """Return a class whose scores should have risen although no record has it, or None."""
    classes, name = reading.step.classes, list(reading.step.network.parameter_shapes())[-1]
    labels = reading.knowledge.labels
    if classes is None or labels is None or name not in reading.arrays:
        return None
    bias = reading.arrays[name] * (-1.0 if hasattr(reading.mechanism, "optimiser") else 1.0)
    if (
        bias.shape != (len(classes),)
        or reading.stack.deviations(reading.arrays, reading.total)[name]
    ):
        return None
    fixed = reading.knowledge.fixed_set
    known = {*np.asarray(labels).tolist(), *([] if fixed is None else fixed.labels.tolist())}
    for index in np.argsort(bias):
        if bias[index] < -0.02 * float(np.abs(bias).max()) and classes[index] not in known:
            return str(classes[index])
    return None


def _falling(history: Sequence[float]) -> bool:
    """Whether the last tenth of a run still reduced the loss by 2%."""
    last = max(1, len(history) // 10)
    if len(history) <= last:
        return True
    return min(history[-last:]) < 0.98 * min(history[:-last])


WIDE = (-3.0, 3.0)
"""The range of normalised inputs, (x − mean) / deviation."""
STEPS = 150
"""Fewer steps do not distinguish the ranges."""
BETTER_RANGE = 0.7


def normalised_inputs(
    reading: MatchableRelease, run: Descent, labels: Tensor, rng: np.random.Generator
) -> str | None:
    """Return a message if inputs of another range fit the release better than the known one.

    Runs two short searches over pixels from one random stream, one within the known range and one
    within that of normalised inputs. If the first range is right, the second fits much worse. This
    is tested only if the run is long enough to make it a small part, and if the scale of the
    release does not fit either.
    """
    known = reading.knowledge.value_range
    image = len(reading.knowledge.record_shape) > 1
    if known is None or not image or run.evaluations < 2 * STEPS or labels.is_floating_point():
        return None
    if known[0] <= WIDE[0] and known[1] >= WIDE[1]:
        return None
    problem = problem_of(reading, Cosine(), labels=None, precision="float32")
    seed = int(rng.integers(2**31))
    own, wide = (_searched(problem, labels, box, seed) for box in (known, WIDE))
    if not wide.distance < BETTER_RANGE * own.distance:
        return None
    low, high = np.quantile(wide.images.cpu().numpy(), [0.01, 0.99])
    return (
        f"inputs between {low:.2g} and {high:.2g} fit the release better than within "
        f"[{known[0]:g}, {known[1]:g}] (distance {wide.distance:.2g} against {own.distance:.2g}): "
        "they were probably normalised, (x − mean) / deviation"
    )


def _searched(
    problem: MatchingProblem, labels: Tensor, box: tuple[float, float], seed: int
) -> Descent:
    frame = replace(problem.frame, box=box)
    posed = replace(problem, frame=frame, labels=labels, total_variation=1e-2, attributes=None)
    budget, rng = StepBudget(steps=STEPS), np.random.default_rng(seed)
    return match(posed, Pixels(), SignedAdam(), budget, rng, continuation=Continuation()).best
