"""A gradient as the attacks read it: checked against the network, without known records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from exhume.defences import Defence
from exhume.models.base import misfits
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Lacking, ParsedAttack, Refusal
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.release import Gradient, Release, Update
from exhume.training.gradient import GradientStep, gradient_step, public_parameters
from exhume.training.local_steps import Aggregate, LocalSteps

if TYPE_CHECKING:
    from exhume.attacks.gradients.analytic.factorisation import Consistency, Factors
    from exhume.attacks.gradients.analytic.input_layer import Backward, InputLayer


@dataclass(frozen=True, eq=False)
class FirstLayerGradient:
    """The gradient of the mean loss of the ``count`` unknown records.

    ``gradients`` may lack layers that were not released. ``defended`` says that a defence changed
    the gradient before its release, so that an exact fit can't be expected. ``rounding`` is the
    standard deviation of an entry of the first layer's weights due to rounding.
    """

    step: GradientStep
    parameters: Mapping[str, Array]
    gradients: Mapping[str, FloatArray]
    count: int
    layer: InputLayer
    defended: bool
    rounding: float
    knowledge: Knowledge

    @property
    def weight(self) -> FloatArray:
        """The first layer's weight gradient (width, d)."""
        return self.gradients[self.layer.weight]

    @property
    def bias(self) -> FloatArray:
        """The first layer's bias gradient (width,)."""
        return self.gradients[str(self.layer.bias)]

    def factors(self) -> Factors:
        """Return the first layer's gradient in factorised form."""
        from exhume.attacks.gradients.analytic.factorisation import factorise

        return factorise(self.weight, self.bias, self.count, rounding=self.rounding)

    def backward(self) -> Backward:
        """Return what records send back to the first layer."""
        from exhume.attacks.gradients.analytic.input_layer import Backward

        return Backward(self.step, self.layer, self.parameters)

    def consistency(self, factors: Factors) -> Consistency:
        """Return the comparison of records with what they would return themselves."""
        from exhume.attacks.gradients.analytic.factorisation import Consistency

        return Consistency(factors, self.layer, self.backward(), self.knowledge)


class FirstLayerAttack(ParsedAttack[FirstLayerGradient]):
    """An attack on the gradient of a fully connected first layer."""

    @final
    def parse(self, release: Release, knowledge: Knowledge) -> FirstLayerGradient | Refusal:
        """Return the first layer's gradient, or why it can't be read or is not enough."""
        observed = observe(release, knowledge)
        if isinstance(observed, Refusal):
            return observed
        reason = self._objection(observed)
        return observed if reason is None else Refusal(reason)

    def _objection(self, observed: FirstLayerGradient) -> str | None:
        """Say what else the attack needs."""
        return None


def observe(release: Release, knowledge: Knowledge) -> FirstLayerGradient | Refusal:
    """Return the input of the first-layer attacks, or why they don't apply."""
    step = gradient_step(knowledge.training)
    if step is None:
        return Refusal("the training is not known to be a gradient step of a network")
    from exhume.attacks.gradients.analytic.input_layer import input_layer_of

    gradients = single_step(release, knowledge)
    if isinstance(gradients, str):
        return Refusal(gradients)
    layer = input_layer_of(step.network)
    if isinstance(layer, str):
        return Refusal(layer)
    reason = mismatch(step, gradients, layer)
    if reason is not None:
        return Refusal(reason)
    parameters = public_parameters(knowledge)
    if parameters is None:
        return Refusal(
            Lacking(
                "the parameters at which the gradient was taken are not known", "knowledge.initial"
            )
        )
    if knowledge.record_shape != step.network.record_shape:
        return Refusal(
            f"a record has shape {knowledge.record_shape}, "
            f"the network takes {step.network.record_shape}"
        )
    return _without_known(release, knowledge, step, parameters, gradients, layer)


def single_step(release: Release, knowledge: Knowledge) -> Mapping[str, FloatArray] | str:
    """Return the gradient of a gradient release or one-step update, or why there is none."""
    if isinstance(release, Gradient):
        return {n: np.asarray(a, dtype=np.float64) for n, a in release.gradients.items()}
    if not isinstance(release, Update):
        return f"{type(release).__name__} hold no gradient: a gradient or an update is needed"
    if release.steps != 1:
        return f"the update has {release.steps} steps, but only a single one is a gradient"
    local = _local_steps(knowledge)
    if local is None:
        return "the optimiser of the local step is not known"
    parameters = public_parameters(knowledge) or {}
    rate, decay = local.optimiser.learning_rate, local.optimiser.weight_decay
    found = {n: -np.asarray(a, dtype=np.float64) / rate for n, a in release.changes.items()}
    if decay:
        missing = [n for n in found if n not in parameters]
        if missing:
            return f"weight decay can't be removed: parameter {missing[0]!r} is not known"
        return {n: a - decay * np.asarray(parameters[n]) for n, a in found.items()}
    return found


def mismatch(step: GradientStep, gradients: Mapping[str, Array], layer: InputLayer) -> str | None:
    """Return how the named gradients differ from the network's, or None."""
    shapes = step.network.parameter_shapes()
    for reason in misfits(shapes, gradients, some=True):
        return reason
    if layer.weight not in gradients:
        return f"the first layer's gradient {layer.weight!r} was not released"
    if layer.bias is None:
        return "the first layer has no bias, so the scale of a record is not determined"
    if layer.bias not in gradients:
        return f"the gradient of {layer.bias!r} was not released, so records have no scale"
    return None


def _without_known(
    release: Release,
    knowledge: Knowledge,
    step: GradientStep,
    parameters: Mapping[str, Array],
    gradients: Mapping[str, FloatArray],
    layer: InputLayer,
) -> FirstLayerGradient | Refusal:
    """Subtract the gradients of the fixed set from the sum."""
    assert isinstance(release, Gradient | Update)
    total, fixed = release.batch_size, knowledge.fixed_set
    known = 0 if fixed is None else len(fixed)
    if known >= total:
        return Refusal(
            f"the fixed set has {known} records and the batch only {total}: records that are "
            "similar to the batch's, but not in it, are shadow targets"
        )
    if fixed is not None and known:
        objective = step.objective("float64")
        reason = objective.mismatch(parameters)
        if reason is not None:
            return Refusal(reason)
        rng = np.random.default_rng(0)
        own = objective.named(step.gradient(objective, objective.flat(parameters), fixed, rng))
        rest = total - known
        gradients = {n: (total * a - known * own[n]) / rest for n, a in gradients.items()}
    defended = isinstance(knowledge.training, Defence)
    rounding = _rounding(release, knowledge, step, parameters, layer) * total / (total - known)
    return FirstLayerGradient(
        step, parameters, gradients, total - known, layer, defended, rounding, knowledge
    )


def _rounding(
    release: Gradient | Update,
    knowledge: Knowledge,
    step: GradientStep,
    parameters: Mapping[str, Array],
    layer: InputLayer,
) -> float:
    """Return twice the rounding unit of a typical entry, in the precision it was computed in."""
    sent = dict(release.arrays())[layer.weight]
    unit = max(np.finfo(np.result_type(sent, np.float16)).eps, np.finfo(step.precision).eps)
    local = _local_steps(knowledge)
    if isinstance(release, Update) and local is not None and layer.weight in parameters:
        # A change is the difference of two parameters and has their rounding error.
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
