"""One threat model as objects: the split data, the mechanism, the knowledge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from exhume.attacks.blind import column_scale
from exhume.audit.register import Register
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.protocol.schema import Schema
from exhume.protocol.seeds import stream
from exhume.training.answers import trained_model
from exhume.training.own_loop import Loop

Range = tuple[float, float]


@dataclass(frozen=True, eq=False)
class ColumnUnits:
    """What the columns of records were centred by and divided by."""

    mean: FloatArray
    deviation: FloatArray


@dataclass(frozen=True, eq=False)
class ThreatSetting:
    """What is audited: a mechanism (or one release from outside), the knowledge, and the truth.

    ``targets`` are the truth: only metrics see them. ``reserve`` holds records like the targets
    that nobody in the threat model has: they measure utility and the prior. With ``batch``, a
    release is computed on that many targets only; without, on one target and the fixed set.
    """

    name: str
    title: str
    mechanism: Mechanism
    fixed_set: Records
    shadow_targets: Records | None
    targets: Records | None
    reserve: Records | None
    value_range: Range | None
    knows_labels: bool = False
    known_columns: tuple[int, ...] = ()
    given: Release | None = None
    initial: Mapping[str, Array] | None = None
    batch: int | None = None
    knows_statistics: bool = False
    register: Register | None = None
    schema: Schema | None = None
    """What the entries of a table's records mean."""
    left_out: int = 0
    """Rows of the data that are neither known nor targets."""
    origin: str = ""
    """Whether the file of a fitted estimator holds the numbers of a fit on these rows."""
    units: ColumnUnits | None = None

    @property
    def size(self) -> int:
        """The number of records to rebuild."""
        return (self.batch or 1) if self.targets is None else len(self.targets)

    @property
    def records(self) -> int:
        """The number of records of a release."""
        return self.batch or len(self.fixed_set) + 1

    @property
    def known_mask(self) -> Array:
        """Which entries of a target the adversary knows (record shape, bool)."""
        mask = np.zeros(self.fixed_set.record_shape, dtype=bool)
        mask.reshape(-1)[list(self.known_columns)] = True
        return mask

    def groups(self, indices: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the targets of one release."""
        size = self.batch or 1
        return [tuple(indices[i : i + size]) for i in range(0, len(indices), size)]

    @property
    def pool(self) -> FloatArray:
        """Every record that the adversary already had."""
        return self.knowledge(0).pool()

    @property
    def scale(self) -> FloatArray | None:
        """The unit of each entry of a record, for errors."""
        if not len(self.pool):
            return None
        return column_scale(self.pool, self.value_range, self.schema)

    def knowledge(self, *members: int) -> Knowledge:
        """What the adversary knows when it attacks the release of these targets."""
        truth = None if self.targets is None else self.targets.take(list(members))
        return Knowledge(
            record_shape=self.fixed_set.record_shape,
            value_range=self.value_range,
            training=self.mechanism,
            fixed_set=self.fixed_set if self.batch is None else None,
            shadow_targets=self.shadow_targets,
            labels=truth.labels if truth is not None and self.knows_labels else None,
            known_attributes=self._attributes(truth),
            initial=self.initial,
            batch_norm=self._statistics(truth),
            candidates=self._candidates(truth, *members),
            schema=self.schema,
        )

    def _candidates(self, truth: Records | None, *members: int) -> Records | None:
        """The list that holds the target; without the truth, the user's own list as it is."""
        if self.register is None:
            return None
        return self.register.decoys if truth is None else self.register.around(truth, members[0])

    def releases(self, groups: Sequence[tuple[int, ...]], seed: int) -> Sequence[Release]:
        """Publish with each of these groups of targets, each with its own random stream."""
        if self.given is not None:
            return [self.given for _ in groups]
        assert self.targets is not None
        if isinstance(trained_model(self.mechanism), Loop):
            from exhume.audit.loops import kept_release

            return [kept_release(self, group, seed) for group in groups]
        return self.published(groups, seed)

    def published(self, groups: Sequence[tuple[int, ...]], seed: int) -> Sequence[Release]:
        """Publish with each of these groups of targets, now."""
        assert self.targets is not None
        rngs = [stream(seed, "training", self.name, group[0]) for group in groups]
        try:
            if self.batch is not None:
                batches = [self.targets.take(list(group)) for group in groups]
                pairs = zip(batches, rngs, strict=True)
                return [self.mechanism.publish(batch, rng=rng) for batch, rng in pairs]
            targets = self.targets.take([index for (index,) in groups])
            return self.mechanism.publish_each(self.fixed_set, targets, rngs=rngs)
        except InputError as error:
            raise InputError(f"setting {self.name!r}: {error}") from None

    def _statistics(self, truth: Records | None) -> Mapping[str, Array] | None:
        """The statistics of the batch's normalisation, which a client may send along."""
        from exhume.training.gradient import gradient_step

        step = gradient_step(self.mechanism)
        if truth is None or step is None or not self.knows_statistics:
            return None
        from exhume.training.batch_statistics import batch_statistics

        return batch_statistics(step, truth) or None

    def _attributes(self, truth: Records | None) -> KnownAttributes | None:
        if truth is None or not self.known_columns:
            return None
        mask = self.known_mask
        own = truth.x[0] if self.batch in (None, 1) else truth.x
        return KnownAttributes(mask, np.where(mask, own, 0.0))
