"""Starts and labels for a search: records whose simulated trace resembles the observed one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.one_target.unroll import label_vectors
from exhume.attacks.informed.trajectory.one_target.unrolled import Unrolled
from exhume.protocol.records import Records
from exhume.training.network import Training


@dataclass(frozen=True, eq=False)
class ReferenceStart:
    """A start (R,), its label among the classes, and its likeness to the observed trace."""

    record: Tensor
    label: int
    likeness: float


@dataclass(frozen=True, eq=False)
class References:
    """Simulated traces: ``records`` (k, R), their ``labels`` (k,), ``differences`` (k, m).

    A difference is the observed change relative to the training without the record.
    """

    records: Tensor
    labels: Tensor
    differences: Tensor

    def ranked(self, difference: Tensor, above: int | None) -> list[ReferenceStart]:
        """Return starts, the most similar to the observed ``difference`` (m,) first.

        Similarity is the cosine of the whole differences. If the first layer's ``above`` entries
        are known, it is the mean of that cosine and the cosine of all other entries: the upper
        layers distinguish labels better, the first layer distinguishes records.
        """
        likeness = _cosines(self.differences, difference)
        if above is not None and above < len(difference):
            upper = _cosines(self.differences[:, above:], difference[above:])
            likeness = 0.5 * (likeness + upper)
        order = torch.argsort(likeness, descending=True, stable=True).tolist()
        return [
            ReferenceStart(self.records[i], int(self.labels[i]), float(likeness[i])) for i in order
        ]


_PROBES = 3
_REPRODUCED = 0.1
"""A number is kept if rounding makes up at most this share of a record's trace in it."""


def reproducible(exact: Unrolled, rough: Unrolled, fixed_set: Records) -> Tensor:
    """Return which of the observed numbers (m,) depend on the record rather than on rounding.

    Adam divides by the size of a gradient, even if the gradient is 0 up to rounding. A bias before
    a normalisation therefore moves at random. Both precisions train with a few known records. A
    number counts if they differ by far less than the records' traces are long.
    """
    flat = np.asarray(fixed_set.x, dtype=np.float64).reshape(len(fixed_set), -1)[:_PROBES]
    label = np.zeros((len(flat), exact.unknowns - flat.shape[1]))
    label[:, 0] = 1.0
    records = torch.as_tensor(np.hstack([flat, label]), device=exact.initial.device)
    traces, noise = [], []
    base = exact.observation.value(exact.base)
    for record in records:
        there = exact.observed(record.to(exact.initial))
        noise.append(there - rough.observed(record.to(rough.initial)).to(there))
        traces.append(there - base)
    size = torch.stack(traces).square().mean(dim=0).sqrt()
    rounding = torch.stack(noise).square().mean(dim=0).sqrt()
    return rounding <= _REPRODUCED * size


def simulate_references(
    unrolled: Unrolled,
    training: Training,
    fixed_set: Records,
    *,
    each: int,
    crossed: int,
    rng: np.random.Generator,
) -> References:
    """Simulate ``each`` records of every class, and ``crossed`` more of others under its label.

    If the model takes an unusual record for another class, its trace differs from all typical ones
    of its own class. Records under other labels represent this case. For a regression, records are
    drawn from the whole fixed set, with their own responses.
    """
    vectors = label_vectors(training, fixed_set.labels)
    flat = np.asarray(fixed_set.x, dtype=np.float64).reshape(len(fixed_set), -1)
    rows, labels = [], []
    for row, label in _drawn(training, fixed_set, each, crossed, rng):
        own = vectors[row] if label is None else np.eye(vectors.shape[1])[label]
        rows.append(np.concatenate([flat[row], own]))
        labels.append(0 if label is None else label)
    records = torch.as_tensor(np.array(rows), device=unrolled.initial.device)
    base = unrolled.observation.value(unrolled.base)
    found = [unrolled.observed(record.to(base.dtype)) - base for record in records]
    return References(records, torch.tensor(labels), torch.stack(found).to(torch.float64))


def _drawn(
    training: Training, fixed_set: Records, each: int, crossed: int, rng: np.random.Generator
) -> Iterator[tuple[int, int | None]]:
    """Rows of the fixed set, and the class that each represents."""
    if training.classes is None:
        for row in rng.permutation(len(fixed_set))[: 10 * each]:
            yield int(row), None
        return
    responses = training.responses(fixed_set.labels)
    for label in range(len(training.classes)):
        own, other = np.flatnonzero(responses == label), np.flatnonzero(responses != label)
        for row in rng.permutation(own)[:each]:
            yield int(row), label
        # The target's class may be absent from the fixed set.
        missing = each - min(each, len(own))
        for row in rng.permutation(other)[: crossed + missing]:
            yield int(row), label


def _cosines(rows: Tensor, vector: Tensor) -> Tensor:
    lengths: Tensor = rows.norm(dim=1) * vector.norm()
    cosines: Tensor = (rows @ vector) / lengths.clamp_min(1e-300)
    return cosines
