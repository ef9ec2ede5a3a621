"""Arrays out of a run folder: the targets, their nearest known records, what attacks rebuilt.

Artefacts may have been removed, or damaged: a report without them is still a report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.arrays import Array
from exhume.audit.record import Record
from exhume.audit.store import Store
from exhume.errors import InputError
from exhume.report.facts import Facts


@dataclass(frozen=True, eq=False)
class Truth:
    """The targets of a setting and the nearest record that the adversary had to each of them."""

    targets: Array
    nearest: Array


def read_truth(store: Store, facts: Facts) -> Truth | None:
    """Return a setting's targets, or None where they are not known or were removed."""
    if not facts.truth:
        return None
    arrays = _arrays(store, facts.truth)
    targets, nearest = arrays.get("targets"), arrays.get("nearest")
    if targets is None or nearest is None or targets.shape != nearest.shape:
        return None
    return Truth(targets, nearest) if targets.shape[1:] == facts.record_shape else None


def first_candidates(store: Store, records: Sequence[Record], facts: Facts) -> list[Array | None]:
    """Return the best candidate of each trial, None where there is none; reads each file once."""
    places = defaultdict(list)
    for place, record in enumerate(records):
        if record.artefact:
            places[record.artefact].append(place)
    found: list[Array | None] = [None] * len(records)
    for name, wanted in places.items():
        arrays = _arrays(store, name)
        for place in wanted:
            samples = arrays.get(f"{records[place].row}.samples")
            if samples is not None and samples.shape[1:] == facts.record_shape and len(samples):
                found[place] = np.array(samples[0], dtype=np.float64)
    return found


def true_errors(
    store: Store, records: Sequence[Record], facts: Facts, truth: Truth
) -> list[float | None]:
    """Return each candidate's root-mean-square error in the record's own units.

    An attack's error estimate is in these units, ``Record.distance`` in those of the metric.
    """
    candidates = first_candidates(store, records, facts)
    return [
        None if sample is None else _rms(sample - truth.targets[record.trial.target])
        for record, sample in zip(records, candidates, strict=True)
    ]


def _rms(difference: Array) -> float:
    return float(np.sqrt(np.mean(np.square(difference))))


def _arrays(store: Store, name: str) -> dict[str, Array]:
    try:
        return store.arrays(name)
    except InputError:
        return {}
