"""What an adversary orders when it wants shadow models: which training, on what, read how."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

import exhume
from exhume.arrays import Array
from exhume.defences.base import Blurring, Defence
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.mechanism import Mechanism
from exhume.models.base import Network
from exhume.records import Records
from exhume.release import Answer, Outputs, Release, Weights
from exhume.shadows.fingerprint import fingerprint
from exhume.shadows.layout import Layout
from exhume.shadows.starting import started
from exhume.training.answers import Answers
from exhume.training.network import Training

FEWEST = 8
"""With fewer shadow models nothing can be learned and checked."""
MOST_BYTES = 1_000_000_000
"""What the differences of a set may take in memory; more shadow targets are left out."""
_FORMAT = 1
"""Raised when the same order would be filled with other numbers, between versions."""


@dataclass(frozen=True, eq=False)
class Order:
    """Train ``mechanism`` on ``fixed_set`` with each of ``targets`` added in turn.

    The mechanism publishes the kind of release that is attacked; ``layout`` reads it as a vector.
    ``left_out`` counts shadow targets that were in the fixed set as well. Orders are equal when
    their content is, whoever makes them.
    """

    mechanism: Mechanism
    fixed_set: Records
    targets: Records
    layout: Layout
    left_out: int = 0

    @property
    def training(self) -> Training:
        """The training under any defences and answers."""
        return innermost(self.mechanism)

    @property
    def repeatable(self) -> bool:
        """Whether the adversary can follow the training step by step, up to noise added after."""
        return (
            self.training.deterministic
            and self.targets.weight is None
            and all(isinstance(one, Blurring | Answers) for one in wrappers(self.mechanism))
        )

    @cached_property
    def source(self) -> str:
        """The fingerprint of training and fixed set, or nothing where it can't be told."""
        return source_of(self.mechanism, self.fixed_set)

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
        """Return the order that goes with a release, or the reason why there can be none."""


def order_for(
    release: Release, knowledge: Knowledge, *, layers: tuple[str, ...] | None, most: int
) -> Order | str:
    """Return the order that goes with a release, or the reason why there can be none.

    ``layers`` names the parameters to learn from (None: all), ``most`` bounds the shadow models.
    """
    fixed_set, shadows, mechanism = (
        knowledge.fixed_set,
        knowledge.shadow_targets,
        knowledge.training,
    )
    if not isinstance(release, Weights | Outputs):
        return f"reads weights or a model's answers, not {type(release).__name__}"
    if mechanism is None or fixed_set is None:
        return "needs the training and the fixed set, to train shadow models like the released one"
    if shadows is None:
        return "needs shadow targets: records like the target, to train shadow models with"
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
    count = min(len(targets), most, max(FEWEST, MOST_BYTES // (4 * layout.whole)))
    chosen = _first(targets, count, knowledge.target_weight)
    return Order(found, fixed_set, chosen, layout, left_out)


def source_of(mechanism: Mechanism, fixed_set: Records) -> str:
    """Return the fingerprint of a mechanism and a fixed set, or nothing where it can't be told."""
    try:
        maker = (_FORMAT, exhume.__version__)
        return fingerprint(maker, mechanism, fixed_set, _probe(innermost(mechanism)))
    except InputError:
        return ""


def innermost(mechanism: Mechanism) -> Training:
    """Return the training of a network under any defences and answers."""
    while isinstance(mechanism, Defence | Answers):
        mechanism = mechanism.inner
    if not isinstance(mechanism, Training):
        raise InputError(f"{type(mechanism).__name__} does not train a network")
    return mechanism


def wrappers(mechanism: Mechanism) -> list[Defence | Answers]:
    """Return the defences and answers around a training, outermost first."""
    found = []
    while isinstance(mechanism, Defence | Answers):
        found.append(mechanism)
        mechanism = mechanism.inner
    return found


@lru_cache(maxsize=4)
def disjoint(shadows: Records, fixed_set: Records) -> tuple[Records, int]:
    """Return the shadow targets that aren't in the fixed set, and how many were."""
    known = {row.tobytes() for row in fixed_set.x.astype(np.float32)}
    rows = shadows.x.astype(np.float32)
    own = np.array([row.tobytes() not in known for row in rows], dtype=bool)
    return (shadows if own.all() else shadows.take(np.flatnonzero(own))), int((~own).sum())


@lru_cache(maxsize=16)
def shapes(network: Network) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of every parameter of a network, built once."""
    import torch

    # Building draws parameters from PyTorch's global stream, which is not ours to move.
    with torch.random.fork_rng(devices=[]):
        return network.parameter_shapes()


def _matching(
    mechanism: Mechanism, release: Release, initial: Mapping[str, Array] | None
) -> Mechanism | str:
    """Return the mechanism as it publishes releases of this very kind, or why it can't."""
    around = wrappers(mechanism)
    try:
        inner: Mechanism = started(innermost(mechanism), initial)
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


def _layout(mechanism: Mechanism, release: Release, layers: tuple[str, ...] | None) -> Layout | str:
    network = innermost(mechanism).network
    if isinstance(release, Weights):
        blocks = tuple(shapes(network).items())
        layout = Layout(blocks, chosen=layers)
    else:
        assert isinstance(release, Outputs)
        if layers is not None:
            return "answers have no layers to choose from: leave layers out"
        if tuple(release.queries.shape[1:]) != network.record_shape:
            return f"queries of shape {release.queries.shape[1:]} are no records of the network"
        shape = (len(release.queries), network.outputs)
        layout = Layout((("values", shape),), logarithmic=release.answer is Answer.PROBABILITIES)
    return layout.mismatch(release) or layout


def _too_few(targets: Records, left_out: int) -> str | None:
    if len(targets) >= FEWEST:
        if _constant(targets):
            return "the shadow targets are all the same record: there is nothing to learn from them"
        return None
    also = f" ({left_out} more are in the fixed set too, and don't count)" if left_out else ""
    return f"needs at least {FEWEST} shadow targets, got {len(targets)}{also}"


def _unlabelled(training: Training, fixed_set: Records, targets: Records) -> str | None:
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


def _probe(training: Training) -> object:
    """Return what tells networks of the same description apart: shapes, and scores somewhere."""
    sizes = shapes(training.network)
    rng = np.random.default_rng(0)
    at = Weights({n: rng.normal(size=s) / math.sqrt(math.prod(s)) for n, s in sizes.items()})
    x = rng.uniform(size=(2, *training.network.record_shape))
    return tuple(sizes), np.round(training.scores(at, x), 4)
