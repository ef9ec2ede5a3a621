"""Fitted estimators on small tables, as an adversary with all records but one sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_wine

from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction
from exhume.protocol.records import Records
from exhume.training.estimator import Estimator

KNOWN = 120


def table(kind: str, targets: int = 5) -> tuple[Records, Records]:
    """Return known records and targets, in the units of scikit-learn's own tables."""
    loaded = load_wine() if kind == "classes" else load_diabetes(scaled=False)
    order = np.random.default_rng(0).permutation(len(loaded.data))
    all_ = Records(loaded.data[order], loaded.target[order])
    return all_.take(slice(0, KNOWN)), all_.take(slice(KNOWN, KNOWN + targets))


def attacked(
    attack: Attack, template: Any, kind: str, targets: int = 5
) -> tuple[list[Reconstruction], Records, FloatArray]:
    """Return an attack's answers, the truth, and each target's distance to the nearest known."""
    known, own = table(kind, targets)
    estimator = Estimator(template)
    rngs = [np.random.default_rng(i) for i in range(len(own))]
    releases = estimator.publish_each(known, own, rngs=rngs)
    knowledge = Knowledge(record_shape=own.record_shape, training=estimator, fixed_set=known)
    answers = attack.reconstruct_each(releases, [knowledge] * len(own), rngs=rngs)
    nearest = np.array([distance(known.x, x, known).min() for x in own.x])
    return answers, own, nearest


def distance(candidates: FloatArray, x: FloatArray, known: Records) -> FloatArray:
    """Return root-mean-square distances, in deviations of the known records' columns."""
    return np.asarray(np.sqrt(np.mean(((candidates - x) / known.x.std(axis=0)) ** 2, axis=-1)))
