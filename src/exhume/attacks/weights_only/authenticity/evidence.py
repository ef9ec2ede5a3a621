"""The evidence for each candidate that an adversary has without any training record.

Also the evidence that one given image was trained on, from the candidates of a reconstruction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from exhume.attacks.weights_only.authenticity.multipliers import fitted
from exhume.attacks.weights_only.read_weights import (
    HiddenLayer,
    Released,
    known_weights,
    trained,
)
from exhume.metrics.error import NCC
from exhume.protocol.arrays import Array, FloatArray, frozen
from exhume.protocol.attack import Refusal
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.release import Release
from exhume.training.stationary import Stationary

NAMES = ("agreement", "starts", "multiplier", "contribution", "margin", "at-ends")
"""The name of each column of the evidence; see ``gather``."""


@dataclass(frozen=True, eq=False)
class AuthenticityEvidence:
    """One row per candidate, (k, 6), in the order of ``NAMES``: higher means more likely real."""

    values: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", frozen(self.values, dtype=np.float64))
        if self.values.ndim != 2 or self.values.shape[1] != len(NAMES):
            raise InputError(f"evidence needs shape (k, {len(NAMES)}), got {self.values.shape}")

    def __len__(self) -> int:
        return len(self.values)


def gather(
    release: Release,
    knowledge: Knowledge,
    found: Reconstruction,
    *,
    records: int,
    others: tuple[Array, ...] = (),
) -> AuthenticityEvidence:
    """Return the evidence for each candidate of ``found``; ``records`` is the training set's size.

    - agreement: the attack's own confidence, such as the share of restarts that found it;
    - starts: the mean best correlation with the candidates of ``others`` (other starts, seeds or
      attacks), 0 if there are none;
    - multiplier, contribution: how much of the weights it explains among the candidates, in logs;
    - margin: how well its multiplier agrees with the loss at its own score, −|log ratio|
      (these three are 0 for networks that normalise by the batch);
    - at-ends: the share of values at an end of the value range.
    """
    weights = known_weights(release, knowledge)
    if isinstance(weights, Refusal):
        raise InputError(f"no evidence can be gathered: {weights.reason}")
    network = weights.released()
    k = len(found)
    samples = np.asarray(found.samples, dtype=np.float64)
    centre: Array = np.zeros(samples.shape[1:])
    explained: FloatArray = np.zeros((k, 3))
    # If records are normalised together, their contributions can't be separated.
    if not isinstance(network, Refusal):
        own = network.centre if isinstance(network, HiddenLayer) else network.subtracted
        centre = own.reshape(samples.shape[1:])
        explained = _explained(network, samples, records, knowledge) if k else explained
    columns = [
        np.zeros(k) if found.confidence is None else np.asarray(found.confidence),
        _agreement(samples, others, centre),
        *explained.T,
        _at_ends(samples, knowledge.value_range),
    ]
    return AuthenticityEvidence(np.column_stack(columns))


def _explained(
    network: Released, samples: FloatArray, records: int, knowledge: Knowledge
) -> FloatArray:
    """Return multiplier, contribution and margin of each candidate (k, 3)."""
    scores = network.scores(samples.reshape(len(samples), -1))
    classes = _likeliest(scores)
    fit = fitted(network, samples, classes)
    return np.column_stack(
        [
            np.log(np.maximum(fit.multipliers, 1e-6)),
            np.log(np.maximum(fit.contributions, 1e-12)),
            _margins(scores, classes, fit.multipliers, records, knowledge),
        ]
    )


def _likeliest(scores: FloatArray) -> Array:
    """Return the class that the network predicts for each record."""
    return (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)


def _agreement(samples: FloatArray, others: tuple[Array, ...], centre: Array) -> FloatArray:
    best = [
        NCC().pairwise(samples - centre, np.asarray(other) - centre).max(axis=1)
        for other in others
        if len(other) and len(samples)
    ]
    return np.asarray(np.mean(best, axis=0)) if best else np.zeros(len(samples))


def _margins(
    scores: FloatArray, classes: Array, multipliers: FloatArray, records: int, knowledge: Knowledge
) -> FloatArray:
    """−|log(λ · records · decay / −∂loss)|: a training record's multiplier is its loss's slope."""
    decay = _decay(knowledge)
    if not decay:
        return np.zeros(len(scores))
    if scores.shape[1] == 1:
        slopes = expit(-(2.0 * classes - 1.0) * scores[:, 0])
    else:
        slopes = 1.0 - softmax(scores, axis=1)[np.arange(len(scores)), classes]
    wanted = slopes / (records * decay)
    ratio = np.log(np.maximum(multipliers, 1e-6) / np.maximum(wanted, 1e-6))
    return np.asarray(-np.abs(ratio))


def _decay(knowledge: Knowledge) -> float:
    """Return the weight decay of a classifier's training; 0 if there is none or it is unknown."""
    training = trained(knowledge)
    if isinstance(training, Stationary):
        return training.weight_decay
    if training is not None and training.classes is not None:
        return float(training.optimiser.weight_decay)
    return 0.0


def _at_ends(samples: FloatArray, value_range: tuple[float, float] | None) -> FloatArray:
    if value_range is None or not len(samples):
        return np.zeros(len(samples))
    flat = samples.reshape(len(samples), -1)
    low, high = value_range
    near = 0.03 * (high - low)
    return np.asarray(((flat < low + near) | (flat > high - near)).mean(axis=1))


def claims(
    images: Array, samples: Array, authenticity: FloatArray, *, centre: Array | None = None
) -> FloatArray:
    """Score images (n, *shape): the best of correlation × authenticity over all candidates, (n,).

    Held-out images, and images tested on a network that was trained without them, must score low:
    ``judge.calibrate`` measures that.
    """
    offset = 0.0 if centre is None else np.asarray(centre, dtype=np.float64)
    table = NCC().pairwise(np.asarray(images) - offset, np.asarray(samples) - offset)
    return np.asarray((np.maximum(table, 0.0) * authenticity[None, :]).max(axis=1))
