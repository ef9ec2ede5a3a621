"""The first layer's gradient as a product ∂W = Δ X of backpropagated errors and inputs.

Records that reproduce the gradient are a fixed point of X = Δ(X)⁺ ∂W.

An adversary who knows the network can evaluate it on any records and compute the errors Δ(X) that
reach the first layer. At the true records ∂W = Δ(X) X. Solving for the X on the right, with Δ taken
at the X of the last round, corrects an approximate unmixing in a few rounds. This needs no
sparsity, so it works for smooth activations.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from exhume.attacks.gradients.analytic.input_layer import Backward, InputLayer
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.knowledge import Knowledge


@dataclass(frozen=True, eq=False)
class Factors:
    """∂W ≈ left · right with orthonormal columns ``left`` (width, rank), ``right`` (rank, d).

    Records are X = Q · right for an unknown Q (rank, rank) with Q · ``scale`` = 1, where ``scale``
    is the bias gradient in the same coordinates. The errors are Δ = left · Q⁻¹. ``noise`` is the
    standard deviation of an entry of ∂W that no record explains. ``gap`` is the last singular value
    kept over the first one dropped.
    """

    left: FloatArray
    right: FloatArray
    scale: FloatArray
    singular: FloatArray
    noise: float
    gap: float
    excess: float

    @property
    def rank(self) -> int:
        """The number of directions above the noise."""
        return len(self.singular)

    def inputs(self, unmixing: FloatArray) -> FloatArray:
        """Return the layer's inputs (k, d) for rows of Q (k, rank), rescaled by the bias gradient.

        A row whose scale is zero gives non-finite numbers.
        """
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.asarray((unmixing / (unmixing @ self.scale)[:, None]) @ self.right)


def factorise(weight: FloatArray, bias: FloatArray, count: int, *, rounding: float) -> Factors:
    """Factorise the weight gradient (width, d) of ``count`` records by its singular values.

    The noise is estimated from the singular values beyond ``count``, and is at least ``rounding``
    (the standard deviation of an entry due to rounding). The rank is the number of the first
    ``count`` values above σ(√width + √d), the largest singular value of such noise. ``excess`` is
    the first value beyond ``count`` over that limit: much more than 1 means more records.
    """
    size = float(np.abs(weight).max(initial=0.0))
    if size == 0.0:
        return Factors(np.zeros((len(weight), 0)), np.zeros((0, weight.shape[1])), *_NOTHING)
    left, singular, _ = np.linalg.svd(weight / size, full_matrices=False)
    noise, reach = _noise(weight / size, singular, count, rounding / size)
    rank = int(np.sum(singular[:count] > 3.0 * reach))
    after = singular[rank] if rank < len(singular) else 0.0
    beyond = singular[count] if count < len(singular) else 0.0
    kept = left[:, :rank]
    return Factors(
        left=kept,
        right=kept.T @ (weight / size),
        scale=kept.T @ (bias / size),
        singular=singular[:rank],
        noise=noise,
        gap=float(singular[rank - 1] / max(after, 1e-300)) if rank else 1.0,
        excess=float(beyond / reach),
    )


_NOTHING = (np.zeros(0), np.zeros(0), 0.0, 1.0, 0.0)


def _noise(
    weight: FloatArray, singular: FloatArray, count: int, rounding: float
) -> tuple[float, float]:
    """Return the standard deviation of an unexplained entry, and its largest singular value."""
    # Neurons that no record reached and features that are always 0 contain no noise either.
    width = int(np.any(weight != 0, axis=1).sum())
    size = int(np.any(weight != 0, axis=0).sum())
    tail = singular[count : min(width, size)]
    noise = max(rounding, 1e-300)
    if len(tail) >= 4:
        # The median is robust to a few more records than announced.
        noise = max(noise, float(np.median(tail)) / np.sqrt(max(width, size)))
    return noise, noise * (np.sqrt(width) + np.sqrt(size))


_MEMORY = 10


@dataclass(frozen=True, eq=False)
class Returned:
    """For rows of an unmixing: the index of the best label (k,), and the error of Δ (k,) in [0, 1].

    ``directions`` (width, k) are the errors that each record returns with that label.
    """

    labels: Array
    residual: FloatArray
    directions: FloatArray


@dataclass(frozen=True, eq=False)
class Consistency:
    """Compares an unmixing with the errors that its own records would return."""

    factors: Factors
    layer: InputLayer
    backward: Backward
    knowledge: Knowledge

    def records(self, unmixing: FloatArray) -> FloatArray:
        """Return the records (k, *record shape) of an unmixing, within the known range."""
        inputs = np.nan_to_num(self.factors.inputs(unmixing), posinf=1e6, neginf=-1e6)
        records = self.layer.records(inputs).reshape(-1, *self.knowledge.record_shape)
        bounds = self.knowledge.value_range
        return records if bounds is None else np.clip(records, *bounds)

    def returned(self, unmixing: FloatArray) -> Returned:
        """Return the labels that explain the columns of Δ best, and how well they do."""
        columns = self.factors.left @ np.linalg.pinv(unmixing)
        every = self.backward.directions(self.records(unmixing))
        size = np.linalg.norm(every, axis=2) * np.linalg.norm(columns, axis=0)[:, None]
        cosine = np.einsum("kcm,mk->kc", every, columns) / np.maximum(size, 1e-300)
        if self.backward.step.classes is None:
            cosine = np.abs(cosine)
        labels = cosine.argmax(axis=1)
        best = cosine[np.arange(len(labels)), labels]
        residual = np.sqrt(np.clip(1.0 - np.clip(best, 0.0, 1.0) ** 2, 0.0, 1.0))
        return Returned(labels, residual, every[np.arange(len(labels)), labels].T)

    def solved(self, unmixing: FloatArray, *, rounds: int = 60) -> tuple[FloatArray, Returned]:
        """Iterate from an approximate unmixing (rank, rank); return the most consistent iterate."""
        best = now = self.normalised(unmixing)
        seen = judged = self.returned(now)
        mixer = Anderson(_MEMORY)
        for _ in range(rounds):
            now = self.normalised(mixer.next(now, self.explaining(judged.directions)))
            judged = self.returned(now)
            if judged.residual.max() > 4.0 * max(seen.residual.max(), 1e-12):
                mixer = Anderson(_MEMORY)
                now, judged = best, seen
            elif np.mean(judged.residual) < np.mean(seen.residual):
                best, seen = now, judged
            if seen.residual.max() < 1e-9:
                break
        return best, seen

    def crept(
        self, unmixing: FloatArray, *, rounds: int = 100, pace: float = 0.3
    ) -> tuple[FloatArray, Returned]:
        """Iterate like ``solved``, with steps shortened by ``pace`` and without acceleration.

        Full steps can jump back and forth over the kink of a ReLU forever; short steps converge.
        """
        best = now = self.normalised(unmixing)
        seen = judged = self.returned(now)
        for _ in range(rounds):
            now = self.normalised(now + pace * (self.explaining(judged.directions) - now))
            judged = self.returned(now)
            if np.mean(judged.residual) < np.mean(seen.residual):
                best, seen = now, judged
            if seen.residual.max() < 1e-9:
                break
        return best, seen

    def explaining(self, directions: FloatArray) -> FloatArray:
        """Return the unmixing whose columns of Δ are closest to ``directions`` (width, rank)."""
        return self.normalised(np.linalg.lstsq(directions, self.factors.left, rcond=1e-12)[0])

    def normalised(self, unmixing: FloatArray) -> FloatArray:
        """Return the unmixing with each record scaled by the bias gradient."""
        scale = unmixing @ self.factors.scale
        return np.asarray(unmixing / np.where(np.abs(scale) > 1e-300, scale, 1.0)[:, None])


class Anderson:
    """Anderson acceleration of a fixed-point iteration (Walker & Ni 2011), with little memory."""

    def __init__(self, memory: int) -> None:
        self._steps: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=memory)

    def next(self, now: FloatArray, proposed: FloatArray) -> FloatArray:
        """Return the next iterate after ``now``, given the proposal of the plain iteration."""
        change = (proposed - now).ravel()
        self._steps.append((proposed.ravel(), change))
        if len(self._steps) == 1:
            return proposed
        values = np.array([value for value, _ in self._steps])
        changes = np.array([one for _, one in self._steps])
        differences = changes[:-1] - changes[-1]
        gram = differences @ differences.T
        gram += 1e-12 * max(float(np.trace(gram)), 1e-300) * np.eye(len(gram))
        share = np.linalg.solve(gram, -differences @ changes[-1])
        mixed = values[-1] + share @ (values[:-1] - values[-1])
        return np.asarray(mixed.reshape(now.shape))
