"""Filling an order of shadow models: what the cache does not hold is trained, then read as a set.

A set of up to ``MOST_BYTES`` is in memory. A larger one is a file of the cache that is mapped: it
is written chunk by chunk, and attacks read it block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.cache import Cache, shelf_name, user_cache
from exhume.runtime.cache_rows import keep_rows, kept_rows, subtract
from exhume.runtime.fingerprint import fingerprint
from exhume.shadows.first_order import maker_for
from exhume.shadows.maker import Maker
from exhume.shadows.order import FEWEST, MOST_BYTES, Order
from exhume.shadows.shadow_set import ShadowSet
from exhume.training.network import Training
from exhume.training.own_loop import Loop


@dataclass(frozen=True, eq=False)
class Chunk:
    """Shadow targets that are trained together; the cache keeps their models by shelf and name."""

    targets: Records
    shelf: str
    name: str


def train_chunk(order: Order, chunk: Chunk) -> Array | None:
    """Train the models of one chunk in whatever process this is.

    None where the training is refused: the attack that asks for these models says why.
    """
    from exhume.runtime.threads import one_thread

    with one_thread():
        try:
            return _own_maker(order).rows(chunk.targets, chunk.name)
        except InputError:
            return None


@lru_cache(maxsize=1)
def _own_maker(order: Order) -> Maker:
    return maker_for(order, user_cache())


@lru_cache(maxsize=1)
def shadows_of(order: Order) -> ShadowSet:
    """Fill an order, using the user's cache; the last one stays in memory.

    Raises InputError if training diverges without a target, or with almost all of them.
    """
    return filled(order, user_cache())


def filled(order: Order, cache: Cache) -> ShadowSet:
    """Train what the cache doesn't hold, sharing the work with other processes that want it too.

    Chunks that another process is training are left to it, and waited for at the end.
    """
    maker = maker_for(order, cache)
    if not maker.source:
        cache = Cache(None)
    shelf = shelf_name("shadows", maker.source or "0" * 32)
    base = cache.computed(shelf, "base", lambda: {"base": maker.base()}, about="base", wait=True)
    assert base is not None
    filling = _Filling(order, maker, cache, _chunks(order, maker, shelf), base["base"])
    size = 4 * len(order.layout.columns())
    if size * len(order.targets) <= MOST_BYTES:
        return filling.in_memory(filling.chunks)
    found = filling.mapped() if cache.folder is not None else None
    # Where nothing can be stored, memory holds as many as it may.
    most = max(FEWEST, MOST_BYTES // size) // maker.chunk
    return found or filling.in_memory(filling.chunks[: max(1, most)])


def chunks_left(order: Order, cache: Cache) -> list[Chunk]:
    """Return what the cache doesn't hold of an order; nothing where it could not be kept."""
    maker = maker_for(order, cache)
    if cache.folder is None or not maker.source:
        return []
    chunks = _chunks(order, maker, shelf_name("shadows", maker.source))
    return [one for one in chunks if not cache.holds(one.shelf, one.name)]


def keep_chunk(cache: Cache, chunk: Chunk, rows: Array | None) -> None:
    """Keep what ``train_chunk`` returned for whoever fills the order."""
    if rows is not None:
        cache.keep(chunk.shelf, chunk.name, {"rows": rows}, about=_about(chunk.targets))


def _chunks(order: Order, maker: Maker, shelf: str) -> list[Chunk]:
    firsts = range(0, len(order.targets), maker.chunk)
    parts = [order.targets.take(slice(i, i + maker.chunk)) for i in firsts]
    return [Chunk(part, shelf, fingerprint(part)[:40]) for part in parts]


def _about(targets: Records) -> str:
    return f"{len(targets)} shadow models"


def _settings(training: Training | Loop) -> str:
    return training.describe() if isinstance(training, Loop) else training.optimiser.describe()


class _Filling:
    """An order on its way to a set: its chunks, and how their rows are read as differences."""

    def __init__(
        self, order: Order, maker: Maker, cache: Cache, chunks: list[Chunk], base: FloatArray
    ) -> None:
        self.order, self.maker, self.cache = order, maker, cache
        self.chunks, self.base = chunks, base
        self.columns = order.layout.columns()
        self.centre: FloatArray | float = 0.0
        if order.repeatable:
            blank = np.zeros((1, len(base)))
            self.centre = order.layout.read(maker.released(blank, base, -1))[0]

    def in_memory(self, chunks: list[Chunk]) -> ShadowSet:
        """Return the set of these chunks as one array."""
        found: dict[int, Array] = {}
        for wait in (False, True):
            for i, chunk in enumerate(chunks):
                rows = None if i in found else self.rows(chunk, wait=wait)
                if rows is not None:
                    found[i] = rows
        count = sum(len(chunk.targets) for chunk in chunks)
        differences = np.empty((count, len(self.columns)), dtype=np.float32)
        for i in sorted(found):
            first = i * self.maker.chunk
            differences[first : first + len(found[i])] = self.differences(i, found[i])
        sound = np.asarray(np.isfinite(differences).all(axis=1))
        if not sound.all():
            differences = differences[sound]
        middle = self.middle(sound)
        if middle is None:
            # The only possible base is the mean of the shadow models.
            middle = differences.mean(axis=0, dtype=np.float64)
            differences -= middle.astype(np.float32)
        return self.gathered(differences, middle, sound)

    def mapped(self) -> ShadowSet | None:
        """Return the set as a mapped file of the cache; None where it could not be written."""
        shelf, name = shelf_name("sets", self.maker.source), self.order.key[:40]
        with self.cache.turn(shelf, name, wait=True):
            found = self._mapped(shelf, name)
            if found is None and self._written(shelf, name):
                found = self._mapped(shelf, name)
        return found

    def _mapped(self, shelf: str, name: str) -> ShadowSet | None:
        beside = self.cache.load(shelf, f"{name}-base")
        rows = None if beside is None else kept_rows(self.cache, shelf, name)
        if beside is None or rows is None:
            return None
        return self.gathered(rows, beside["base"], beside["sound"])

    def _written(self, shelf: str, name: str) -> bool:
        """Train every chunk, then write all differences, one chunk in memory at a time."""
        for wait in (False, True):
            for chunk in self.chunks:
                if not self.cache.problem and not self.cache.holds(chunk.shelf, chunk.name):
                    self.rows(chunk, wait=wait)
        if self.cache.problem:
            return False
        sound = np.zeros(len(self.order.targets), dtype=bool)
        total = np.zeros(len(self.columns))

        def blocks() -> Iterator[Array]:
            for i, chunk in enumerate(self.chunks):
                rows = self.rows(chunk, wait=True)
                assert rows is not None
                block = self.differences(i, rows)
                finite = np.isfinite(block).all(axis=1)
                sound[i * self.maker.chunk :][: len(block)] = finite
                block = block[finite]
                total[:] += block.sum(axis=0, dtype=np.float64)
                yield block

        def centred(rows: Array) -> None:
            if self.middle(sound) is None:
                subtract(rows, (total / max(1, len(rows))).astype(np.float32))

        shape = (len(self.order.targets), len(self.columns))
        keep_rows(
            self.cache,
            shelf,
            name,
            shape,
            blocks(),
            finish=centred,
            about=_about(self.order.targets),
        )
        middle = self.middle(sound)
        middle = total / max(1, int(sound.sum())) if middle is None else middle
        self.cache.keep(shelf, f"{name}-base", {"base": middle, "sound": sound}, about="base")
        return not self.cache.problem

    def rows(self, chunk: Chunk, *, wait: bool) -> Array | None:
        """Return one chunk's rows, or None while another process is training them."""
        found = self.cache.computed(
            chunk.shelf,
            chunk.name,
            lambda: {"rows": self.maker.rows(chunk.targets, chunk.name)},
            about=_about(chunk.targets),
            wait=wait,
        )
        return None if found is None else found["rows"]

    def differences(self, index: int, rows: Array) -> Array:
        """Return the rows of a chunk as the numbers that attacks compare, float32."""
        with np.errstate(invalid="ignore", over="ignore"):
            released = self.maker.released(rows, self.base, index * self.maker.chunk)
            found = self.order.layout.read(released) - self.centre
            return found[:, self.columns].astype(np.float32)

    def middle(self, sound: Array) -> FloatArray | None:
        """Return the base of all differences; None where it is their mean."""
        if sound.sum() < FEWEST:
            raise InputError(
                f"{int((~sound).sum())} of {len(sound)} shadow models diverged: "
                f"{_settings(self.order.training)}"
            )
        return np.asarray(self.centre)[self.columns] if self.order.repeatable else None

    def gathered(self, differences: Array, middle: FloatArray, sound: Array) -> ShadowSet:
        """Return the set of the sound models among the first ones."""
        whole = sound.all() and len(sound) == len(self.order.targets)
        targets = self.order.targets if whole else self.order.targets.take(np.flatnonzero(sound))
        return ShadowSet(
            self.order,
            differences,
            middle,
            targets,
            int((~sound).sum()),
            len(self.order.targets) - len(sound),
            self.cache.problem,
            self.maker.errors,
        )
