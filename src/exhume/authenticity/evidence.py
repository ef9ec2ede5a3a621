"""What an adversary has to go by, for each candidate, without any training record at hand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from exhume.arrays import Array, FloatArray, frozen
from exhume.attacks.kkt.network import read
from exhume.authenticity.multipliers import fitted
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.metrics.error import NCC
from exhume.reconstruction import Reconstruction
from exhume.release import Release
from exhume.training.stationary import Stationary

NAMES = ("agreement", "starts", "multiplier", "contribution", "margin", "at-ends")
"""What each column of the evidence is; see ``gather``."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """One row a candidate, (k, 6), in the order of ``NAMES``: more speaks for a real record."""

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
) -> Evidence:
    """Return the evidence for each candidate of ``found``; ``records`` is how many were trained on.

    - agreement: the attack's own confidence, such as the share of restarts that found it;
    - starts: the mean best correlation with the candidates of ``others`` (other starts, seeds or
      attacks), 0 where there are none;
    - multiplier, contribution: how much of the weights it explains among the candidates, in logs;
    - margin: how well its multiplier agrees with the loss at its own score, −|log ratio|;
    - at-ends: the share of values at an end of the value range.
    """
    network = read(release, knowledge)
    if isinstance(network, str):
        raise InputError(f"no evidence can be gathered: {network}")
    k = len(found)
    samples = np.asarray(found.samples, dtype=np.float64)
    scores = network.scores(samples.reshape(k, -1))
    classes = _likeliest(scores)
    fit = fitted(network, samples, classes)
    agreement = np.zeros(k) if found.confidence is None else np.asarray(found.confidence)
    columns = [
        agreement,
        _agreement(samples - network.centre.reshape(samples.shape[1:]), others, network.centre),
        np.log(np.maximum(fit.multipliers, 1e-6)),
        np.log(np.maximum(fit.contributions, 1e-12)),
        _margins(scores, classes, fit.multipliers, records, knowledge),
        _at_ends(samples, knowledge.value_range),
    ]
    return Evidence(np.column_stack(columns))


def _likeliest(scores: FloatArray) -> Array:
    """Return the class that the network itself gives each record."""
    return (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)


def _agreement(centred: FloatArray, others: tuple[Array, ...], centre: FloatArray) -> FloatArray:
    if not others:
        return np.zeros(len(centred))
    best = [
        NCC().pairwise(centred, np.asarray(other) - centre.reshape(centred.shape[1:])).max(axis=1)
        for other in others
        if len(other)
    ]
    return np.asarray(np.mean(best, axis=0))


def _margins(
    scores: FloatArray, classes: Array, multipliers: FloatArray, records: int, knowledge: Knowledge
) -> FloatArray:
    """−|log(λ · records · decay / −∂loss)|: a training record's multiplier is its loss's slope."""
    training = knowledge.training
    if not isinstance(training, Stationary) or scores.shape[1] != 1:
        return np.zeros(len(scores))
    slopes = expit(-(2.0 * classes - 1.0) * scores[:, 0])
    wanted = slopes / (records * training.weight_decay)
    ratio = np.log(np.maximum(multipliers, 1e-6) / np.maximum(wanted, 1e-6))
    return np.asarray(-np.abs(ratio))


def _at_ends(samples: FloatArray, value_range: tuple[float, float] | None) -> FloatArray:
    flat = samples.reshape(len(samples), -1)
    if value_range is None:
        return np.zeros(len(flat))
    low, high = value_range
    near = 0.03 * (high - low)
    return np.asarray(((flat < low + near) | (flat > high - near)).mean(axis=1))
