"""What the searches on stationarity share: restarts from a start, and one answer out of them."""

from __future__ import annotations

import numpy as np
import torch

from exhume.arrays import Array
from exhume.attacks.base import nothing
from exhume.attacks.kkt.counts import class_names
from exhume.attacks.kkt.merging import grouped
from exhume.attacks.kkt.objective import Problem
from exhume.attacks.kkt.search import Candidates, Schedule, search
from exhume.attacks.kkt.span import Coordinates
from exhume.attacks.starts import Start
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status


@torch.no_grad()
def restarted(
    problem: Problem,
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
) -> Candidates:
    """Search from ``restarts`` draws of records and multipliers, all in one batch."""
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
    end: Candidates, span: Coordinates, classes: Array, knowledge: Knowledge, size: float
) -> Reconstruction:
    """Merge the restarts: agreement first, then the multiplier times the record's length."""
    q = end.q
    values = end.values.numpy() / size
    if not (np.isfinite(values).all() and bool(q.isfinite().all())):
        return nothing(knowledge, Status.NOT_CONVERGED, "the search ran away from finite numbers")
    records = span.map.records(q).numpy().astype(np.float64)
    multipliers = end.multipliers.numpy()
    centred = records - span.centre.numpy()
    pull = (multipliers * np.linalg.norm(centred, axis=2)).ravel()
    restart = np.repeat(np.arange(len(values)), len(classes))
    # A restart that ended far above the best one says less.
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
