"""The target's label, inferred from the release, and the records to start from.

A few records of every class of the fixed set are simulated as the target; all targets are compared
with them. Three kinds of evidence are added: the cosine of the whole differences, that of the
layers above the first, and that of the hidden signal. The hidden signal is read where the fixed set
can't hide it: outside the span of its inputs, and in the directions in which they vary least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exhume.attacks.informed.trajectory.many_targets.first_layer_inverse import SignalSimulator
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.seeds import stream
from exhume.training.fixed_set_run import Nominal

_A_CLASS = 9
_WEAK = 60


@dataclass(frozen=True, eq=False)
class Probes:
    """Records simulated as targets: ``x`` (m, inputs), ``responses`` (m,), ``differences`` (m, P).

    ``signals`` (m, width) are unit vectors, the hidden signals.
    """

    x: FloatArray
    responses: Array
    differences: FloatArray
    signals: FloatArray

    def starts(self, observed: FloatArray, response: float) -> FloatArray:
        """Return the probes of a class, the one with the highest cosine first."""
        own = np.flatnonzero(self.responses == response)
        order = np.argsort(-_cosines(observed, self.differences[own]), kind="stable")
        return np.asarray(self.x[own[order]])


def simulate_probes(simulator: SignalSimulator) -> Probes:
    """Simulate each class's mean and up to nine of its records.

    For a class without records in the fixed set, the other records are simulated under its label.
    """
    fixed, training = simulator.fixed_set, simulator.training
    x = np.asarray(fixed.x, dtype=np.float64).reshape(len(fixed), -1)
    responses = training.responses(fixed.labels)
    rng = stream(0, "trajectory-inversion", "probes")
    chosen, labels = [], []
    for response in range(training.network.outputs):
        own = np.flatnonzero(responses == response)
        own = own if len(own) else np.arange(len(x))
        picked = rng.permutation(own)[:_A_CLASS]
        chosen += [x[own].mean(axis=0, keepdims=True), x[picked]]
        labels += [response] * (1 + len(picked))
    rows = np.concatenate(chosen)
    differences = simulator.differences(rows.reshape(-1, *fixed.record_shape), np.array(labels))
    finite = np.isfinite(differences).all(axis=1)
    differences = differences[finite]
    signals = np.array([hidden_signal(simulator.nominal, one) for one in differences])
    return Probes(rows[finite], np.array(labels)[finite], differences, signals)


def evidence(nominal: Nominal, observed: FloatArray, probes: Probes) -> FloatArray:
    """Return the evidence for each label, (classes,), at most 2.5."""
    whole = _cosines(observed, probes.differences)
    deeper = observed.size - nominal.widths[1] * (nominal.widths[0] + 1)
    last = _cosines(observed[-deeper:], probes.differences[:, -deeper:])
    hidden = np.abs(probes.signals @ hidden_signal(nominal, observed))
    found = np.zeros(nominal.widths[-1])
    for response in range(len(found)):
        own = probes.responses == response
        if own.any():
            found[response] = whole[own].max() + hidden[own].max() + 0.5 * last[own].max()
    return found


def hidden_signal(nominal: Nominal, difference: FloatArray) -> FloatArray:
    """Return the first layer's top left singular vector (width,) outside the fixed set's reach."""
    left, _, _ = np.linalg.svd(unmasked(nominal, difference, _WEAK), full_matrices=False)
    return np.asarray(left[:, 0])


def unmasked(nominal: Nominal, difference: FloatArray, weak: int) -> FloatArray:
    """Return the first layer's change (width, inputs + 1) outside the fixed set's span.

    The ``weak`` directions in which the fixed set varies least count as outside, up to a quarter.
    """
    first, _ = nominal.layers(difference)
    rank = nominal.basis.shape[1]
    strong = nominal.basis[:, : rank - min(weak, rank // 4)]
    return np.asarray(first - (first @ strong) @ strong.T)


def _cosines(observed: FloatArray, differences: FloatArray) -> FloatArray:
    size = np.linalg.norm(differences, axis=1) * np.linalg.norm(observed)
    return np.asarray(differences @ observed / np.maximum(size, 1e-300))
