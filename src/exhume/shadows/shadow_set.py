"""Shadow models: what the release would look like, for records that the adversary has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.errors import InputError
from exhume.records import Records
from exhume.release import Release
from exhume.shadows.cache import Cache, shelf_name, user_cache
from exhume.shadows.fingerprint import fingerprint
from exhume.shadows.making import Maker, maker_for, train_chunk
from exhume.shadows.order import FEWEST, Order

if TYPE_CHECKING:
    from exhume.audit.executors import Executor

CHUNK = 64
"""Shadow models are trained, kept and shared between processes this many at a time."""
_FAR = 5.0


@dataclass(frozen=True, eq=False)
class ShadowSet:
    """k shadow releases as differences to ``base`` (P,), and the records that made them.

    ``differences`` (k, P) is float32. Where the training can be repeated exactly, ``base`` is its
    outcome without any target; else it is the mean of the shadow releases. ``diverged`` shadow
    models are left out. ``problem`` says why the models could not be kept for next time.
    """

    order: Order
    differences: Array
    base: FloatArray
    targets: Records
    diverged: int = 0
    problem: str = ""

    def __len__(self) -> int:
        return len(self.differences)

    def read(self, release: Release) -> FloatArray:
        """Return a release's own difference to the base (P,), float64."""
        layout = self.order.layout
        return np.asarray(layout.vector(release)[layout.columns()] - self.base)

    @cached_property
    def _longest(self) -> float:
        rows = np.einsum("kp,kp->k", self.differences, self.differences, dtype=np.float64)
        return float(np.sqrt(rows.max()))

    def far_off(self, difference: FloatArray) -> bool:
        """Tell whether a difference is much longer than any shadow's: another training made it."""
        size = float(np.abs(difference).max(initial=0.0))
        if size <= _FAR * self._longest:
            size = float(np.linalg.norm(difference))
        return size > _FAR * self._longest

    def note(self) -> str:
        """Say what a reader of results should know about these shadow models."""
        parts = []
        if self.order.left_out:
            parts.append(f"{self.order.left_out} shadow targets are in the fixed set: left out")
        if self.diverged:
            parts.append(f"{self.diverged} shadow models diverged: left out")
        if self.problem:
            parts.append(f"shadow models are not kept for next time: {self.problem}")
        return "; ".join(parts)


@lru_cache(maxsize=1)
def shadows_of(order: Order) -> ShadowSet:
    """Fill an order, from the user's cache as far as it goes; the last one stays in memory.

    Raises InputError where training diverges without a target, or with all but a few of them.
    """
    return filled(order, user_cache())


def filled(order: Order, cache: Cache, executor: Executor | None = None) -> ShadowSet:
    """Train what the cache doesn't hold, sharing the work with other processes that want it too.

    An ``executor`` has its own do it, with the same result to the last bit. Chunks that another
    process is training are left to it, and waited for at the end.
    """
    maker = maker_for(order)
    if not maker.source:
        cache = Cache(None)
    shelf = shelf_name("shadows", maker.source or "0" * 32)
    base = cache.computed(shelf, "base", lambda: {"base": maker.base()}, about="base", wait=True)
    chunks = _chunks(order)
    found = {} if executor is None else _shared_out(order, cache, shelf, executor)
    for wait in (False, True):
        for i, (targets, _) in enumerate(chunks):
            rows = None if i in found else _rows(maker, targets, cache, shelf, wait=wait)
            if rows is not None:
                found[i] = rows
    assert base is not None
    return _gathered(order, maker, found, base["base"], cache.problem)


def train_ahead(order: Order, cache: Cache, executor: Executor) -> int:
    """Have an executor train what the cache doesn't hold, and keep it; return how many models.

    Nothing is trained where it could not be kept.
    """
    source = maker_for(order).source
    if cache.folder is None or not source:
        return 0
    found = _shared_out(order, cache, shelf_name("shadows", source), executor)
    return sum(len(rows) for rows in found.values())


def _chunks(order: Order) -> list[tuple[Records, str]]:
    """Return the targets that are trained together, and the name that their models go by."""
    parts = [order.targets.take(slice(i, i + CHUNK)) for i in range(0, len(order.targets), CHUNK)]
    return [(part, fingerprint(part)[:40]) for part in parts]


def _shared_out(order: Order, cache: Cache, shelf: str, executor: Executor) -> dict[int, Array]:
    """Return the rows of chunks that weren't kept yet, by their places."""
    todo = [
        (i, chunk) for i, chunk in enumerate(_chunks(order)) if cache.load(shelf, chunk[1]) is None
    ]
    found = {}
    for place, rows in executor.map(train_chunk, order, [chunk for _, chunk in todo]):
        i, (targets, name) = todo[place]
        cache.keep(shelf, name, {"rows": rows}, about=_about(targets))
        found[i] = rows
    return found


def _about(targets: Records) -> str:
    return f"{len(targets)} shadow models"


def _rows(maker: Maker, targets: Records, cache: Cache, shelf: str, *, wait: bool) -> Array | None:
    """Return one chunk's rows, or None while another process is training them."""
    name = fingerprint(targets)[:40]
    found = cache.computed(
        shelf, name, lambda: {"rows": maker.rows(targets, name)}, about=_about(targets), wait=wait
    )
    return None if found is None else found["rows"]


def _gathered(
    order: Order, maker: Maker, chunks: dict[int, Array], base: FloatArray, problem: str
) -> ShadowSet:
    layout, columns = order.layout, order.layout.columns()
    exact = order.repeatable
    centre = layout.read(maker.released(np.zeros((1, len(base))), base, -1))[0] if exact else 0.0
    differences = np.empty((len(order.targets), len(columns)), dtype=np.float32)
    for i in sorted(chunks):
        first = i * CHUNK
        with np.errstate(invalid="ignore", over="ignore"):
            rows = layout.read(maker.released(chunks[i], base, first)) - centre
        differences[first : first + len(rows)] = rows[:, columns]
    sound = np.asarray(np.isfinite(differences).all(axis=1))
    if sound.sum() < FEWEST:
        raise InputError(
            f"{int((~sound).sum())} of {len(sound)} shadow models diverged: "
            f"{order.training.optimiser.describe()}"
        )
    if not sound.all():
        differences = differences[sound]
    targets = order.targets if sound.all() else order.targets.take(np.flatnonzero(sound))
    if exact:
        middle = np.asarray(centre)[columns]
    else:
        # Nothing to measure from but the shadow models themselves.
        middle = differences.mean(axis=0, dtype=np.float64)
        differences -= middle.astype(np.float32)
    return ShadowSet(order, differences, middle, targets, int((~sound).sum()), problem)
