"""The attack on a two-layer network's gradient: the batch itself, from the output weights' part."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack, nothing
from exhume.attacks.features.head import Head, Response
from exhume.attacks.features.observed import moment_weights, observe, sent_factor
from exhume.attacks.features.recover import RecoveredFeatures, recover_features
from exhume.attacks.features.search import Settings
from exhume.attacks.features.tensor import tensor_features
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.models.base import Activation, Network
from exhume.models.mlp import MLP
from exhume.models.two_layer import TwoLayer
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Gradient, Release
from exhume.training.gradient import GradientStep, gradient_step, public_parameters

_LARGE_ERROR = 0.3
"""An estimated error above this part of a record's own length is a large one."""


@dataclass(frozen=True)
class Features(Attack):
    """Rebuild a batch from the gradient of a wide two-layer network (Liu et al. 2024, section 3).

    Takes a ``Gradient`` of a ``TwoLayer`` network, or of an ``MLP`` with one hidden layer, at known
    parameters. Labels are used where known, and inferred otherwise. Records of the batch that are
    known (``knowledge.fixed_set``) are subtracted first. ``fit`` False leaves it at the tensor
    method's directions, which is the published attack: what they are the start of is then missing.
    The adversary knows the defences, and entries that they set to 0 are left out; with ``adaptive``
    False it takes the release for an unprotected one, as the paper's does.
    """

    name: ClassVar[str] = "features"
    settings: Settings = field(default_factory=Settings)
    fit: bool = True
    adaptive: bool = True

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Return None, or what is missing: the gradient, the network, its parameters, its width."""
        if not isinstance(release, Gradient):
            return "reads the gradient of one batch, and this release is none"
        step = gradient_step(knowledge.training)
        if step is None:
            return "needs to know which network the gradient is of (training)"
        layers = _layers(step.network)
        if layers is None:
            return "needs a two-layer network: one hidden layer, fully connected"
        if step.network.record_shape != knowledge.record_shape:
            return f"the network takes records of shape {step.network.record_shape}"
        parameters = public_parameters(knowledge)
        if parameters is None:
            return "needs the parameters at which the gradient was taken, and they are not known"
        return _mismatch(layers, parameters, release) or _undetermined(step, release, knowledge)

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        assert isinstance(release, Gradient)
        step, parameters = gradient_step(knowledge.training), public_parameters(knowledge)
        assert step is not None
        assert parameters is not None
        layers = _layers(step.network)
        assert layers is not None
        head = layers.head(parameters, step)
        gradient, bias = layers.gradients(release)
        factor = sent_factor(knowledge.training) if self.adaptive else 1.0
        gradient, bias = gradient / factor, None if bias is None else bias / factor
        count = _unknown(release, knowledge)
        gradient, bias = _without_known(gradient, bias, head, step, release, knowledge)
        if not gradient.any():
            return nothing(knowledge, Status.NO_INFORMATION, "the head's gradient is 0")
        if not self.fit:
            return self._directions(gradient, head, count, knowledge, rng)
        labels = None if knowledge.labels is None else step.responses(knowledge.labels)
        found = recover_features(
            gradient,
            head,
            count,
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
        """Return what the moments tell by themselves."""
        if count > head.dimension:
            reason = f"{count} directions of {head.dimension} values can't be told apart"
            return nothing(knowledge, Status.NO_INFORMATION, reason)
        plain, _ = head.standardised()
        sent = gradient.T / np.abs(gradient).max()
        weights = moment_weights(observe(sent)) if self.adaptive else None
        found = tensor_features(plain, sent, count, rng=rng, entry_weights=weights)
        samples = found.features.reshape(-1, *knowledge.record_shape)
        message = "directions only: the records' lengths are not known"
        stats = {"loss": found.loss}
        return Reconstruction(samples, Status.APPROXIMATE, message=message, stats=stats)


@dataclass(frozen=True)
class _Layers:
    """The names of a two-layer network's parameters, a bias None where there is none."""

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
            response=Response.NUMBERS if step.classes is None else Response.CLASSES,
            offsets=None if self.hidden_bias is None else _real(parameters[self.hidden_bias]),
            output=_real(parameters[self.output]),
            output_offsets=None
            if self.output_bias is None
            else _real(parameters[self.output_bias]),
        )

    def gradients(self, release: Gradient) -> tuple[FloatArray, FloatArray | None]:
        """Return the gradients of A (K, m) and of the output bias, as far as released."""
        bias = None if self.output_bias is None else release.gradients.get(self.output_bias)
        return _real(release.gradients[self.output]), None if bias is None else _real(bias)


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
    """Say which parameter or gradient is missing or has another shape."""
    shapes = layers.network.parameter_shapes()
    for name, shape in shapes.items():
        if name not in parameters:
            return f"needs the parameter {name!r}, and it is not known"
        if parameters[name].shape != shape:
            return f"{name!r} has shape {parameters[name].shape}, the network's has {shape}"
    if layers.output not in release.gradients:
        return f"needs the gradient of {layers.output!r}, and it was not released"
    for name, gradient in release.gradients.items():
        if name in shapes and gradient.shape != shapes[name]:
            return f"the gradient of {name!r} has shape {gradient.shape}, not {shapes[name]}"
    return None


def _undetermined(step: GradientStep, release: Gradient, knowledge: Knowledge) -> str | None:
    """Say why the gradient can't determine the batch, or why the labels don't fit it."""
    count, dimension = _unknown(release, knowledge), math.prod(knowledge.record_shape)
    layers = _layers(step.network)
    assert layers is not None
    width = step.network.parameter_shapes()[layers.hidden][0]
    outputs = 1 if step.classes is None else len(step.classes) - 1
    # A ReLU is silent on half of all inputs: only the other half of the units tell of one.
    active = width // 2 if layers.activation is Activation.RELU else width
    if active < dimension or active * outputs < count * dimension:
        return (
            f"{width} hidden units with {outputs} independent output(s) can't determine {count} "
            f"record(s) of {dimension} values: a wider network would be needed"
        )
    if knowledge.labels is None:
        return None
    if len(knowledge.labels) != count:
        return f"{len(knowledge.labels)} labels are known, and {count} records are to be rebuilt"
    try:
        step.responses(knowledge.labels)
    except InputError as error:
        return str(error)
    return None


def _unknown(release: Gradient, knowledge: Knowledge) -> int:
    """Return how many records of the batch are not known."""
    known = _known_count(release, knowledge)
    return release.batch_size - known


def _known_count(release: Gradient, knowledge: Knowledge) -> int:
    fixed = knowledge.fixed_set
    # A set as large as the batch or larger can't be part of it.
    return 0 if fixed is None or len(fixed) >= release.batch_size else len(fixed)


def _without_known(
    gradient: FloatArray,
    bias: FloatArray | None,
    head: Head,
    step: GradientStep,
    release: Gradient,
    knowledge: Knowledge,
) -> tuple[FloatArray, FloatArray | None]:
    """Return the gradients of the mean loss over the unknown records alone."""
    known, fixed = _known_count(release, knowledge), knowledge.fixed_set
    if not known or fixed is None:
        return gradient, bias
    share = release.batch_size / (release.batch_size - known)
    values, _ = head.hidden(_real(fixed.x).reshape(known, -1))
    residuals = head.residuals(values, step.responses(fixed.labels), len(gradient))
    residuals = residuals / release.batch_size
    # What a defence set to 0 stays 0, so that it is still recognised.
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
