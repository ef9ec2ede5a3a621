"""Whether the release contradicts the assumptions about the training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exhume.attacks.linear import closed_forms
from exhume.attacks.linear.read_release import Reading
from exhume.protocol.arrays import Array
from exhume.protocol.knowledge import Knowledge
from exhume.training.families import Family

_MARGIN = 30.0


def lost_scales(scaler: Mapping[str, Array]) -> str | None:
    """Return why no record can be scaled by a released scaler, or None.

    >>> lost_scales({"scaler.scale": np.array([0.0, 2.0])})
    '1 of 2 released scales is not above 0, for example rounded to 0: no record can be scaled'
    """
    if not scaler:
        return None
    scales = scaler["scaler.scale"]
    lost = int(np.sum(~(scales > 0.0)))
    if lost == 0:
        return None
    verb = "is" if lost == 1 else "are"
    return (
        f"{lost} of {scales.size} released scales {verb} not above 0, for example rounded to 0: "
        "no record can be scaled"
    )


def contradiction(reading: Reading, knowledge: Knowledge) -> str | None:
    """Return a contradiction that no known noise explains, or None."""
    if reading.model.intercept:
        size = float(np.linalg.norm(reading.gradient[0]))
        if size > _MARGIN * reading.coordinate_deviation:
            return _label(reading, knowledge) or _attributes(reading, knowledge)
    return None


def _label(reading: Reading, knowledge: Knowledge) -> str | None:
    """Return a message if the response is no class or the gradient has rank two, else None."""
    solution = closed_forms.with_intercept(reading.gradient)
    noise = reading.coordinate_deviation
    if reading.model.family is Family.MULTINOMIAL:
        row = np.concatenate([[1.0], solution.x])
        left = reading.gradient - np.outer(row, solution.c)
        misfit = float(np.sqrt(np.mean(left**2)))
        allowed = _MARGIN * noise + 1e-7 * float(np.sqrt(np.mean(reading.gradient**2)))
        if misfit > allowed:
            return _premise(f"one record cannot explain the gradient (misfit {misfit:.1e})")
        return None
    if reading.model.family is not Family.LOGISTIC or reading.model.class_weights is not None:
        return None
    c = float(solution.c[0])
    score = np.array([reading.theta[0, 0] + reading.theta[1:, 0] @ solution.x])
    response = float(reading.model.family.mean(score)[0]) + c / knowledge.target_weight
    lever = float(np.hypot(np.linalg.norm(reading.theta[1:]), score[0] - reading.theta[0, 0]))
    spread = noise * (lever * float(reading.model.family.slope(score)[0]) / abs(c) + 1.0)
    if abs(response - float(c > 0)) > _MARGIN * spread + 1e-6:
        return _premise(f"the recovered response is {response:.4g}, neither 0 nor 1")
    return None


def _attributes(reading: Reading, knowledge: Knowledge) -> str | None:
    """Return a message if the given attributes contradict those from the gradient alone."""
    known = knowledge.known_attributes
    if known is None or reading.noisy_parameters:
        return None
    mask = known.mask.reshape(-1)
    solution = closed_forms.with_intercept(reading.gradient)
    x = solution.x
    if reading.scaler:
        x = x * reading.scaler["scaler.scale"] + reading.scaler["scaler.mean"]
    gap = np.abs(x - known.values.reshape(-1))
    noise = reading.coordinate_deviation / float(np.linalg.norm(solution.c))
    allowed = _MARGIN * noise * (1.0 + np.abs(solution.x)) + 1e-6 * (1.0 + np.abs(x))
    wrong = np.flatnonzero(mask & (gap > allowed))
    if len(wrong) == 0:
        return None
    j = int(wrong[0])
    return (
        f"attribute {j} is given as {known.values.reshape(-1)[j]:.6g}, but the release says "
        f"{x[j]:.6g} ({len(wrong)} of {int(mask.sum())} given attributes disagree)"
    )


def _premise(what: str) -> str:
    return (
        f"{what}: a wrong fixed set, penalty, weight or scaler, or a solver that stopped far from "
        "the optimum"
    )
