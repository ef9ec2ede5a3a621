"""Arrays from a run folder: the targets, their nearest known records, the reconstructions.

Artefacts may have been removed, or damaged: a report without them is still a report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.runlog.outcome import Outcome
from exhume.runlog.setting import Setting
from exhume.runlog.store import Store


@dataclass(frozen=True, eq=False)
class Truth:
    """The targets of a setting, and the adversary's nearest record to each of them."""

    targets: Array
    nearest: Array


def read_truth(store: Store, setting: Setting) -> Truth | None:
    """Return a setting's targets, or None if they are not known or were removed."""
    if not setting.truth:
        return None
    arrays = _arrays(store, setting.truth)
    targets, nearest = arrays.get("targets"), arrays.get("nearest")
    if targets is None or nearest is None or targets.shape != nearest.shape:
        return None
    return Truth(targets, nearest) if targets.shape[1:] == setting.data.record_shape else None


def first_candidates(
    store: Store, records: Sequence[Outcome], setting: Setting
) -> list[Array | None]:
    """Return the best candidate of each trial, None if there is none; reads each file once."""
    places = defaultdict(list)
    for place, record in enumerate(records):
        if record.artefact:
            places[record.artefact].append(place)
    found: list[Array | None] = [None] * len(records)
    for name, wanted in places.items():
        arrays = _arrays(store, name)
        for place in wanted:
            samples = arrays.get(f"{records[place].row}.samples")
            if (
                samples is not None
                and samples.shape[1:] == setting.data.record_shape
                and len(samples)
            ):
                found[place] = np.array(samples[0], dtype=np.float64)
    return found


def true_errors(
    store: Store, records: Sequence[Outcome], setting: Setting, truth: Truth
) -> list[float | None]:
    """Return each candidate's root-mean-square error in the units of the record.

    An attack's error estimate is in these units, ``Outcome.distance`` in those of the metric.
    """
    candidates = first_candidates(store, records, setting)
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
