"""Which labels a batch has, read off the last layer's gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.analytic.observed import Observed, single_step
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.release import Gradient, Release, Update
from exhume.training.gradient import GradientStep, gradient_step
from exhume.training.model import Label


@dataclass(frozen=True, eq=False)
class Labels:
    """The multiset of a batch's labels.

    ``labels`` (B,) in the order of the classes; ``counts`` (classes,) how often each occurs;
    ``estimates`` (classes,) the same before rounding; ``confidence`` in [0, 1] falls to 0 where an
    estimate lies half-way between two counts, or is known too badly to tell them apart.
    """

    labels: Array
    counts: Array
    estimates: FloatArray
    confidence: float


def infer_labels(release: Release, knowledge: Knowledge, *, rng: np.random.Generator) -> Labels:
    """Return the labels of the batch; known members (the fixed set) are counted among them.

    One record: the only class with a negative bias gradient (Zhao et al. 2020). A batch: the last
    layer's gradient is a mean over records of (p − e_y)[h, 1], with p the answer and h what enters
    the layer, and counts are a sum over records of e_y. So a linear map fitted on the adversary's
    own records, one at a time, reads the counts of any batch off its gradient (Geng et al. 2021 and
    Wainakh et al. 2022 estimate p and h by their means). Own records without labels are given
    random ones; where there are none at all, noise in the value range takes their place. Behind a
    rectifier, the gradient's signs tell which classes there are at all (``present_classes``).
    """
    step = gradient_step(knowledge.training)
    if step is None or step.classes is None:
        raise InputError("labels are read off the gradient of a classifier, and none is known")
    gradients = single_step(release, knowledge)
    if isinstance(gradients, str):
        raise InputError(gradients)
    assert isinstance(release, Gradient | Update)
    bias = _last_bias(step, gradients)
    total = release.batch_size
    if total == 1:
        estimates: FloatArray = np.zeros(len(bias))
        estimates[np.argmin(bias)] = 1.0
        return _labels(step.classes, estimates, 1, _lone(bias))
    from exhume.attacks.analytic.counts import fitted_counts
    from exhume.attacks.analytic.presence import present_classes

    estimates, deviation = fitted_counts(step, gradients, knowledge, total, rng)
    present = present_classes(step, gradients, knowledge)
    if present is None or not 0 < present.sum() <= total:
        present = None
        certainty = _certainty(estimates, deviation)
    elif present.sum() == total:
        return _labels(step.classes, present.astype(np.float64), total, 1.0, present)
    else:
        estimates = np.where(present, np.maximum(estimates, 1.0), 0.0)
        certainty = _certainty(estimates[present], deviation[present])
    own = knowledge.shadow_targets
    if own is None or own.y is None:
        # Made-up labels leave the fit's own error too small.
        certainty *= 0.5
    return _labels(step.classes, estimates, total, certainty, present)


def single_label(observed: Observed) -> Label | None:
    """Return the label of the only unknown record: the class whose score should have risen."""
    classes = observed.step.classes
    if classes is None:
        return None
    try:
        bias = _last_bias(observed.step, observed.gradients)
    except InputError:
        return None
    return classes[int(np.argmin(bias))]


def _labels(
    classes: tuple[Label, ...],
    estimates: FloatArray,
    total: int,
    confidence: float,
    present: Array | None = None,
) -> Labels:
    """Round by the largest remainders, so that the counts add up to the batch.

    ``present`` (classes,): which classes there are, and no others; None where that is not known.
    """
    # A gradient of an absurd size asks for more records of a class than there are of all.
    estimates = np.clip(np.nan_to_num(estimates), -float(total), float(total))
    least = np.zeros(len(estimates)) if present is None else present.astype(np.float64)
    # Absent classes come last where counts have to be rounded up.
    wanted = estimates if present is None else np.where(present, estimates, -float(total))
    counts = np.maximum(np.floor(wanted), 0.0).astype(np.int64)
    for _ in range(abs(total - int(counts.sum()))):
        if counts.sum() < total:
            counts[np.argmax(wanted - counts)] += 1
        else:
            counts[_most(counts, estimates, least)] -= 1
    return Labels(np.repeat(np.asarray(classes), counts), counts, estimates, confidence)


def _certainty(estimates: FloatArray, deviation: FloatArray) -> float:
    """Return the chance that every estimate lies nearest to its own count."""
    near = np.round(estimates)[:, None] + np.arange(-3, 4)
    size = np.maximum(deviation, 1e-6)[:, None]
    logs = -0.5 * ((estimates[:, None] - near) / size) ** 2
    chance = np.exp(logs - logs.max(axis=1, keepdims=True))
    chance[near < 0] = 0.0
    best = chance.max(axis=1) / np.maximum(chance.sum(axis=1), 1e-300)
    return float(np.prod(best))


def _most(counts: Array, estimates: FloatArray, least: Array) -> int:
    """Return the class that was rounded up the most, among those with a record to spare."""
    excess = np.where(counts > least, counts - estimates, -np.inf)
    return int(np.argmax(excess))


def _lone(bias: FloatArray) -> float:
    """Return 1 where exactly one class should have risen, as with one record, else 0."""
    return float(np.sum(bias < 0) == 1)


def _last_bias(step: GradientStep, gradients: Mapping[str, Array]) -> FloatArray:
    """Return the gradient of the scores' bias (classes,)."""
    shapes = step.network.parameter_shapes()
    name = list(shapes)[-1]
    if shapes[name] != (step.network.outputs,):
        raise InputError(f"the last parameter {name!r} is no bias of the scores")
    if name not in gradients:
        raise InputError(f"the gradient of the last layer's bias {name!r} was not released")
    if gradients[name].shape != shapes[name]:
        raise InputError(
            f"the gradient of {name!r} has shape {gradients[name].shape}, not {shapes[name]}"
        )
    return np.asarray(gradients[name], dtype=np.float64)
