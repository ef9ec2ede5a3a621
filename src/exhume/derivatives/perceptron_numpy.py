"""The layers of a narrow perceptron above its first products, by hand, in NumPy.

For arrays of a few thousand numbers the cost of a call dominates, and NumPy's is the lowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from exhume.derivatives.activations import CURVED, NUMPY, with_curvature
from exhume.models.base import Activation
from exhume.protocol.arrays import Array, FloatArray

_ACTIVATIONS = {name: with_curvature(name, NUMPY) for name in CURVED}


@dataclass(frozen=True, eq=False)
class Members:
    """Labels (outputs, n) of a batch, times their record's share of the loss; their mass (n,).

    ``record`` is the share of the unknown record, which is then the last, or 0.
    """

    labels: FloatArray
    mass: FloatArray
    record: float

    @staticmethod
    def of(labels: FloatArray, entropic: bool) -> Members:
        """Return all records with share 1; the mass of a squared error is the share itself."""
        mass = labels.sum(axis=1) if entropic else np.ones(len(labels), labels.dtype)
        return Members(labels.T, mass, 1.0)

    def take(self, rows: slice | Array, share: FloatArray, record: float) -> Members:
        """Return the records of a batch with their shares."""
        return Members(self.labels[:, rows] * share, self.mass[rows] * share, record)


@dataclass(frozen=True)
class NarrowLayers:
    """Shapes and loss: ``widths`` from the inputs to the outputs.

    ``blur`` spreads the curvature of a kink over this distance on both sides. Records cross the
    kink as the target moves, so over a finite step the mean slope contains this curvature.
    """

    widths: tuple[int, ...]
    activation: Activation
    entropic: bool
    blur: float = 0.0

    @cached_property
    def _places(self) -> list[tuple[int, int, int, int, int]]:
        """Start and end of each later weight in the vector of the rest, and the end of its bias."""
        places, at = [], self.widths[1]
        for into, out in pairwise(self.widths[1:]):
            middle = at + into * out
            places.append((at, middle, middle + out, out, into))
            at = middle + out
        return places

    def bias(self, rest: FloatArray) -> FloatArray:
        """Return the first bias (width, 1)."""
        return rest[: self.widths[1], None]

    def later(self, rest: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Return views of weight (out, in) and bias (out, 1) of every layer but the first."""
        return [
            (rest[start:middle].reshape(out, into), rest[middle:end, None])
            for start, middle, end, out, into in self._places
        ]


@dataclass(frozen=True, eq=False)
class SignalChanges:
    """The changes of the first signal (width, n), of the rest's gradient, of the label's slope."""

    first: FloatArray
    gradient: FloatArray
    label: FloatArray


class Signals:
    """One step's forward and backward pass: ``first`` (width, n) is the loss's slope in z₁."""

    def __init__(
        self, layers: NarrowLayers, rest: FloatArray, z: FloatArray, members: Members
    ) -> None:
        self.layers, self.members = layers, members
        self.values: list[FloatArray] = []
        self.slopes: list[FloatArray] = []
        self.bends: list[FloatArray] = []
        activation = _ACTIVATIONS[layers.activation]
        z += layers.bias(rest)
        later = layers.later(rest)
        for weight, bias in later:
            value, slope, second = activation.second(z)
            if layers.blur and activation.jump:
                near = (np.abs(z) < layers.blur).astype(z.dtype)
                second += near * (activation.jump / (2.0 * layers.blur))
            self.values.append(value)
            self.slopes.append(slope)
            self.bends.append(second)
            z = weight @ value
            z += bias
        self.shares = _softmax(z) if layers.entropic else z
        self.signals = [self.shares * members.mass - members.labels]
        for i in range(len(later) - 1, -1, -1):
            error = later[i][0].T @ self.signals[0]
            # From here on, the second derivative is only needed times the backpropagated error.
            self.bends[i] *= error
            error *= self.slopes[i]
            self.signals.insert(0, error)
        self.first = self.signals[0]
        self.gradient = self._gathered(self.signals)

    def _gathered(self, signals: Sequence[FloatArray]) -> FloatArray:
        parts = [signals[0].sum(axis=1)]
        for signal, value in zip(signals[1:], self.values, strict=True):
            parts += [(signal @ value.T).ravel(), signal.sum(axis=1)]
        return np.concatenate(parts)

    def product(
        self, rest: FloatArray, z: FloatArray, moves: FloatArray, label: FloatArray | None
    ) -> SignalChanges:
        """Return the slopes' change with z₁, the rest and the label (Pearlmutter 1994).

        ``z`` (width, n) is overwritten. The loss's second derivative is symmetric: the same
        product, applied to cotangents, is the transposed one.
        """
        z += self.layers.bias(moves)
        later, ways = self.layers.later(rest), self.layers.later(moves)
        bent, moved = [z], []
        for i, ((weight, _), (way, bias)) in enumerate(zip(later, ways, strict=True)):
            moved.append(self.slopes[i] * bent[i])
            z = way @ self.values[i]
            z += weight @ moved[i]
            z += bias
            bent.append(z)
        changes, own = [self._output(z, label)], z[:, -1]
        for i in range(len(later) - 1, -1, -1):
            error = ways[i][0].T @ self.signals[i + 1]
            error += later[i][0].T @ changes[0]
            error *= self.slopes[i]
            error += self.bends[i] * bent[i]
            changes.insert(0, error)
        gradient = self._gathered(changes)
        for (slope, _), signal, move in zip(
            self.layers.later(gradient), self.signals[1:], moved, strict=True
        ):
            slope += signal @ move.T
        towards = -self.members.record * own
        if self.layers.entropic:
            towards += self.members.record * (self.shares[:, -1] @ own)
        return SignalChanges(changes[0], gradient, towards)

    def _output(self, z: FloatArray, label: FloatArray | None) -> FloatArray:
        change = z
        if self.layers.entropic:
            change = self.shares * z
            change -= self.shares * change.sum(axis=0)
        change = change * self.members.mass
        if label is not None and self.members.record:
            if self.layers.entropic:
                change[:, -1] += self.members.record * label.sum() * self.shares[:, -1]
            change[:, -1] -= self.members.record * label
        return change


def _softmax(scores: FloatArray) -> FloatArray:
    powers: FloatArray = np.exp(scores - scores.max(axis=0))
    powers /= powers.sum(axis=0)
    return powers
