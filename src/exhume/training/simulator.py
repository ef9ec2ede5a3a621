"""The result of training with one more record: the map that informed attacks invert."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training.network import DPClipping, Training


class Simulator(ABC):
    """θ(x, y): the parameters after training on a fixed set and one record, for many records.

    Results are differences to ``base``, the same training with the record's loss weighted 0. The
    differences carry the signal, so they must be precise. The record is the last training record,
    as in a mechanism. Only trainings that can be repeated exactly have a simulator. Noise under
    clipping is omitted (the simulator then gives the noiseless run).
    """

    training: Training
    fixed_set: Records

    @abstractmethod
    def __init__(self, training: Training, fixed_set: Records) -> None:
        """Set up for one training; additional options of an engine have defaults."""

    @property
    @abstractmethod
    def base(self) -> FloatArray:
        """Return θ (P,), float64, of the training in which the record has weight 0."""

    @abstractmethod
    def differences(self, x: Array, y: Array) -> FloatArray:
        """Return θ(xᵢ, yᵢ) − base (k, P) of records ``x`` (k, *record shape).

        ``y`` (k,) are responses as ``Training.responses`` gives them: class indices or numbers.
        """


class PlainSimulator(Simulator):
    """One training after the other in float64, by the plain loop: the slow reference."""

    def __init__(self, training: Training, fixed_set: Records) -> None:
        self.training, self.fixed_set = repeatable(training), fixed_set
        self._objective = self.training.objective("float64")
        blank = np.zeros((1, *fixed_set.record_shape))
        self._base = self._trained(blank, fixed_set.labels[:1], 0.0)

    @property
    def base(self) -> FloatArray:
        """Return θ (P,) of the training in which the record has weight 0."""
        return self._base

    def differences(self, x: Array, y: Array) -> FloatArray:
        """Return θ(xᵢ, yᵢ) − base (k, P), one by one."""
        self.training.require_shape(x)
        classes = self.training.classes
        labels = np.asarray(y) if classes is None else np.asarray(classes)[np.asarray(y)]
        found = [self._trained(x[i : i + 1], labels[i : i + 1], 1.0) for i in range(len(x))]
        return np.array(found).reshape(len(x), len(self._base)) - self._base

    def _trained(self, x: Array, label: Array, weight: float) -> FloatArray:
        fixed = self.fixed_set
        own = np.ones(len(fixed)) if fixed.weight is None else fixed.weight
        weighted = Records(fixed.x, fixed.y, own)
        data = weighted.with_record(Records(x, label, np.array([weight])))
        theta = self.training.run(self._objective, data, rng=np.random.default_rng(0))
        return np.asarray(theta.cpu().numpy(), dtype=np.float64)


def repeatable(training: Training) -> Training:
    """Return the training without its noise; raises InputError if it can't be repeated."""
    if training.clipping is not None:
        training = replace(training, clipping=DPClipping(training.clipping.norm, 0.0))
    if not training.initial.known:
        raise InputError("the initialisation is not known: the training can't be repeated")
    if training.batches is not None and not training.batches.known:
        raise InputError("the order of the mini-batches is not known: it can't be repeated")
    if not training.draws_known:
        raise InputError("the draws of dropout and augmentation are not known (draw_seed)")
    return training


def simulator_for(training: Training, fixed_set: Records) -> Simulator:
    """Return the fastest simulator for this training.

    Convolutions run one model at a time: measurements show no gain from vectorising over models.
    """
    from exhume.training.many_mlps import FoldedSimulator, unfoldable
    from exhume.training.many_models import BatchedSimulator, fitting

    if unfoldable(training) is None:
        return FoldedSimulator(training, fixed_set)
    if not one_at_a_time(training) and fitting(training, len(fixed_set)) > 1:
        return BatchedSimulator(training, fixed_set)
    return PlainSimulator(training, fixed_set)


def one_at_a_time(training: Training) -> bool:
    """Tell whether there is no faster simulator than the plain one, whatever the fixed set."""
    from exhume.models.mlp import MLP
    from exhume.training.many_mlps import unfoldable
    from exhume.training.many_models import unbatchable

    if unfoldable(training) is None:
        return False
    return not isinstance(training.network, MLP) or unbatchable(training) is not None
