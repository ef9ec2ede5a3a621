"""Training shadow models: by the simulator where training can be repeated, else one by one.

A set of shadow models: the releases for records that the adversary has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.defence import Blurring
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Release
from exhume.protocol.seeds import stream
from exhume.runtime.cache import Cache, shelf_name, user_cache
from exhume.runtime.fingerprint import fingerprint
from exhume.shadows.order import FEWEST, Order, source_of, wrappers
from exhume.training.answers import Answers
from exhume.training.network import Training
from exhume.training.own_loop import Loop
from exhume.training.simulator import Simulator, simulator_for


class Maker(ABC):
    """Trains the models of an order, chunk by chunk, and reads them as releases.

    ``source`` names what a chunk's content depends on besides its targets; empty if unknown.
    """

    source: str

    @abstractmethod
    def base(self) -> FloatArray:
        """Return the base of all differences: one vector, float64."""

    @abstractmethod
    def rows(self, targets: Records, name: str) -> Array:
        """Train with each target in turn: one row each, float32, NaN where training diverged."""

    @abstractmethod
    def released(self, rows: Array, base: FloatArray, first: int) -> FloatArray:
        """Return rows as releases laid out in full; ``first`` is the first row's number."""


class Repeated(Maker):
    """Rows are differences to the training without a target; noise is added afterwards."""

    def __init__(self, order: Order) -> None:
        assert isinstance(order.training, Training)
        self._order, self._training = order, order.training
        self._blurs = [one for one in wrappers(order.mechanism) if isinstance(one, Blurring)]
        self._fixed_set = self._prepared(order.fixed_set)
        self.source = source_of(self._training, self._fixed_set)

    @cached_property
    def _simulator(self) -> Simulator:
        return simulator_for(self._training, self._fixed_set)

    def base(self) -> FloatArray:
        """Return the parameters after training without a target."""
        found = np.asarray(self._simulator.base, dtype=np.float64)
        if not np.isfinite(found).all():
            raise InputError(f"training diverged: {self._training.optimiser.describe()}")
        return found

    def rows(self, targets: Records, name: str) -> Array:
        """Return the differences that the targets make (c, P)."""
        x = self._prepared(targets).x
        y = self._training.responses(targets.labels)
        try:
            with np.errstate(all="ignore"):
                return self._simulator.differences(x, y).astype(np.float32)
        except InputError:
            if len(x) == 1:
                return np.full((1, len(self._simulator.base)), np.nan, dtype=np.float32)
            # The training of one target diverged; the others did not.
            return np.concatenate([self.rows(targets.take([i]), name) for i in range(len(x))])

    def released(self, rows: Array, base: FloatArray, first: int) -> FloatArray:
        """Return the release of each trained model."""
        theta = base + np.asarray(rows, dtype=np.float64)
        return self._published(self._order.mechanism, theta, first)

    def _prepared(self, records: Records) -> Records:
        for blur in self._blurs:
            records = blur.prepared(records)
        return records

    def _published(self, mechanism: Mechanism, theta: FloatArray, first: int) -> FloatArray:
        match mechanism:
            case Training():
                return theta
            case Answers():
                values = self._published(mechanism.inner, theta, first)
                return _answers(self._training, mechanism, values)
            case Blurring():
                values = self._published(mechanism.inner, theta, first)
                if first < 0:  # the training without a target, free of noise
                    return values
                size = mechanism.deviation(len(self._fixed_set) + 1)
                return values + size * self._noise(values.shape, first, mechanism.describe())
            case _:
                raise AssertionError(f"{mechanism} is not repeatable")

    def _noise(self, shape: tuple[int, ...], first: int, role: str) -> FloatArray:
        seed = int(self._order.key[:12], 16)
        draws = [
            stream(seed, "shadow", role, first + i).standard_normal(shape[1:])
            for i in range(shape[0])
        ]
        return np.asarray(draws)


class Published(Maker):
    """Rows are releases of the mechanism itself, each with its own random stream."""

    def __init__(self, order: Order) -> None:
        self._order, self.source = order, order.source

    def base(self) -> FloatArray:
        """Return nothing: there is no base training."""
        return np.zeros(1)

    def rows(self, targets: Records, name: str) -> Array:
        """Publish with each target in turn."""
        order = self._order
        found = np.full((len(targets), order.layout.whole), np.nan, dtype=np.float32)
        for i in range(len(targets)):
            rng = stream(0, "shadow", name, i)
            data = order.fixed_set.with_record(targets.take([i]))
            try:
                release = order.mechanism.publish(data, rng=rng)
            except DivergedError:
                continue
            except InputError:
                # A loop of somebody's own that stops with an error says which.
                if isinstance(order.training, Loop):
                    raise
                continue
            reason = order.layout.mismatch(release)
            if reason is not None:
                raise InputError(reason)
            found[i] = order.layout.raw(release)
        return found

    def released(self, rows: Array, base: FloatArray, first: int) -> FloatArray:
        """Return the rows as they are."""
        return np.asarray(rows, dtype=np.float64)


def maker_for(order: Order) -> Maker:
    """Return the fastest way to fill an order."""
    return Repeated(order) if order.repeatable else Published(order)


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
    return maker_for(order)


def _answers(training: Training, asked: Answers, theta: FloatArray) -> FloatArray:
    """Return each model's answers to the queries, (k, queries × outputs)."""
    import torch

    objective = training.objective("float64")
    queries = objective.tensor(asked.queries)
    found = []
    with torch.no_grad():
        for one in theta:
            scores = objective.scores(objective.tensor(one), queries).cpu().numpy()
            found.append(scores if asked.answer is Answer.SCORES else training.means(scores))
    return np.asarray(found, dtype=np.float64).reshape(len(theta), -1)


_FAR = 5.0


@dataclass(frozen=True, eq=False)
class ShadowSet:
    """k shadow releases as differences to ``base`` (P,), and the records that made them.

    ``differences`` (k, P) is float32. Where the training can be repeated exactly, ``base`` is its
    outcome without any target; else it is the mean of the shadow releases. ``diverged`` shadow
    models are omitted. ``problem`` says why the models could not be cached.
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
        """Return whether a difference is much longer than any shadow's: another training."""
        size = float(np.abs(difference).max(initial=0.0))
        if size <= _FAR * self._longest:
            size = float(np.linalg.norm(difference))
        return size > _FAR * self._longest

    def note(self) -> str:
        """Return remarks on these shadow models for the reader of the results."""
        parts = []
        if self.order.left_out:
            parts.append(
                f"{self.order.left_out} shadow targets are in the fixed set and were omitted"
            )
        if self.diverged:
            parts.append(f"{self.diverged} shadow models diverged and were omitted")
        if self.problem:
            parts.append(f"shadow models could not be cached: {self.problem}")
        return "; ".join(parts)


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
    maker = maker_for(order)
    if not maker.source:
        cache = Cache(None)
    shelf = shelf_name("shadows", maker.source or "0" * 32)
    base = cache.computed(shelf, "base", lambda: {"base": maker.base()}, about="base", wait=True)
    chunks, found = _chunks(order, shelf), dict[int, Array]()
    for wait in (False, True):
        for i, chunk in enumerate(chunks):
            rows = None if i in found else _rows(maker, chunk, cache, wait=wait)
            if rows is not None:
                found[i] = rows
    assert base is not None
    return _gathered(order, maker, found, base["base"], cache.problem)


def chunks_left(order: Order, cache: Cache) -> list[Chunk]:
    """Return what the cache doesn't hold of an order; nothing where it could not be kept."""
    source = maker_for(order).source
    if cache.folder is None or not source:
        return []
    chunks = _chunks(order, shelf_name("shadows", source))
    return [one for one in chunks if cache.load(one.shelf, one.name) is None]


def keep_chunk(cache: Cache, chunk: Chunk, rows: Array | None) -> None:
    """Keep what ``train_chunk`` returned for whoever fills the order."""
    if rows is not None:
        cache.keep(chunk.shelf, chunk.name, {"rows": rows}, about=_about(chunk.targets))


def _chunks(order: Order, shelf: str) -> list[Chunk]:
    firsts = range(0, len(order.targets), order.chunk)
    parts = [order.targets.take(slice(i, i + order.chunk)) for i in firsts]
    return [Chunk(part, shelf, fingerprint(part)[:40]) for part in parts]


def _about(targets: Records) -> str:
    return f"{len(targets)} shadow models"


def _rows(maker: Maker, chunk: Chunk, cache: Cache, *, wait: bool) -> Array | None:
    """Return one chunk's rows, or None while another process is training them."""
    found = cache.computed(
        chunk.shelf,
        chunk.name,
        lambda: {"rows": maker.rows(chunk.targets, chunk.name)},
        about=_about(chunk.targets),
        wait=wait,
    )
    return None if found is None else found["rows"]


def _settings(training: Training | Loop) -> str:
    return training.describe() if isinstance(training, Loop) else training.optimiser.describe()


def _gathered(
    order: Order, maker: Maker, chunks: dict[int, Array], base: FloatArray, problem: str
) -> ShadowSet:
    layout, columns = order.layout, order.layout.columns()
    exact = order.repeatable
    centre = layout.read(maker.released(np.zeros((1, len(base))), base, -1))[0] if exact else 0.0
    differences = np.empty((len(order.targets), len(columns)), dtype=np.float32)
    for i in sorted(chunks):
        first = i * order.chunk
        with np.errstate(invalid="ignore", over="ignore"):
            rows = layout.read(maker.released(chunks[i], base, first)) - centre
        differences[first : first + len(rows)] = rows[:, columns]
    sound = np.asarray(np.isfinite(differences).all(axis=1))
    if sound.sum() < FEWEST:
        raise InputError(
            f"{int((~sound).sum())} of {len(sound)} shadow models diverged: "
            f"{_settings(order.training)}"
        )
    if not sound.all():
        differences = differences[sound]
    targets = order.targets if sound.all() else order.targets.take(np.flatnonzero(sound))
    if exact:
        middle = np.asarray(centre)[columns]
    else:
        # The only possible base is the mean of the shadow models.
        middle = differences.mean(axis=0, dtype=np.float64)
        differences -= middle.astype(np.float32)
    return ShadowSet(order, differences, middle, targets, int((~sound).sum()), problem)
