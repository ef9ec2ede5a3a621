"""Restarts of the stationarity searches, and the merging of their candidates into one answer.

Candidates on which several restarts agree come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from exhume.attacks.weights_only.adam_search import RestartEnds, Schedule, search
from exhume.attacks.weights_only.record_counts import class_names
from exhume.attacks.weights_only.row_span import Coordinates
from exhume.attacks.weights_only.starts import Start
from exhume.attacks.weights_only.stationarity import StationarityProblem
from exhume.metrics.error import NCC
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import nothing
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status


@torch.no_grad()
def restarted(
    problem: StationarityProblem,
    span: Coordinates,
    classes: Array,
    knowledge: Knowledge,
    schedule: Schedule,
    start: Start,
    multipliers: tuple[float, float],
    restarts: int,
    rng: np.random.Generator,
    *,
    from_centre: bool,
) -> RestartEnds:
    """Search from ``restarts`` random draws of records and multipliers, all in one batch."""
    drawn = start.draw(restarts * len(classes), knowledge.record_shape, rng)
    x = torch.tensor(drawn.reshape(restarts, len(classes), -1), dtype=torch.float32)
    if from_centre:
        x = x + span.centre
    sizes = rng.uniform(*multipliers, size=(restarts, len(classes)))
    return search(
        problem,
        span,
        span.coordinates(x),
        torch.tensor(np.log(sizes), dtype=torch.float32),
        torch.tensor(classes),
        schedule,
        knowledge.value_range,
    )


def merged(
    end: RestartEnds, span: Coordinates, classes: Array, knowledge: Knowledge, size: float
) -> Reconstruction:
    """Merge the restarts: sort by agreement, then by multiplier times the record's norm."""
    q = end.q
    values = end.values.numpy() / size
    if not (np.isfinite(values).all() and bool(q.isfinite().all())):
        return nothing(knowledge, Status.NOT_CONVERGED, "the search diverged to non-finite values")
    records = span.map.records(q).numpy().astype(np.float64)
    multipliers = end.multipliers.numpy()
    centred = records - span.centre.numpy()
    pull = (multipliers * np.linalg.norm(centred, axis=2)).ravel()
    restart = np.repeat(np.arange(len(values)), len(classes))
    # A restart that ended far above the best one carries less evidence.
    trust = np.repeat(values.min() / np.maximum(values, 1e-30), len(classes))
    groups = grouped(centred.reshape(-1, centred.shape[2]), pull * trust, restart)
    order = np.argsort(-groups.agreement, kind="stable")[: len(classes)]
    members = groups.members[order]
    samples = records.reshape(-1, records.shape[2])[members]
    names = class_names(knowledge)
    labels = None if names is None else np.asarray(names)[np.tile(classes, len(values))[members]]
    return Reconstruction(
        samples.reshape(-1, *knowledge.record_shape),
        Status.APPROXIMATE,
        labels=labels,
        confidence=groups.agreement[order],
        message="a small residual does not make a candidate real",
        stats={
            "residual": float(values.min()),
            "initial": float(end.initial.min()) / size,
            "restarts": len(values),
            "rank": span.rank,
        },
    )


ALIKE = 0.9
"""Two candidates count as the same record from this normalised correlation on."""


@dataclass(frozen=True, eq=False)
class Groups:
    """``members`` (k,): the best candidate of each group, best group first.

    ``agreement`` (k,) is the share of all restarts that have a candidate in the group.
    """

    members: Array
    agreement: FloatArray


def grouped(samples: FloatArray, quality: FloatArray, restart: Array) -> Groups:
    """Group similar candidates (n, d), the best one first; higher ``quality`` (n,) is better.

    ``restart`` (n,) is the restart of each candidate.
    """
    alike = _correlations(samples) > ALIKE
    restarts = len(np.unique(restart))
    free = np.ones(len(samples), dtype=bool)
    members: list[int] = []
    agreement: list[float] = []
    for i in np.argsort(-quality, kind="stable"):
        if free[i]:
            group = alike[i] & free
            members.append(int(i))
            agreement.append(len(np.unique(restart[group])) / restarts)
            free &= ~group
    return Groups(np.array(members, dtype=np.intp), np.array(agreement))


def _correlations(samples: FloatArray) -> FloatArray:
    """Return the normalised correlation of every pair (n, n)."""
    return np.asarray(NCC().pairwise(samples, samples))
