"""Training records that a fitted estimator contains: neighbours, support vectors, kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.attacks.estimators.encoded_rows import EncodedRows
from exhume.attacks.estimators.refit import FittedRelease, read_fitted
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release

_SHARE = 0.5
"""An array counts as a store of records if at least this many of its rows are known records."""


@dataclass(frozen=True, eq=False)
class RecordStore:
    """A released array whose rows are training records: its path, and its unknown rows."""

    path: str
    rows: int
    known: int
    strangers: FloatArray


@dataclass(frozen=True)
class StoredRecords(ParsedAttack[FittedRelease]):
    """Reads training records that the release contains as they are; no search is needed.

    If a released array contains known records, its unknown row is the missing record. In a
    pipeline, rows are compared after its released steps, and then transformed back.
    """

    name: ClassVar[str] = "stored-records"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.ESTIMATOR

    def parse(self, release: Release, knowledge: Knowledge) -> FittedRelease | Refusal:
        """Return why there are no fitted attributes to read, or None."""
        return read_fitted(release, knowledge)

    def _solve(self, problem: FittedRelease, rng: np.random.Generator) -> Reconstruction:
        encoded = EncodedRows(problem)
        stores = list(stores_of(problem.attributes, encoded.rows))
        if not stores:
            why = "no released array holds training records"
            return nothing(problem.knowledge, Status.NO_INFORMATION, why)
        carried = "; ".join(f"{s.path}: {s.rows} records, {s.known} of them known" for s in stores)
        found = max(stores, key=lambda store: len(store.strangers)).strangers
        if len(found):
            found = np.concatenate([encoded.back(one) for one in found])
        if not len(found):
            return nothing(
                problem.knowledge,
                Status.NO_INFORMATION,
                f"the release carries training records ({carried}); the target is not among them",
            )
        return Reconstruction(
            found.reshape(-1, *problem.knowledge.record_shape),
            Status.CONVERGED,
            confidence=np.full(len(found), 1.0 / len(found)),
            message=f"the release carries training records: {carried}{_alike(found, stores)}",
            stats={"records carried": max(store.rows for store in stores)},
        )


def _alike(found: FloatArray, stores: Sequence[RecordStore]) -> str:
    """Say it if records that differ are stored alike."""
    strangers = max(len(store.strangers) for store in stores)
    more = len(found) - strangers
    return f"; {len(found)} records are stored like this" if more > 0 else ""


def stores_of(attributes: Mapping[str, Array], rows: FloatArray) -> Iterator[RecordStore]:
    """Yield every released array whose rows include records like ``rows`` (n, features)."""
    known = {_key(row) for row in rows}
    for path, array in attributes.items():
        if array.ndim == 1 and rows.shape[1] == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != rows.shape[1] or array.dtype.kind != "f":
            continue
        there = np.array([_key(row) in known for row in array], dtype=bool)
        if len(there) > 1 and there.mean() > _SHARE:
            strangers = np.unique(np.asarray(array[~there], dtype=np.float64), axis=0)
            yield RecordStore(path, len(array), int(there.sum()), strangers)


def _key(row: Array) -> bytes:
    # Single precision without its last bits: estimators store records in their own precision.
    return np.asarray(np.asarray(row, dtype=np.float64), dtype=np.float32).tobytes()
