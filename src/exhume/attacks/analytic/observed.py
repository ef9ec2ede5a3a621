"""A gradient as an attack reads it: checked against the network, known records taken out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.defences import Defence
from exhume.knowledge import Knowledge
from exhume.release import Gradient, Release, Update
from exhume.training.gradient import (
    Aggregate,
    GradientStep,
    LocalSteps,
    gradient_step,
    public_parameters,
)

if TYPE_CHECKING:
    from exhume.attacks.analytic.factor import Factors
    from exhume.attacks.analytic.layer import InputLayer


@dataclass(frozen=True, eq=False)
class Observed:
    """The gradient of the mean loss of ``count`` records that are not known yet.

    ``gradients`` may lack layers that were not released. ``defended`` says that a defence stands
    between the gradient and what was released, so that it can't be expected to fit exactly.
    ``rounding`` is the deviation that arithmetic brings into an entry of the first layer's weights.
    """

    step: GradientStep
    parameters: Mapping[str, Array]
    gradients: Mapping[str, FloatArray]
    count: int
    layer: InputLayer
    defended: bool
    rounding: float

    @property
    def weight(self) -> FloatArray:
        """The first layer's weight gradient (width, d)."""
        return self.gradients[self.layer.weight]

    @property
    def bias(self) -> FloatArray:
        """The first layer's bias gradient (width,)."""
        return self.gradients[str(self.layer.bias)]

    def factors(self) -> Factors:
        """Return the first layer's gradient as a product."""
        from exhume.attacks.analytic.factor import factorise

        return factorise(self.weight, self.bias, self.count, rounding=self.rounding)


def observe(release: Release, knowledge: Knowledge) -> Observed | str:
    """Return what the first layer's attacks need, or the reason why they don't apply."""
    step = gradient_step(knowledge.training)
    if step is None:
        return "the training is not known to be a gradient step of a network"
    from exhume.attacks.analytic.layer import input_layer

    gradients = single_step(release, knowledge)
    if isinstance(gradients, str):
        return gradients
    layer = input_layer(step.network)
    reason = layer if isinstance(layer, str) else mismatch(step, gradients, layer)
    if reason is not None or isinstance(layer, str):
        return str(reason)
    parameters = public_parameters(knowledge)
    if parameters is None:
        return "the parameters at which the gradient was taken are not known"
    if knowledge.record_shape != step.network.record_shape:
        return (
            f"a record has shape {knowledge.record_shape}, "
            f"the network takes {step.network.record_shape}"
        )
    return _without_known(release, knowledge, step, parameters, gradients, layer)


def single_step(release: Release, knowledge: Knowledge) -> Mapping[str, FloatArray] | str:
    """Return the gradient behind a gradient or a one-step update, or the reason against it."""
    if isinstance(release, Gradient):
        return {n: np.asarray(a, dtype=np.float64) for n, a in release.gradients.items()}
    if not isinstance(release, Update):
        return f"{type(release).__name__} hold no gradient: a gradient or an update is needed"
    if release.steps != 1:
        return f"the update is of {release.steps} steps, and only a single one is a gradient"
    local = _local_steps(knowledge)
    if local is None:
        return "the optimiser of the local step is not known"
    parameters = public_parameters(knowledge) or {}
    rate, decay = local.optimiser.learning_rate, local.optimiser.weight_decay
    found = {n: -np.asarray(a, dtype=np.float64) / rate for n, a in release.changes.items()}
    if decay:
        missing = [n for n in found if n not in parameters]
        if missing:
            return f"weight decay can't be taken out: parameter {missing[0]!r} is not known"
        return {n: a - decay * np.asarray(parameters[n]) for n, a in found.items()}
    return found


def mismatch(step: GradientStep, gradients: Mapping[str, Array], layer: InputLayer) -> str | None:
    """Say in what way named gradients aren't the network's, or return None."""
    shapes = step.network.parameter_shapes()
    for name, values in gradients.items():
        if name not in shapes:
            return f"the network has no parameter {name!r}; it has {list(shapes)}"
        if values.shape == shapes[name]:
            continue
        what = f"the gradient of {name!r} has shape {values.shape}, the network's {shapes[name]}"
        turned = values.shape == shapes[name][::-1]
        return f"{what}: it is transposed" if turned else what
    if layer.weight not in gradients:
        return f"the first layer's gradient {layer.weight!r} was not released"
    if layer.bias is None:
        return "the first layer has no bias, whose gradient would give the records their scale"
    if layer.bias not in gradients:
        return f"the gradient of {layer.bias!r} was not released: it gives records their scale"
    return None


def _without_known(
    release: Release,
    knowledge: Knowledge,
    step: GradientStep,
    parameters: Mapping[str, Array],
    gradients: Mapping[str, FloatArray],
    layer: InputLayer,
) -> Observed | str:
    """Take the fixed set's own gradients out of the sum."""
    assert isinstance(release, Gradient | Update)
    total, fixed = release.batch_size, knowledge.fixed_set
    known = 0 if fixed is None else len(fixed)
    if known >= total:
        return (
            f"the fixed set has {known} records and the batch only {total}: records that are like "
            "the batch's, but not in it, are shadow targets"
        )
    if fixed is not None and known:
        objective = step.objective("float64")
        reason = objective.mismatch(parameters)
        if reason is not None:
            return reason
        rng = np.random.default_rng(0)
        own = objective.named(step.gradient(objective, objective.flat(parameters), fixed, rng))
        rest = total - known
        gradients = {n: (total * a - known * own[n]) / rest for n, a in gradients.items()}
    defended = isinstance(knowledge.training, Defence)
    rounding = _rounding(release, knowledge, step, parameters, layer) * total / (total - known)
    return Observed(step, parameters, gradients, total - known, layer, defended, rounding)


def _rounding(
    release: Gradient | Update,
    knowledge: Knowledge,
    step: GradientStep,
    parameters: Mapping[str, Array],
    layer: InputLayer,
) -> float:
    """Return twice a unit in the last place of a typical entry, as it was computed."""
    sent = dict(release.arrays())[layer.weight]
    unit = max(np.finfo(np.result_type(sent, np.float16)).eps, np.finfo(step.precision).eps)
    local = _local_steps(knowledge)
    if isinstance(release, Update) and local is not None and layer.weight in parameters:
        # A change is the difference of two parameters, and has their rounding.
        size = np.sqrt(np.mean(np.square(parameters[layer.weight], dtype=np.float64)))
        return float(2.0 * unit * size / local.optimiser.learning_rate)
    peak = max(float(np.abs(sent).max(initial=0.0)), 1e-300)
    scaled = sent[sent != 0].astype(np.float64) / peak
    return float(2.0 * unit * peak * np.sqrt(np.mean(scaled**2))) if len(scaled) else 0.0


def _local_steps(knowledge: Knowledge) -> LocalSteps | None:
    from exhume.defences import undefended

    mechanism = knowledge.training
    while mechanism is not None and not isinstance(mechanism, LocalSteps):
        mechanism = undefended(mechanism)
        if not isinstance(mechanism, Aggregate):
            break
        mechanism = mechanism.client
    return mechanism if isinstance(mechanism, LocalSteps) else None
