"""The gradient of scikit-learn's fully connected networks, written out, and what it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from exhume.protocol.arrays import Array, FloatArray

_LEAST = 1e-9


@dataclass(frozen=True, eq=False)
class FittedNetwork:
    """The released layers of an MLPClassifier or MLPRegressor, and the classes of its outputs."""

    weights: Sequence[FloatArray]
    biases: Sequence[FloatArray]
    activation: str
    classes: Array | None

    @staticmethod
    def read(settings: Any, numbers: Mapping[str, Array], classes: Array | None) -> FittedNetwork:
        """Return the layers among released numbers; KeyError if there are none."""
        weights, biases = [numbers["coefs_.0"]], [numbers["intercepts_.0"]]
        while f"coefs_.{len(weights)}" in numbers:
            biases.append(numbers[f"intercepts_.{len(weights)}"])
            weights.append(numbers[f"coefs_.{len(weights)}"])
        return FittedNetwork(weights, biases, settings.activation, classes)

    def coded(self, labels: Array) -> FloatArray:
        """Return labels (n,) as the outputs that they ask for."""
        if self.classes is None:
            return np.asarray(labels, dtype=np.float64)[:, None]
        one_hot = (np.asarray(labels)[:, None] == self.classes).astype(np.float64)
        return np.asarray(one_hot[:, 1:] if len(self.classes) == 2 else one_hot)

    def layers(self, rows: FloatArray) -> list[FloatArray]:
        """Return the values of all layers, the rows first and the outputs last."""
        values = [rows]
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            score = values[-1] @ weight + bias
            last = place == len(self.weights) - 1
            values.append(self._output(score) if last else _hidden(self.activation, score))
        return values

    def _output(self, score: FloatArray) -> FloatArray:
        if self.classes is None:
            return score
        if len(self.classes) == 2:
            return np.asarray(expit(score))
        return np.asarray(softmax(score, axis=1))

    def first_and_last(
        self, rows: FloatArray, labels: Array
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return summed gradients: of the first weights and biases, and of the last biases."""
        values = self.layers(rows)
        signal = values[-1] - self.coded(labels)
        last = signal.sum(axis=0)
        for place in range(len(self.weights) - 1, 0, -1):
            signal = signal @ self.weights[place].T * _slope(self.activation, values[place])
        return rows.T @ signal, signal.sum(axis=0), last

    def missing(
        self, rows: FloatArray, labels: Array, alpha: float
    ) -> tuple[FloatArray, object] | None:
        """Return the record and label whose gradient completes an optimum; None if none shows."""
        weight, bias, last = self.first_and_last(rows, labels)
        weight, bias, last = -(weight + alpha * self.weights[0]), -bias, -last
        if not np.abs(bias).max() > _LEAST:
            return None
        x = weight @ bias / (bias @ bias)
        if self.classes is None:
            return x, float(self.layers(x[None])[-1][0, 0] - last[0])
        if len(self.classes) == 2:
            return x, self.classes[int(last[0] < 0)]
        return x, self.classes[int(np.argmin(last))]


def _hidden(activation: str, score: FloatArray) -> FloatArray:
    match activation:
        case "relu":
            return np.asarray(np.maximum(score, 0.0))
        case "tanh":
            return np.asarray(np.tanh(score))
        case "logistic":
            return np.asarray(expit(score))
    return score


def _slope(activation: str, value: FloatArray) -> FloatArray:
    """Return the activation's slope where its value is ``value``."""
    match activation:
        case "relu":
            return (value > 0).astype(np.float64)
        case "tanh":
            return np.asarray(1.0 - value**2)
        case "logistic":
            return np.asarray(value * (1.0 - value))
    return np.ones_like(value)
