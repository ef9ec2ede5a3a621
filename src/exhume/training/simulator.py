"""What training would have ended in with one more record: the map that informed attacks invert."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.errors import InputError
from exhume.records import Records
from exhume.training.network import Clipping, Training


class Simulator(ABC):
    """θ(x, y): the parameters after training on a fixed set and one record, for many records.

    Results are differences to ``base``, the same training with the record's loss weighted 0: the
    differences carry the signal, so they are what must be precise. The record stands last among
    the training records, as a mechanism is given it. Only trainings that can be repeated exactly
    have a simulator; noise under clipping is left out (the simulator then gives the noiseless run).
    """

    training: Training
    fixed_set: Records

    @abstractmethod
    def __init__(self, training: Training, fixed_set: Records) -> None:
        """Set up for one training; options of an engine's own have defaults."""

    @property
    @abstractmethod
    def base(self) -> FloatArray:
        """Return θ (P,), float64, of the training in which the record counts nothing."""

    @abstractmethod
    def differences(self, x: Array, y: Array) -> FloatArray:
        """Return θ(xᵢ, yᵢ) − base (k, P) of records ``x`` (k, *record shape).

        ``y`` (k,) are responses as ``Training.responses`` gives them: class indices or numbers.
        """


class PlainSimulator(Simulator):
    """One training after the other in float64, by the plain loop: the reference, and slow."""

    def __init__(self, training: Training, fixed_set: Records) -> None:
        self.training, self.fixed_set = repeatable(training), fixed_set
        self._objective = self.training.objective("float64")
        blank = np.zeros((1, *fixed_set.record_shape))
        self._base = self._trained(blank, fixed_set.labels[:1], 0.0)

    @property
    def base(self) -> FloatArray:
        """Return θ (P,) of the training in which the record counts nothing."""
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
    """Return the training without its noise; raise InputError where it can't be repeated."""
    if training.clipping is not None:
        training = replace(training, clipping=Clipping(training.clipping.norm, 0.0))
    if not training.initial.known:
        raise InputError("the initialisation is not known: the training can't be repeated")
    if training.batches is not None and not training.batches.known:
        raise InputError("the order of the mini-batches is not known: it can't be repeated")
    return training


def simulator_for(training: Training, fixed_set: Records) -> Simulator:
    """Return the fastest simulator there is for this training.

    Convolutions go one model at a time: measured, vectorising them over models gains nothing.
    """
    from exhume.models.mlp import MLP
    from exhume.training.batched import BatchedSimulator, fitting, unbatchable
    from exhume.training.folded import FoldedSimulator, unfoldable

    if unfoldable(training) is None:
        return FoldedSimulator(training, fixed_set)
    gains = isinstance(training.network, MLP) and unbatchable(training) is None
    if gains and fitting(training, len(fixed_set)) > 1:
        return BatchedSimulator(training, fixed_set)
    return PlainSimulator(training, fixed_set)


_PIECE = 64
"""Records a process is handed at a time: a whole chunk of the folded engine, so that results are
those of one process to the last bit."""
_own: list[Simulator] = []
"""The simulator of a worker process; empty everywhere else."""


def differences_in_processes(
    simulator: Simulator, x: Array, y: Array, *, workers: int
) -> FloatArray:
    """Return ``simulator.differences(x, y)``, computed by ``workers`` processes of one thread each.

    Each process is started anew, sets up a simulator of the same kind with its default options and
    needs its memory, so ``workers`` times one simulator's; a process takes 64 records at a time.
    Worth it from some hundred models on: a process needs a few seconds to start. A script that
    calls this needs the usual ``if __name__ == "__main__":``.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    if workers == 1 or len(x) <= _PIECE:
        return simulator.differences(x, y)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    parts = [slice(start, start + _PIECE) for start in range(0, len(x), _PIECE)]
    setup = (type(simulator), simulator.training, simulator.fixed_set)
    with ProcessPoolExecutor(
        min(workers, len(parts)), get_context("spawn"), initializer=_set_up, initargs=setup
    ) as pool:
        found = pool.map(_piece, [x[part] for part in parts], [y[part] for part in parts])
        return np.concatenate(list(found))


def _set_up(kind: type[Simulator], training: Training, fixed_set: Records) -> None:
    import torch

    torch.set_num_threads(1)
    _own.append(kind(training, fixed_set))


def _piece(x: Array, y: Array) -> FloatArray:
    return _own[0].differences(x, y)
