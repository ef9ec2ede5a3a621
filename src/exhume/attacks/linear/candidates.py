"""From a reading to ranked candidates: the equations, and the order of solutions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from exhume.attacks.linear import closed_forms, gradient_noise
from exhume.attacks.linear.checks import contradiction, lost_scales
from exhume.attacks.linear.labels import (
    class_response,
    frequency,
    known_response,
    label_weight,
    responses,
    snapped,
)
from exhume.attacks.linear.parameter_noise import Hypothesis, descend, displaced, explain
from exhume.attacks.linear.read_release import Reading, label_of
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import nothing
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.training.families import Family

_KEEP = 4


@dataclass(frozen=True, eq=False)
class LinearCandidate:
    """A possible target in the model's own units.

    ``x`` (d,), the ``response`` (outputs,), the ``deviation`` of each entry of x, the ``cost``
    (negative log of the evidence), and ``how`` it was found.
    """

    x: FloatArray
    response: FloatArray
    deviation: FloatArray
    cost: float
    how: str

    @property
    def error(self) -> float:
        """The root mean square of the deviations; it may overflow to infinity."""
        with np.errstate(over="ignore"):
            return float(np.sqrt(np.mean(self.deviation**2)))


def answer(reading: Reading, knowledge: Knowledge) -> Reconstruction:
    """Solve, refine, rank and check."""
    if not (np.isfinite(reading.gradient).all() and np.isfinite(reading.coordinate_deviation)):
        message = lost_scales(reading.scaler) or (
            "the fixed set's gradient overflows at the released parameters: no training ends there"
        )
        return nothing(knowledge, Status.WRONG_ASSUMPTION, message)
    found = sorted(_from_gradient(reading, knowledge), key=lambda candidate: candidate.cost)
    leaked = _from_scaler(reading, knowledge)
    if leaked is not None and (not found or leaked.error < found[0].error):
        found = [leaked]
    if not found:
        message = "the target's own gradient is below the noise: the model fits it perfectly"
        return nothing(knowledge, Status.NO_INFORMATION, message)
    return _report(reading, knowledge, _averaged(reading, found[:_KEEP]))


def _averaged(reading: Reading, found: list[LinearCandidate]) -> list[LinearCandidate]:
    """Put the posterior mean first if no mode is certain: its expected error is the smallest."""
    spread = np.sqrt(reading.prior.variance) if len(found) > 1 else 0.0
    if found[0].how != "posterior" or found[0].error <= 0.1 * spread or len(found) == 1:
        return found
    share = _shares(found)
    mean = share @ np.stack([c.x for c in found])
    variance = sum(
        w * (c.deviation**2 + (c.x - mean) ** 2) for w, c in zip(share, found, strict=True)
    )
    first = replace(found[0], x=mean, deviation=np.sqrt(variance), how="posterior mean")
    return [first, *found][:_KEEP]


def _shares(found: list[LinearCandidate]) -> FloatArray:
    costs = np.array([c.cost for c in found])
    share = np.exp(costs.min() - costs)
    return np.asarray(share / share.sum())


def _from_scaler(reading: Reading, knowledge: Knowledge) -> LinearCandidate | None:
    from exhume.attacks.linear.scaler import miscounted

    assert knowledge.fixed_set is not None
    if not reading.scaler or miscounted(reading.scaler, knowledge.fixed_set) is not None:
        return None
    blur = float(np.median(reading.theta_deviation)) if reading.noisy_parameters else 0.0
    leak = reading.pool.moments().leak(reading.scaler, blur=blur)
    scale = reading.scaler["scaler.scale"]
    x, deviation = (leak.x - reading.scaler["scaler.mean"]) / scale, leak.deviation / scale
    row = np.concatenate([[1.0], x]) if reading.model.intercept else x
    c = reading.gradient.T @ row / max(float(row @ row), 1e-300)
    response = reading.model.family.mean(row @ reading.theta) + c / knowledge.target_weight
    return LinearCandidate(x, snapped(reading, response), deviation, 0.0, "scaler's mean")


def _from_gradient(reading: Reading, knowledge: Knowledge) -> list[LinearCandidate]:
    visible = float(np.linalg.norm(reading.gradient)) > 10.0 * reading.coordinate_deviation
    blurred = reading.noisy_parameters or knowledge.known_attributes is not None
    if not visible and not blurred:
        return []
    closed = _closed_forms(reading, knowledge) if visible else []
    closed = [c for c in closed if np.isfinite(c.x).all() and np.isfinite(c.deviation).all()]
    unfinished = reading.model.family is Family.MULTINOMIAL and reading.model.solver.name != "exact"
    if (blurred or unfinished) and reading.gradient.size <= 4000:
        return _most_probable(reading, knowledge, closed)
    return closed


def _closed_forms(reading: Reading, knowledge: Knowledge) -> list[LinearCandidate]:
    if reading.model.intercept:
        if not reading.gradient[0].any():
            return []
        solution = closed_forms.with_intercept(reading.gradient)
        return [_with_intercept(reading, knowledge, solution)]
    if reading.model.family is Family.MULTINOMIAL:
        return _directions(reading, knowledge)
    if knowledge.labels is None and not reading.model.family.classifies:
        return _scaled_to_attributes(reading, knowledge)
    return [
        _candidate(reading, knowledge, solution, response)
        for response in responses(reading, knowledge)
        for solution in closed_forms.without_intercept(
            reading.model.family,
            reading.theta,
            reading.gradient,
            float(response[0]),
            label_weight(reading, knowledge, response),
        )
    ]


def _with_intercept(
    reading: Reading, knowledge: Knowledge, solution: closed_forms.ClosedForm
) -> LinearCandidate:
    """Recover the label, snap it to a class, and refine x with the label known."""
    family = reading.model.family
    known = known_response(reading, knowledge)
    score = np.concatenate([[1.0], solution.x]) @ reading.theta
    if known is None and not family.classifies:
        response = family.mean(score) + solution.c / knowledge.target_weight
        deviation = np.sqrt(1.0 + solution.x**2) * reading.coordinate_deviation
        deviation = deviation / np.linalg.norm(solution.c)
        return LinearCandidate(solution.x, response, deviation, 0.0, "closed form")
    response = known if known is not None else class_response(reading, solution.c)
    if family is not Family.MULTINOMIAL:
        weight = label_weight(reading, knowledge, response)
        solution = closed_forms.refined_residual(
            family, reading.theta, reading.gradient, float(response[0]), weight
        )
    return _candidate(reading, knowledge, solution, response)


def _candidate(
    reading: Reading,
    knowledge: Knowledge,
    solution: closed_forms.ClosedForm,
    response: FloatArray,
) -> LinearCandidate:
    """A solution, its deviation by error propagation, its cost by the fixed set's spread."""
    size = max(float(np.linalg.norm(solution.c)), 1e-300)
    deviation = np.full(len(solution.x), reading.coordinate_deviation / size)
    cost = 0.0
    if not reading.model.intercept:
        cost = _implausibility(reading, knowledge, solution, response)
        cost += _out_of_range(reading, knowledge, solution.x)
        cost += _at_odds(reading, knowledge, solution.x)
    return LinearCandidate(solution.x, response, deviation, cost, "closed form")


def _implausibility(
    reading: Reading,
    knowledge: Knowledge,
    solution: closed_forms.ClosedForm,
    response: FloatArray,
) -> float:
    """Minus the log of a root's share: the prior's density there over the Jacobian's determinant.

    For one output, the map x → x·c(x) has the determinant c^(d−1)·(c − w·μ′·⟨x,θ⟩).
    """
    prior = reading.prior_of(response)
    away = solution.x - prior.mean
    cost = 0.5 * float(away @ prior.precision @ away) - float(np.log(frequency(reading, response)))
    if reading.model.family is Family.MULTINOMIAL:
        return cost
    c, score = float(solution.c[0]), solution.x @ reading.theta
    weight = label_weight(reading, knowledge, response)
    bend = c - weight * float(reading.model.family.slope(score)[0] * score[0])
    return cost + (len(away) - 1) * float(np.log(abs(c))) + float(np.log(max(abs(bend), 1e-300)))


def _directions(reading: Reading, knowledge: Knowledge) -> list[LinearCandidate]:
    """Several outputs, no intercept: only the right label explains the gradient's length."""
    tries = []
    for response in responses(reading, knowledge):
        solution, misfit = closed_forms.without_intercept_multinomial(
            reading.theta, reading.gradient, response, label_weight(reading, knowledge, response)
        )
        tries.append((misfit, _candidate(reading, knowledge, solution, response)))
    best = min(misfit for misfit, _ in tries)
    return [c for misfit, c in tries if misfit <= max(10.0 * best, 1e-9)]


def _scaled_to_attributes(reading: Reading, knowledge: Knowledge) -> list[LinearCandidate]:
    """No intercept and no label, but attributes: they determine the length, and so the label."""
    known = knowledge.known_attributes
    if known is None:
        return []
    mask = known.mask.reshape(-1)
    values = to_model_units(reading, known.values.reshape(-1))
    seen = reading.gradient[mask, 0]
    length = float(seen @ values[mask]) / max(float(seen @ seen), 1e-300)
    x = length * reading.gradient[:, 0]
    if length == 0.0:
        return []
    c = np.array([1.0 / length])
    response = reading.model.family.mean(x @ reading.theta) + c / knowledge.target_weight
    return [_candidate(reading, knowledge, closed_forms.ClosedForm(x, c), response)]


def _most_probable(
    reading: Reading, knowledge: Knowledge, closed: list[LinearCandidate]
) -> list[LinearCandidate]:
    """For each label, maximise the posterior from the closed form and from the prior's mean."""
    fixed = np.zeros(len(reading.prior.mean), dtype=bool)
    values = reading.prior.mean.copy()
    if knowledge.known_attributes is not None:
        fixed = knowledge.known_attributes.mask.reshape(-1)
        given = to_model_units(reading, knowledge.known_attributes.values.reshape(-1))
        values = np.where(fixed, given, values)
    if reading.noisy_parameters and reading.model.outputs == 1:
        return _displacements(reading, knowledge, fixed, values, closed)
    free_response = not reading.model.family.classifies and knowledge.labels is None
    precision, found = reading.precision(), []
    for response in responses(reading, knowledge):
        prior = reading.prior_of(response)
        noisy = gradient_noise.Noisy(
            reading.model.family,
            reading.theta,
            reading.gradient,
            precision,
            label_weight(reading, knowledge, response),
            prior,
            fixed,
            reading.model.intercept,
        )
        starts = [(np.where(fixed, values, prior.mean), response)]
        starts += [
            (np.where(fixed, values, _bounded(reading, c.x)), c.response)
            for c in closed
            if free_response or np.array_equal(c.response, response)
        ]
        for start, guess in starts:
            fit = gradient_noise.fit(noisy, start, guess, free_response=free_response)
            cost = fit.cost - np.log(frequency(reading, response))
            cost += _out_of_range(reading, knowledge, fit.x)
            found.append(
                LinearCandidate(fit.x, fit.response, np.sqrt(fit.variance), cost, "posterior")
            )
    return _distinct(found)


def _displacements(
    reading: Reading,
    knowledge: Knowledge,
    fixed: Array,
    values: FloatArray,
    closed: list[LinearCandidate],
) -> list[LinearCandidate]:
    """One output and noisy parameters: for each label, explain how the target moved them."""
    shared = displaced(reading)
    if shared is None:
        return closed
    # Without an intercept, two lengths may explain the release. If both are sharp, keep both.
    sharp = all(c.error <= 0.1 * np.sqrt(reading.prior.variance) for c in closed)
    apart = sharp and not reading.model.intercept
    free_response = not reading.model.family.classifies and knowledge.labels is None
    found = []
    for response in responses(reading, knowledge):
        hypothesis = Hypothesis(
            reading.prior_of(response),
            None if free_response else float(response[0]),
            label_weight(reading, knowledge, response),
            fixed,
            values,
        )
        guesses = [
            (
                _bounded(reading, c.x) if reading.model.family.classifies and not sharp else c.x,
                float(c.response[0]),
            )
            for c in closed
            if free_response or np.array_equal(c.response, response)
        ]
        fits = [descend(shared, hypothesis, *guess) for guess in guesses] if apart else []
        for fit in fits or [explain(shared, hypothesis, guesses)]:
            cost = fit.cost - np.log(frequency(reading, response))
            cost += _out_of_range(reading, knowledge, fit.x)
            found.append(
                LinearCandidate(fit.x, fit.response, np.sqrt(fit.variance), cost, "posterior")
            )
    return _distinct(found)


def _distinct(found: list[LinearCandidate]) -> list[LinearCandidate]:
    """If several starts reached the same point, keep one of these candidates."""
    kept: list[LinearCandidate] = []
    for candidate in sorted(found, key=lambda c: c.cost):
        apart = [np.linalg.norm(candidate.x - other.x) for other in kept]
        tolerance = 1e-3 * (
            np.linalg.norm(candidate.deviation) + 1e-9 * np.linalg.norm(candidate.x)
        )
        if all(distance > tolerance for distance in apart):
            kept.append(candidate)
    return kept


def _bounded(reading: Reading, x: FloatArray) -> FloatArray:
    """A start far outside the fixed set's own range does not help."""
    rows = reading.problem.design[:, int(reading.model.intercept) :]
    return np.clip(x, rows.min(axis=0), rows.max(axis=0))


def _out_of_range(reading: Reading, knowledge: Knowledge, x: FloatArray) -> float:
    if knowledge.value_range is None:
        return 0.0
    low, high = knowledge.value_range
    raw = to_record_units(reading, x)
    excess = np.maximum(low - raw, raw - high)
    return 50.0 * float(np.sqrt(np.mean(np.maximum(excess, 0.0) ** 2))) / (high - low)


def _at_odds(reading: Reading, knowledge: Knowledge, x: FloatArray) -> float:
    known = knowledge.known_attributes
    if known is None:
        return 0.0
    mask = known.mask.reshape(-1)
    gap = (x - to_model_units(reading, known.values.reshape(-1)))[mask]
    return 1e3 * float(np.sqrt(np.mean(gap**2) / max(reading.prior.variance, 1e-300)))


def to_record_units(reading: Reading, x: FloatArray) -> FloatArray:
    """Undo the scaler, if there is one."""
    if not reading.scaler:
        return x
    return np.asarray(x * reading.scaler["scaler.scale"] + reading.scaler["scaler.mean"])


def to_model_units(reading: Reading, x: FloatArray) -> FloatArray:
    """Apply the scaler, if there is one."""
    if not reading.scaler:
        return x
    return np.asarray((x - reading.scaler["scaler.mean"]) / reading.scaler["scaler.scale"])


def _report(reading: Reading, knowledge: Knowledge, found: list[LinearCandidate]) -> Reconstruction:
    scale = reading.scaler["scaler.scale"] if reading.scaler else 1.0
    # If an estimate overflows, it is infinite.
    with np.errstate(over="ignore"):
        errors = np.array([np.sqrt(np.mean((c.deviation * scale) ** 2)) for c in found])
    spread = float(np.sqrt(np.mean(scale**2 * np.ones(len(found[0].x)) * reading.prior.variance)))
    confidence = _shares(found)
    contradicted = contradiction(reading, knowledge)
    status = _status(float(errors[0]), spread)
    message = f"{found[0].how}, own error estimate {errors[0]:.2g} (records spread by {spread:.2g})"
    if contradicted is not None:
        status, message = Status.WRONG_ASSUMPTION, contradicted
    elif len(found) > 1 and confidence[1] > 0.05:
        message += f"; {len(found)} candidates explain the release, the second nearly as well"
    samples = np.stack([to_record_units(reading, c.x) for c in found])
    return Reconstruction(
        samples.reshape(-1, *knowledge.record_shape),
        status,
        labels=np.array([label_of(reading.model, c.response) for c in found]),
        confidence=confidence,
        error_estimate=errors,
        message=message,
        stats={
            "gradient_norm": float(np.linalg.norm(reading.gradient)),
            "gradient_deviation": reading.coordinate_deviation,
            "how": found[0].how,
        },
    )


def _status(error: float, spread: float) -> Status:
    if error <= 0.1 * spread:
        return Status.CONVERGED
    return Status.APPROXIMATE if error <= 0.95 * spread else Status.NO_INFORMATION
