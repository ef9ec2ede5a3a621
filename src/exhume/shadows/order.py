"""An order of shadow models: the training, its records, and the layout of the releases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from exhume.models.base import Network
from exhume.models.initialise import GivenInitialisation
from exhume.protocol.arrays import Array
from exhume.protocol.attack import SHADOW_TARGETS, Lacking
from exhume.protocol.defence import Blurring, Defence
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism, layers
from exhume.protocol.records import Records
from exhume.protocol.release import Answer, Outputs, Release, Weights
from exhume.protocol.version import __version__
from exhume.runtime.cache import user_cache
from exhume.runtime.fingerprint import fingerprint
from exhume.shadows.release_vector import ReleaseVector
from exhume.training.answers import Answers, trained_model
from exhume.training.network import Training
from exhume.training.own_loop import Loop

_TRAINING = "knowledge.training, or release.training"
FEWEST = 8
"""Fewer shadow models are not enough to learn and to validate."""
MOST_BYTES = 1_000_000_000
"""The memory limit of a set's differences; a larger set is a mapped file of the cache."""
_ROUND = 4096
_FORMAT = 1
"""Raised when a new version gives other numbers for the same order."""


@dataclass(frozen=True, eq=False)
class Order:
    """Train ``mechanism`` on ``fixed_set`` with each of ``targets`` added in turn.

    The mechanism publishes the kind of release that is attacked; ``layout`` reads it as a vector.
    ``left_out`` counts shadow targets that were also in the fixed set, ``unaffordable`` those that
    neither memory nor the cache has room for. Orders are equal if their content is.
    """

    mechanism: Mechanism
    fixed_set: Records
    targets: Records
    layout: ReleaseVector
    left_out: int = 0
    unaffordable: int = 0

    @property
    def training(self) -> Training | Loop:
        """The training under any defences and answers."""
        return innermost(self.mechanism)

    @property
    def repeatable(self) -> bool:
        """Whether the adversary can repeat the training step by step, except later noise."""
        return (
            isinstance(self.training, Training)
            and self.training.deterministic
            and self.targets.weight is None
            and all(isinstance(one, Blurring | Answers) for one in wrappers(self.mechanism))
        )

    @cached_property
    def source(self) -> str:
        """The fingerprint of training and fixed set; empty if there is none."""
        source = source_of(self.mechanism, self.fixed_set)
        if not source or not isinstance(self.training, Loop):
            return source
        # Nothing but a release says in which order a loop's parameters come.
        return fingerprint(source, self.layout.blocks)

    @cached_property
    def key(self) -> str:
        """The fingerprint of the whole order."""
        return fingerprint(self.source or id(self), self.targets, self.layout)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@runtime_checkable
class OrdersShadows(Protocol):
    """An attack that learns from shadow models, which may be trained before it runs."""

    def order(self, release: Release, knowledge: Knowledge) -> Order | str:
        """Return the order for a release, or the reason why there is none."""


def order_for(
    release: Release, knowledge: Knowledge, *, layers: tuple[str, ...] | None, most: int
) -> Order | str:
    """Return the order for a release, or the reason why there is none.

    ``layers`` names the parameters to learn from (None: all), ``most`` bounds the shadow models.
    """
    fixed_set, shadows, mechanism = (
        knowledge.fixed_set,
        knowledge.shadow_targets,
        knowledge.training,
    )
    if not isinstance(release, Weights | Outputs):
        return f"reads weights or a model's answers, not {type(release).__name__}"
    if mechanism is None:
        return Lacking("needs the training, to train models like the released one", _TRAINING)
    if fixed_set is None:
        return Lacking(
            "needs the fixed set, to train models like the released one", "knowledge.fixed_set"
        )
    if shadows is None:
        return Lacking("needs shadow targets, records like the target", SHADOW_TARGETS)
    found = _matching(mechanism, release, knowledge.initial)
    if isinstance(found, str):
        return found
    layout = _layout(found, release, layers)
    if isinstance(layout, str):
        return layout
    targets, left_out = disjoint(shadows, fixed_set)
    reason = _too_few(targets, left_out) or _unlabelled(innermost(found), fixed_set, targets)
    if reason is not None:
        return reason
    wanted = min(len(targets), most)
    count = min(wanted, _affordable(wanted, 4 * layout.whole))
    chosen = _first(targets, count, knowledge.target_weight)
    return Order(found, fixed_set, chosen, layout, left_out, wanted - count)


@lru_cache(maxsize=4)
def first_models(order: Order, count: int) -> Order:
    """Return an order of the first models alone; the order itself if it has no more."""
    if len(order.targets) <= count:
        return order
    return replace(order, targets=order.targets.take(slice(count)))


@lru_cache(maxsize=16)
def _affordable(wanted: int, size: int) -> int:
    """Return for how many models of ``size`` bytes there is room, as chunks and as a set."""
    in_memory = max(FEWEST, MOST_BYTES // size)
    if wanted <= in_memory:
        return wanted
    return max(in_memory, user_cache().room() // (2 * size) // _ROUND * _ROUND)


def source_of(mechanism: Mechanism, fixed_set: Records) -> str:
    """Return the fingerprint of a mechanism and a fixed set; empty if there is none."""
    try:
        maker = (_FORMAT, __version__)
        return fingerprint(maker, mechanism, fixed_set, _probe(innermost(mechanism)))
    except InputError:
        return ""


def innermost(mechanism: Mechanism) -> Training | Loop:
    """Return the training of a network under any defences and answers."""
    model = trained_model(mechanism)
    if not isinstance(model, Training | Loop):
        raise InputError(f"{type(model).__name__} does not train a network")
    return model


def wrappers(mechanism: Mechanism) -> list[Defence | Answers]:
    """Return the defences and answers around a training, outermost first."""
    return [one for one in layers(mechanism) if isinstance(one, Defence | Answers)]


@lru_cache(maxsize=4)
def disjoint(shadows: Records, fixed_set: Records) -> tuple[Records, int]:
    """Return the shadow targets that are not in the fixed set, and how many are."""
    known = {row.tobytes() for row in fixed_set.x.astype(np.float32)}
    rows = shadows.x.astype(np.float32)
    own = np.array([row.tobytes() not in known for row in rows], dtype=bool)
    return (shadows if own.all() else shadows.take(np.flatnonzero(own))), int((~own).sum())


@lru_cache(maxsize=16)
def shapes(network: Network) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of every parameter of a network, built once."""
    import torch

    # Building draws parameters from PyTorch's global stream, whose state must not change.
    with torch.random.fork_rng(devices=[]):
        return network.parameter_shapes()


def _started(training: Training | Loop, initial: Mapping[str, Array] | None) -> Training | Loop:
    """Return the training from the known ``initial`` parameters, if they are known."""
    if isinstance(training, Loop) or initial is None or training.initial.known:
        return training
    return replace(training, initial=GivenInitialisation(parameters=initial))


def _matching(
    mechanism: Mechanism, release: Release, initial: Mapping[str, Array] | None
) -> Mechanism | str:
    """Return the mechanism that publishes releases of this kind, or why there is none."""
    around = wrappers(mechanism)
    try:
        inner: Mechanism = _started(innermost(mechanism), initial)
    except InputError:
        return "needs the training of a network (a model with hidden layers)"
    asked = [one for one in around if isinstance(one, Answers)]
    if isinstance(release, Weights) and asked:
        return "the training publishes answers, but weights were released"
    for one in reversed(around):
        if isinstance(one, Answers) and isinstance(release, Outputs):
            one = replace(one, queries=release.queries, answer=release.answer)
        # Every defence is a frozen dataclass, which its base class can't say.
        inner = replace(cast(Any, one), inner=inner)
    if isinstance(release, Outputs) and not asked:
        inner = Answers(inner, release.queries, release.answer)
    return inner


def _layout(
    mechanism: Mechanism, release: Release, layers: tuple[str, ...] | None
) -> ReleaseVector | str:
    model = innermost(mechanism)
    if isinstance(release, Weights):
        # What a loop's models consist of is known when one has been trained.
        own = shapes(model.network) if isinstance(model, Training) else None
        blocks = ReleaseVector.of(release).blocks if own is None else tuple(own.items())
        layout = ReleaseVector(blocks, chosen=layers)
    else:
        assert isinstance(release, Outputs)
        if layers is not None:
            return "answers have no layers to choose from: omit layers"
        if isinstance(model, Training):
            if tuple(release.queries.shape[1:]) != model.network.record_shape:
                return (
                    f"queries of shape {release.queries.shape[1:]} are not records of the network"
                )
            shape = (len(release.queries), model.network.outputs)
        else:
            shape = (len(release.queries), release.values.shape[1])
        layout = ReleaseVector(
            (("values", shape),), logarithmic=release.answer is Answer.PROBABILITIES
        )
    return layout.mismatch(release) or layout


def _too_few(targets: Records, left_out: int) -> str | None:
    if len(targets) >= FEWEST:
        if _constant(targets):
            return "the shadow targets are all the same record: there is nothing to learn from them"
        return None
    also = f" ({left_out} more are also in the fixed set and do not count)" if left_out else ""
    reason = f"needs at least {FEWEST} shadow targets, got {len(targets)}{also}"
    return Lacking(reason, SHADOW_TARGETS)


def _unlabelled(training: Training | Loop, fixed_set: Records, targets: Records) -> str | None:
    for records, what in ((fixed_set, "the fixed set"), (targets, "the shadow targets")):
        if records.y is None:
            return f"{what} has no labels to train with"
        try:
            training.responses(records.labels)
        except InputError as error:
            return f"{what}: {error}"
    return None


@lru_cache(maxsize=4)
def _first(targets: Records, count: int, weight: float) -> Records:
    """Return the first targets, weighted as the target is; the same object for the same call."""
    if weight == 1.0 and targets.weight is None:
        return targets if count == len(targets) else targets.take(np.arange(count))
    return Records(targets.x[:count], targets.labels[:count], np.full(count, weight))


@lru_cache(maxsize=4)
def _constant(targets: Records) -> bool:
    return bool((targets.x == targets.x[0]).all())


def _probe(training: Training | Loop) -> object:
    """Return what distinguishes networks with one description: shapes, and scores at a point."""
    if isinstance(training, Loop):
        return training.code.digest
    sizes = shapes(training.network)
    rng = np.random.default_rng(0)
    at = Weights({n: rng.normal(size=s) / math.sqrt(math.prod(s)) for n, s in sizes.items()})
    x = rng.uniform(size=(2, *training.network.record_shape))
    return tuple(sizes), np.round(training.scores(at, x), 4)
