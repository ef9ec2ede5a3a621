"""The attack on a two-layer network: recovers the batch from the output weights' gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from exhume.attacks.gradients.features.head import Head, ResponseKind
from exhume.attacks.gradients.features.masked_gradient import moment_weights, observe, sent_factor
from exhume.attacks.gradients.features.recover import RecoveredFeatures, recover_features
from exhume.attacks.gradients.features.search import FeatureSearchSettings
from exhume.attacks.gradients.features.tensor_method import tensor_features
from exhume.models.base import Activation, Network, misfits
from exhume.models.mlp import MLP
from exhume.models.two_layer import TwoLayer
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import Lacking, ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Gradient, Release
from exhume.training.gradient import GradientStep, gradient_step, public_parameters

_LARGE_ERROR = 0.3
"""An estimated error is large above this share of the record's own norm."""


@dataclass(frozen=True)
class _Layers:
    """The parameter names of a two-layer network; None for a missing bias."""

    network: Network
    activation: Activation
    hidden: str
    output: str
    hidden_bias: str | None
    output_bias: str | None

    def head(self, parameters: Mapping[str, Array], step: GradientStep) -> Head:
        """Return the head that the adversary knows."""
        return Head(
            weights=_real(parameters[self.hidden]),
            activation=self.activation,
            response=ResponseKind.NUMBERS if step.classes is None else ResponseKind.CLASSES,
            offsets=None if self.hidden_bias is None else _real(parameters[self.hidden_bias]),
            output=_real(parameters[self.output]),
            output_offsets=None
            if self.output_bias is None
            else _real(parameters[self.output_bias]),
        )

    def gradients(self, release: Gradient) -> tuple[FloatArray, FloatArray | None]:
        """Return the released gradients of A (K, m) and of the output bias."""
        bias = None if self.output_bias is None else release.gradients.get(self.output_bias)
        return _real(release.gradients[self.output]), None if bias is None else _real(bias)


@dataclass(frozen=True, eq=False)
class TwoLayerGradient:
    """The gradient of a two-layer network at known parameters."""

    layers: _Layers
    step: GradientStep
    parameters: Mapping[str, Array]
    release: Gradient
    knowledge: Knowledge

    @property
    def known(self) -> int:
        """How many records of the batch are known."""
        fixed, size = self.knowledge.fixed_set, self.release.batch_size
        # A set at least as large as the batch can't be part of it.
        return 0 if fixed is None or len(fixed) >= size else len(fixed)

    @property
    def count(self) -> int:
        """How many records of the batch are not known."""
        return self.release.batch_size - self.known


@dataclass(frozen=True)
class Features(ParsedAttack[TwoLayerGradient]):
    """Rebuild a batch from the gradient of a wide two-layer network (Liu et al. 2024, section 3).

    Takes a ``Gradient`` of a ``TwoLayer`` network, or of an ``MLP`` with one hidden layer, at known
    parameters. Labels are used if known, and inferred otherwise. Known records of the batch
    (``knowledge.fixed_set``) are subtracted first. ``fit=False`` stops at the directions of the
    tensor method, which is the published attack, instead of using them as the start of a fit. The
    adversary knows the defences and ignores entries that they set to 0. With ``adaptive=False`` it
    assumes an unprotected release, as the paper does.
    """

    name: ClassVar[str] = "features"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT
    settings: FeatureSearchSettings = field(default_factory=FeatureSearchSettings)
    fit: bool = True
    adaptive: bool = True

    def parse(self, release: Release, knowledge: Knowledge) -> TwoLayerGradient | Refusal:
        """Ask for the gradient of a two-layer network at known parameters, and for its width."""
        if not isinstance(release, Gradient):
            return Refusal("it reads the gradient of one batch, and this release is not one")
        step = gradient_step(knowledge.training)
        if step is None:
            return Refusal("needs to know which network the gradient is of (training)")
        layers = _layers(step.network)
        if layers is None:
            return Refusal("needs a two-layer network: one hidden layer, fully connected")
        if step.network.record_shape != knowledge.record_shape:
            return Refusal(f"the network takes records of shape {step.network.record_shape}")
        parameters = public_parameters(knowledge)
        if parameters is None:
            return Refusal(
                Lacking(
                    "needs the parameters at which the gradient was taken, and they are not known",
                    "knowledge.initial",
                )
            )
        reason = _mismatch(layers, parameters, release)
        if reason is not None:
            return Refusal(reason)
        problem = TwoLayerGradient(layers, step, parameters, release, knowledge)
        reason = _undetermined(problem)
        return problem if reason is None else Refusal(reason)

    def _solve(self, problem: TwoLayerGradient, rng: np.random.Generator) -> Reconstruction:
        step, knowledge = problem.step, problem.knowledge
        head = problem.layers.head(problem.parameters, step)
        gradient, bias = problem.layers.gradients(problem.release)
        factor = sent_factor(knowledge.training) if self.adaptive else 1.0
        gradient, bias = gradient / factor, None if bias is None else bias / factor
        gradient, bias = _without_known(gradient, bias, head, problem)
        if not gradient.any():
            return nothing(knowledge, Status.NO_INFORMATION, "the head's gradient is 0")
        if not self.fit:
            return self._directions(gradient, head, problem.count, knowledge, rng)
        labels = None if knowledge.labels is None else step.responses(knowledge.labels)
        found = recover_features(
            gradient,
            head,
            problem.count,
            labels=labels,
            bias_gradient=bias,
            settings=self.settings,
            adaptive=self.adaptive,
            rng=rng,
        )
        return _reconstruction(found, knowledge, step)

    def _directions(
        self,
        gradient: FloatArray,
        head: Head,
        count: int,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Reconstruction:
        """Return the directions that the moments alone determine."""
        if count > head.dimension:
            reason = f"{count} directions of {head.dimension} values can't be separated"
            return nothing(knowledge, Status.NO_INFORMATION, reason)
        plain, _ = head.standardised()
        sent = gradient.T / np.abs(gradient).max()
        weights = moment_weights(observe(sent)) if self.adaptive else None
        found = tensor_features(plain, sent, count, rng=rng, entry_weights=weights)
        samples = found.features.reshape(-1, *knowledge.record_shape)
        message = "directions only: the records' lengths are not known"
        stats = {"loss": found.loss}
        return Reconstruction(samples, Status.APPROXIMATE, message=message, stats=stats)


def _layers(network: Network) -> _Layers | None:
    match network:
        case TwoLayer():
            return _Layers(
                network,
                network.activation,
                "hidden.weight",
                "output.weight",
                "hidden.bias" if network.hidden_bias else None,
                "output.bias" if network.output_bias else None,
            )
        case MLP() if len(network.hidden) == 1:
            names = "1.weight", "3.weight", "1.bias", "3.bias"
            return _Layers(network, network.activation, *names)
        case _:
            return None


def _mismatch(layers: _Layers, parameters: Mapping[str, Array], release: Gradient) -> str | None:
    """Return which parameter or gradient is missing or has another shape, or None."""
    shapes = layers.network.parameter_shapes()
    for reason in misfits(shapes, parameters, more=True):
        return f"of the known parameters, {reason}"
    if layers.output not in release.gradients:
        return f"needs the gradient of {layers.output!r}, and it was not released"
    for reason in misfits(shapes, release.gradients, some=True, more=True):
        return f"of the gradient, {reason}"
    return None


def _undetermined(problem: TwoLayerGradient) -> str | None:
    """Return why the gradient can't determine the batch or the labels don't fit it, or None."""
    step, layers, knowledge = problem.step, problem.layers, problem.knowledge
    count, dimension = problem.count, math.prod(knowledge.record_shape)
    width = step.network.parameter_shapes()[layers.hidden][0]
    outputs = 1 if step.classes is None else len(step.classes) - 1
    # A ReLU is inactive on half of all inputs: only half of the units depend on a record.
    active = width // 2 if layers.activation is Activation.RELU else width
    if active < dimension or active * outputs < count * dimension:
        return (
            f"{width} hidden units with {outputs} independent output(s) can't determine {count} "
            f"record(s) of {dimension} values: a wider network is needed"
        )
    if knowledge.labels is None:
        return None
    if len(knowledge.labels) != count:
        return f"{len(knowledge.labels)} labels are known, but {count} records are unknown"
    try:
        step.responses(knowledge.labels)
    except InputError as error:
        return str(error)
    return None


def _without_known(
    gradient: FloatArray, bias: FloatArray | None, head: Head, problem: TwoLayerGradient
) -> tuple[FloatArray, FloatArray | None]:
    """Return the gradients of the mean loss over the unknown records alone."""
    known, fixed, size = problem.known, problem.knowledge.fixed_set, problem.release.batch_size
    if not known or fixed is None:
        return gradient, bias
    share = size / (size - known)
    values, _ = head.hidden(_real(fixed.x).reshape(known, -1))
    residuals = head.residuals(values, problem.step.responses(fixed.labels), len(gradient))
    residuals = residuals / size
    # Entries that a defence set to 0 stay 0, so that they are still recognised.
    left = np.where(gradient == 0.0, 0.0, gradient - (values @ residuals).T)
    return left * share, None if bias is None else (bias - residuals.sum(axis=0)) * share


def _reconstruction(
    found: RecoveredFeatures, knowledge: Knowledge, step: GradientStep
) -> Reconstruction:
    order = np.argsort(found.error_estimate, kind="stable")
    samples = found.features[order].reshape(-1, *knowledge.record_shape)
    errors = found.error_estimate[order]
    labels = None
    if found.labels is not None and step.classes is not None:
        labels = np.asarray(step.classes)[found.labels[order]]
    lengths = np.linalg.norm(found.features[order], axis=1) / np.sqrt(found.features.shape[1])
    status, message = Status.CONVERGED, ""
    if not found.certain:
        status = Status.NOT_CONVERGED
        message = "no start explained the gradient exactly, and no two found the same batch"
    elif not found.norms_known:
        status, message = Status.APPROXIMATE, "directions only: the records' lengths are not known"
    elif not (errors <= _LARGE_ERROR * lengths).all():
        status, message = Status.APPROXIMATE, "the estimated errors are large"
    stats = {
        "relative_residual": math.sqrt(max(found.loss, 0.0)),
        "starts": found.starts,
        "evaluations": found.evaluations,
        "lengths_known": found.norms_known,
    }
    return Reconstruction(
        samples, status, labels=labels, error_estimate=errors, message=message, stats=stats
    )


def _real(array: Array) -> FloatArray:
    return np.asarray(array, dtype=np.float64)
