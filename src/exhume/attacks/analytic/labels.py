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
from exhume.training.gradient import GradientStep, gradient_step, public_parameters
from exhume.training.model import Label

_NOISE_RECORDS = 256


@dataclass(frozen=True, eq=False)
class Labels:
    """The multiset of a batch's labels.

    ``labels`` (B,) in the order of the classes; ``counts`` (classes,) how often each occurs;
    ``estimates`` (classes,) the same before rounding; ``confidence`` in [0, 1] falls to 0 where an
    estimate lies half-way between two counts.
    """

    labels: Array
    counts: Array
    estimates: FloatArray
    confidence: float


def infer_labels(release: Release, knowledge: Knowledge, *, rng: np.random.Generator) -> Labels:
    """Return the labels of the batch; known members (the fixed set) are counted among them.

    The bias gradient of class c is the batch's mean of p_c less the share of class c (Zhao et al.
    2020 for one record; Geng et al. 2021, Wainakh et al. 2022 for batches). The means of p are
    those of the adversary's own records at the public parameters, a class at a time where they
    have labels (a trained model answers each class differently), else of noise in the value range.
    """
    step = gradient_step(knowledge.training)
    if step is None or step.classes is None:
        raise InputError("labels are read off the gradient of a classifier, and none is known")
    gradients = single_step(release, knowledge)
    if isinstance(gradients, str):
        raise InputError(gradients)
    assert isinstance(release, Gradient | Update)
    bias = _last_bias(step, gradients)
    if release.batch_size == 1:
        return _labels(step.classes, np.maximum(-np.sign(bias), 0.0), 1, _lone(bias))
    answers = mean_answers(step, knowledge, rng)
    estimates = _shares(bias, answers) * release.batch_size
    return _labels(step.classes, estimates, release.batch_size, None)


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


def mean_answers(step: GradientStep, knowledge: Knowledge, rng: np.random.Generator) -> FloatArray:
    """Return mean probabilities (classes, classes), a row for each label a record may have."""
    from scipy.special import softmax

    parameters = public_parameters(knowledge)
    if parameters is None or step.classes is None:
        raise InputError("the parameters at which the gradient was taken are not known")
    x, y = _own_records(knowledge, rng)
    import torch

    objective = step.objective("float64")
    with torch.no_grad():
        scores = objective.scores(objective.flat(parameters), objective.tensor(x))
    chances = softmax(scores.cpu().numpy(), axis=1)
    rows = np.tile(chances.mean(axis=0), (len(step.classes), 1))
    for c, label in enumerate(step.classes):
        own = np.zeros(0, dtype=bool) if y is None else np.asarray(y == label)
        if own.sum() >= 3:
            rows[c] = chances[own].mean(axis=0)
    return rows


def _own_records(knowledge: Knowledge, rng: np.random.Generator) -> tuple[FloatArray, Array | None]:
    pool = knowledge.shadow_targets
    if pool is not None and len(pool):
        return np.asarray(pool.x, dtype=np.float64), pool.y
    low, high = knowledge.value_range or (-1.0, 1.0)
    return rng.uniform(low, high, (_NOISE_RECORDS, *knowledge.record_shape)), None


def _shares(bias: FloatArray, answers: FloatArray) -> FloatArray:
    """Solve bias = Σ_y share_y (answers_y − e_y) for shares ≥ 0 that add up to 1."""
    from scipy.optimize import nnls

    system = (answers - np.eye(len(bias))).T
    # The rows of the system add up to 0: the sum of the shares takes the lost equation's place.
    rows = np.concatenate([system, np.ones((1, len(bias)))])
    return np.asarray(nnls(rows, np.append(bias, 1.0))[0])


def _labels(
    classes: tuple[Label, ...], estimates: FloatArray, total: int, confidence: float | None
) -> Labels:
    counts = np.floor(estimates + 1e-9).astype(np.int64)
    rest = estimates - counts
    order = np.argsort(-rest, kind="stable")
    missing = total - int(counts.sum())
    for i in range(abs(missing)):
        which = order[i % len(order)] if missing > 0 else _most(counts, estimates)
        counts[which] += 1 if missing > 0 else -1
    if confidence is None:
        off = float(np.abs(estimates - counts).max())
        confidence = float(np.clip(1.0 - 2.0 * off, 0.0, 1.0))
    labels = np.repeat(np.asarray(classes), counts)
    return Labels(labels, counts, estimates, confidence)


def _most(counts: Array, estimates: FloatArray) -> int:
    """Return the class that was rounded up the most, among those with any record."""
    excess = np.where(counts > 0, counts - estimates, -np.inf)
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
