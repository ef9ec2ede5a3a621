"""The labels of a batch, inferred from the last layer's gradient.

Classes that must occur have negative entries in their row of that gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exhume.attacks.gradients.analytic.read_gradient import FirstLayerGradient, single_step
from exhume.defences import Defence
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.release import Gradient, Release, Update
from exhume.training.gradient import GradientStep, gradient_step
from exhume.training.model import Label


@dataclass(frozen=True, eq=False)
class Labels:
    """The multiset of a batch's labels.

    ``labels`` (B,) are in the order of the classes. ``counts`` (classes,) is the number of each.
    ``estimates`` (classes,) are the counts before rounding. ``confidence`` in [0, 1] falls to 0 if
    an estimate lies half-way between two counts, or is too uncertain to decide between them.
    """

    labels: Array
    counts: Array
    estimates: FloatArray
    confidence: float


def infer_labels(release: Release, knowledge: Knowledge, *, rng: np.random.Generator) -> Labels:
    """Return the labels of the batch, including those of known members (the fixed set).

    For one record, the label is the only class with a negative bias gradient (Zhao et al. 2020).
    For a batch, the last layer's gradient is a mean over records of (p − e_y)[h, 1], where p is the
    prediction and h the layer's input, and the counts are a sum over records of e_y. So a linear
    map fitted on single records of the adversary reads the counts of any batch from its gradient
    (Geng et al. 2021 and Wainakh et al. 2022 estimate p and h by their means). Own records without
    labels get random ones. Without own records, noise in the value range replaces them. After a
    rectifier, the signs of the gradient show which classes occur (``present_classes``).
    """
    step = gradient_step(knowledge.training)
    if step is None or step.classes is None:
        raise InputError("label inference needs the gradient of a classifier, and none is known")
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
    from exhume.attacks.gradients.analytic.label_counts import fitted_counts

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
        # With random labels, the fit underestimates its own error.
        certainty *= 0.5
    return _labels(step.classes, estimates, total, certainty, present)


def single_label(observed: FirstLayerGradient) -> Label | None:
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
    """Round by largest remainders, so that the counts sum to the batch size.

    ``present`` (classes,) is True for exactly the classes that occur; None if that is not known.
    """
    # A gradient of extreme size implies more records of a class than there are in total.
    estimates = np.clip(np.nan_to_num(estimates), -float(total), float(total))
    least = np.zeros(len(estimates)) if present is None else present.astype(np.float64)
    # Absent classes are the last to be rounded up.
    wanted = estimates if present is None else np.where(present, estimates, -float(total))
    counts = np.maximum(np.floor(wanted), 0.0).astype(np.int64)
    for _ in range(abs(total - int(counts.sum()))):
        if counts.sum() < total:
            counts[np.argmax(wanted - counts)] += 1
        else:
            counts[_most(counts, estimates, least)] -= 1
    return Labels(np.repeat(np.asarray(classes), counts), counts, estimates, confidence)


def _certainty(estimates: FloatArray, deviation: FloatArray) -> float:
    """Return the probability that every estimate is closest to its own count."""
    near = np.round(estimates)[:, None] + np.arange(-3, 4)
    size = np.maximum(deviation, 1e-6)[:, None]
    logs = -0.5 * ((estimates[:, None] - near) / size) ** 2
    chance = np.exp(logs - logs.max(axis=1, keepdims=True))
    chance[near < 0] = 0.0
    best = chance.max(axis=1) / np.maximum(chance.sum(axis=1), 1e-300)
    return float(np.prod(best))


def _most(counts: Array, estimates: FloatArray, least: Array) -> int:
    """Return the class that was rounded up most, among those with a count to spare."""
    excess = np.where(counts > least, counts - estimates, -np.inf)
    return int(np.argmax(excess))


def _lone(bias: FloatArray) -> float:
    """Return 1 if exactly one class should have risen, as for one record, else 0."""
    return float(np.sum(bias < 0) == 1)


def _last_bias(step: GradientStep, gradients: Mapping[str, Array]) -> FloatArray:
    """Return the gradient of the scores' bias (classes,)."""
    shapes = step.network.parameter_shapes()
    name = list(shapes)[-1]
    if shapes[name] != (step.network.outputs,):
        raise InputError(f"the last parameter {name!r} is not a bias of the scores")
    if name not in gradients:
        raise InputError(f"the gradient of the last layer's bias {name!r} was not released")
    if gradients[name].shape != shapes[name]:
        raise InputError(
            f"the gradient of {name!r} has shape {gradients[name].shape}, not {shapes[name]}"
        )
    return np.asarray(gradients[name], dtype=np.float64)


_ROUNDING = 1e-5
"""An entry counts as negative below minus this share of the largest one."""


def present_classes(
    step: GradientStep, gradients: Mapping[str, Array], knowledge: Knowledge
) -> Array | None:
    """Return which classes (classes,) have a record in the batch, or None if undecided.

    The row of class k is Σᵢ (pᵢₖ − [yᵢ = k]) hᵢ/n. If the layer's inputs are not negative, h ≥ 0,
    a class without a record has no negative entry (Yin et al. 2021). A class with a negative entry
    is certainly in the batch; one without is assumed to be absent. Noise of a defence breaks this.
    """
    names = list(step.network.parameter_shapes())[-2:]
    if isinstance(knowledge.training, Defence) or any(n not in gradients for n in names):
        return None
    weight, bias = (np.asarray(gradients[n], dtype=np.float64) for n in names)
    if weight.ndim != 2 or len(weight) != step.network.outputs or bias.shape != (len(weight),):
        return None
    if not _nonnegative(step, names[0].removesuffix(".weight")):
        return None
    rows: FloatArray = np.concatenate([weight, bias[:, None]], axis=1)
    # The scale of an entry is that of its column: features differ by orders of magnitude.
    sizes = np.abs(rows).max(axis=0)
    alive = sizes > 1e-6 * sizes.max(initial=0.0)
    if not alive.any():
        return None
    present = (rows[:, alive] < -_ROUNDING * sizes[alive]).any(axis=1)
    return np.asarray(present)


def _nonnegative(step: GradientStep, layer: str) -> bool:
    """Whether the input of ``layer`` can't be negative: it follows a rectifier or a sigmoid.

    Assumed if random records give no negative number and some positive ones.
    """
    import torch
    from torch import nn

    module = step.network.module().train()
    last = module.get_submodule(layer)
    if not isinstance(last, nn.Linear):
        return False
    entered: list[torch.Tensor] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    drawn = np.random.default_rng(0).normal(size=(16, *step.network.record_shape))
    dtype = next(module.parameters()).dtype
    with torch.no_grad():
        module(torch.tensor(drawn, dtype=dtype))
    hook.remove()
    if len(entered) != 1:
        return False
    return bool((entered[0] >= 0).all()) and bool((entered[0] > 0).any())
