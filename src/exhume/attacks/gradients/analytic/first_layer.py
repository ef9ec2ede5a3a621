"""Reads records from the first layer's gradient, at neurons that only one record activates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.gradients.analytic.read_gradient import FirstLayerAttack, FirstLayerGradient
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import ThreatModel, nothing
from exhume.protocol.reconstruction import Reconstruction, Status

if TYPE_CHECKING:
    from exhume.attacks.gradients.analytic.factorisation import Factors


@dataclass(frozen=True)
class FirstLayer(FirstLayerAttack):
    """Divides the first layer's weight gradient by its bias gradient (Phong et al. 2018).

    A neuron's row of ∂W is Σᵢ δᵢ xᵢ and its entry of ∂b is Σᵢ δᵢ. With one unknown record the ratio
    is exactly the record. In a batch this holds for neurons that a single record activates. Two
    neurons with the same ratio reveal such a record.
    """

    name: ClassVar[str] = "first-layer"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT

    def _solve(self, observed: FirstLayerGradient, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.gradients.analytic.unmixed_answer import contradiction

        factors = observed.factors()
        refuted = contradiction(observed, factors)
        if refuted is not None:
            return refuted
        rows: FloatArray
        votes: Array
        if observed.count == 1:
            rows, votes = np.ones((1, 1)), np.array([observed.layer.width])
        else:
            rows, votes = lone_rows(factors, observed.count)
        if not len(rows):
            message = f"no neuron was activated by only one of {observed.count} records"
            return nothing(observed.knowledge, Status.NO_INFORMATION, message)
        return _answer(observed, factors, rows, votes)


def lone_rows(factors: Factors, count: int) -> tuple[FloatArray, Array]:
    """Return rows of Q (k ≤ count, rank) on which several neurons agree, and their number (k,)."""
    length = np.linalg.norm(factors.left, axis=1)
    blur = factors.noise * np.linalg.norm(1.0 / factors.singular)
    alive = length > max(100.0 * blur, 1e-12)
    rows = factors.left[alive] / length[alive, None]
    typical = float(np.median(length[alive])) if alive.any() else 1.0
    slack = max(float(10.0 * blur / typical), 1e-8)
    found: list[FloatArray] = []
    votes: list[int] = []
    free = np.ones(len(rows), dtype=bool)
    aligned = np.abs(rows @ rows.T) > 1.0 - min(slack**2, 1e-3)
    for i in np.argsort(-aligned.sum(axis=1), kind="stable"):
        group = aligned[i] & free
        if free[i] and group.sum() >= 2:
            found.append(rows[i])
            votes.append(int(group.sum()))
        free &= ~aligned[i]
    return np.array(found[:count]).reshape(-1, factors.rank), np.array(votes[:count])


def _answer(
    observed: FirstLayerGradient, factors: Factors, rows: FloatArray, votes: Array
) -> Reconstruction:
    from exhume.attacks.gradients.analytic import unmixed_answer

    knowledge = observed.knowledge
    inputs = factors.inputs(rows)
    fits = np.isfinite(inputs).all(axis=1)
    if not fits.any():
        message = "the first layer's bias gradient is zero but its weight gradient is not"
        return nothing(knowledge, Status.WRONG_ASSUMPTION, message)
    rows, votes, inputs = rows[fits], votes[fits], inputs[fits]
    samples = observed.layer.records(inputs).reshape(-1, *knowledge.record_shape)
    unmixing = rows / (rows @ factors.scale)[:, None]
    blur = 3.0 * factors.noise * np.linalg.norm(unmixing, axis=1)
    error = blur * np.sqrt(np.mean(1.0 / observed.layer.scale**2))
    whole = len(samples) == observed.count
    elsewhere = unmixed_answer.out_of_range(samples, knowledge)
    assumed = knowledge if elsewhere is None else replace(knowledge, value_range=None)
    certified, labels = _certified(replace(observed, knowledge=assumed), factors, unmixing)
    sure = whole and bool(certified.all())
    if elsewhere is not None and sure and (error < 0.1 * np.std(samples)).all():
        samples = unmixed_answer.stretched(samples, knowledge)
        return Reconstruction(samples, Status.WRONG_ASSUMPTION, labels=labels, message=elsewhere)
    confidence = (1.0 - 0.5**votes) / (1.0 + error) * np.where(certified, 1.0, 0.5)
    order = np.argsort(-confidence, kind="stable")
    message = f"{len(samples)} of {observed.count} records activated a neuron alone"
    if whole and not sure:
        message += "; their neurons agree, but simulating them does not reproduce the gradient"
    return Reconstruction(
        samples[order],
        Status.CONVERGED if sure else Status.APPROXIMATE,
        labels=None if labels is None else labels[order],
        confidence=confidence[order],
        error_estimate=error[order],
        message=message,
        stats={"rank": factors.rank, "gap": factors.gap, "noise": factors.noise},
    )


def _certified(
    observed: FirstLayerGradient, factors: Factors, unmixing: FloatArray
) -> tuple[Array, Array | None]:
    """Return which records (k,) reproduce the gradient, and their labels if determined.

    One unknown record needs no proof. In a batch, two neurons that agree may both have seen the
    same mixture, as neighbouring bins of an imprint do. Only a complete set of records can be
    passed through the network and compared.
    """
    from exhume.attacks.gradients.analytic.label_inference import single_label
    from exhume.attacks.gradients.analytic.unmixed_answer import CREDIBLE

    if observed.count == 1:
        label = single_label(observed)
        return np.array([True]), None if label is None else np.array([label])
    if len(unmixing) < max(factors.rank, observed.count):
        return np.zeros(len(unmixing), dtype=bool), None
    returned = observed.consistency(factors).returned(unmixing)
    classes = observed.step.classes
    labels = None if classes is None else np.asarray(classes)[returned.labels]
    return returned.residual < CREDIBLE, labels
