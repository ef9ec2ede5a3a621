"""Where to start, and with which label: records whose simulated trace resembles the observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.trajectory.unroll import label_vectors
from exhume.attacks.trajectory.unrolled import Unrolled
from exhume.records import Records
from exhume.training.network import Training


@dataclass(frozen=True, eq=False)
class Start:
    """A record (R,) to start from, its label among the classes, and how well its trace fits."""

    record: Tensor
    label: int
    likeness: float


@dataclass(frozen=True, eq=False)
class References:
    """Simulated traces: ``records`` (k, R), their ``labels`` (k,), ``differences`` (k, m).

    A difference is what is observed beyond the training without the record.
    """

    records: Tensor
    labels: Tensor
    differences: Tensor

    def ranked(self, difference: Tensor, above: int | None) -> list[Start]:
        """Return starts, the best likeness to the observed ``difference`` (m,) first.

        Likeness is the cosine of the whole differences, and where the first layer's ``above``
        entries can be told from the rest, the mean with the cosine of that rest: the upper layers
        tell labels apart better, the first one records.
        """
        likeness = _cosines(self.differences, difference)
        if above is not None and above < len(difference):
            upper = _cosines(self.differences[:, above:], difference[above:])
            likeness = 0.5 * (likeness + upper)
        order = torch.argsort(likeness, descending=True, stable=True).tolist()
        return [Start(self.records[i], int(self.labels[i]), float(likeness[i])) for i in order]


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

    An unusual record is taken for another class by the model, and its trace looks like no typical
    record's of its own class: records under labels not their own stand for those. A regression's
    records are drawn from all of the fixed set, with the responses they have.
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
    """Rows of the fixed set, and the class each is to stand for."""
    if training.classes is None:
        for row in rng.permutation(len(fixed_set))[: 10 * each]:
            yield int(row), None
        return
    responses = training.responses(fixed_set.labels)
    for label in range(len(training.classes)):
        own, other = np.flatnonzero(responses == label), np.flatnonzero(responses != label)
        for row in rng.permutation(own)[:each]:
            yield int(row), label
        # A class the fixed set lacks may still be the target's.
        missing = each - min(each, len(own))
        for row in rng.permutation(other)[: crossed + missing]:
            yield int(row), label


def _cosines(rows: Tensor, vector: Tensor) -> Tensor:
    lengths: Tensor = rows.norm(dim=1) * vector.norm()
    cosines: Tensor = (rows @ vector) / lengths.clamp_min(1e-300)
    return cosines
