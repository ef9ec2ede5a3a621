"""Training records from a network's weights alone: the stationarity condition solved for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack
from exhume.attacks.kkt.network import HiddenLayer, read
from exhume.attacks.starts import GaussianStart, Start
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release

if TYPE_CHECKING:
    from exhume.attacks.kkt.search import Candidates
    from exhume.attacks.kkt.span import Span


@dataclass(frozen=True)
class KKT(Attack):
    """Candidates and multipliers that make the weights a stationary point of training.

    Haim et al. 2022 (two classes), Buzaglo et al. 2023 (more classes, other losses, weight decay,
    biases), for one hidden layer of ReLUs, searched within the span of the first layer's rows.
    ``records`` is how many there were (None: as many as there are labels, or as the first layer
    has directions), ``excess`` how many candidates are searched for each. ``restarts`` run in one
    batch, slopes taking turns; what they agree on comes first. Candidates start at the centre
    plus ``start``. A small residual proves nothing: see ``exhume.authenticity``.
    """

    records: int | None = None
    excess: int = 2
    restarts: int = 6
    steps: int = 4000
    rate: float = 0.02
    slopes: tuple[tuple[float, float], ...] = ((50.0, 50.0), (10.0, 50.0))
    multipliers: tuple[float, float] = (0.005, 0.055)
    range_penalty: float = 0.1
    start: Start = field(default_factory=lambda: GaussianStart(0.1))
    from_centre: bool = True
    name: ClassVar[str] = "kkt"

    def __post_init__(self) -> None:
        for what in ("excess", "restarts", "steps"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, got {getattr(self, what)}")
        if self.records is not None and self.records < 1:
            raise InputError(f"records must be at least 1, got {self.records}")
        if not 0 < self.multipliers[0] < self.multipliers[1]:
            raise InputError(f"multipliers must be 0 < low < high, got {self.multipliers}")
        if not self.slopes or min(min(pair) for pair in self.slopes) <= 0:
            raise InputError(f"slopes must be pairs of positive numbers, got {self.slopes}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for the weights of a known network with one hidden layer of ReLUs."""
        network = read(release, knowledge)
        return network if isinstance(network, str) else None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        import torch

        from exhume.attacks.kkt.objective import Stationarity
        from exhume.attacks.kkt.span import span_of

        network = read(release, knowledge)
        assert not isinstance(network, str)
        count = record_count(self.records, network, knowledge)
        span = span_of(network, count)
        problem = Stationarity(network, span)
        labels = candidate_classes(network, knowledge, self.excess * count)
        with torch.no_grad():
            ends = [
                self._search(problem, span, labels, knowledge, pair, turns, rng)
                for pair, turns in zip(self.slopes, self._turns(), strict=True)
                if turns
            ]
        return self._answer(ends, span, labels, knowledge, problem.size)

    def _turns(self) -> list[int]:
        """How many restarts each slope gets."""
        kinds = len(self.slopes)
        return [len(range(i, self.restarts, kinds)) for i in range(kinds)]

    def _search(
        self,
        problem: object,
        span: Span,
        classes: Array,
        knowledge: Knowledge,
        slope: tuple[float, float],
        restarts: int,
        rng: np.random.Generator,
    ) -> Candidates:
        import torch

        from exhume.attacks.kkt.objective import Stationarity
        from exhume.attacks.kkt.search import Schedule, search

        assert isinstance(problem, Stationarity)
        drawn = self.start.draw(restarts * len(classes), knowledge.record_shape, rng)
        x = torch.tensor(drawn.reshape(restarts, len(classes), -1), dtype=torch.float32)
        if self.from_centre:
            x = x + span.centre
        chances = rng.uniform(*self.multipliers, size=(restarts, len(classes)))
        return search(
            problem,
            span,
            span.coordinates(x),
            torch.tensor(np.log(chances), dtype=torch.float32),
            torch.tensor(classes),
            Schedule(self.steps, self.rate, slope=slope, range_penalty=self.range_penalty),
            knowledge.value_range,
        )

    def _answer(
        self,
        ends: list[Candidates],
        span: Span,
        classes: Array,
        knowledge: Knowledge,
        size: float,
    ) -> Reconstruction:
        """Merge the restarts: agreement first, then the multiplier times the record's length."""
        import torch

        from exhume.attacks.kkt.merging import grouped

        q = torch.cat([end.q for end in ends])
        values = torch.cat([end.values for end in ends]).numpy() / size
        records = (q @ span.pixels).numpy().astype(np.float64)
        multipliers = torch.cat([end.multipliers for end in ends]).numpy()
        centred = records - span.centre.numpy()
        pull = (multipliers * np.linalg.norm(centred, axis=2)).ravel()
        flat = centred.reshape(-1, centred.shape[2])
        restart = np.repeat(np.arange(len(values)), len(classes))
        # A restart that ended far above the best one says less.
        trust = np.repeat(values.min() / np.maximum(values, 1e-30), len(classes))
        groups = grouped(flat, pull * trust, restart)
        order = np.lexsort((np.arange(len(groups.members)), -groups.agreement))
        order = order[: len(classes)]
        members = groups.members[order]
        samples = records.reshape(-1, records.shape[2])[members]
        return Reconstruction(
            samples.reshape(-1, *knowledge.record_shape),
            Status.APPROXIMATE,
            labels=_named(knowledge, np.tile(classes, len(values))[members]),
            confidence=groups.agreement[order],
            message="a small residual does not make a candidate real",
            stats={
                "residual": float(values.min()),
                "initial": float(torch.cat([end.initial for end in ends]).min()) / size,
                "restarts": len(values),
                "rank": span.rank,
            },
        )


def record_count(asked: int | None, network: HiddenLayer, knowledge: Knowledge) -> int:
    """How many records to look for: asked for, as many as labels, or as W has directions."""
    if asked is not None:
        return asked
    if knowledge.labels is not None:
        return len(knowledge.labels)
    singular = np.linalg.svd(network.first, compute_uv=False)
    # Half of the values belong to no record where the layer is wide; they are the noise.
    return max(2, int(np.sum(singular > 2.0 * np.median(singular))))


def candidate_classes(network: HiddenLayer, knowledge: Knowledge, count: int) -> Array:
    """Return class indices (count,): the known labels in turn, or as many of each class."""
    classes = max(2, network.classes)
    training = knowledge.training
    names = getattr(training, "classes", None)
    if knowledge.labels is not None and names is not None:
        known = np.array([names.index(label) for label in knowledge.labels.tolist()])
        return np.asarray(known[np.arange(count) % len(known)])
    return np.arange(count) % classes


def _named(knowledge: Knowledge, classes: FloatArray) -> Array | None:
    names = getattr(knowledge.training, "classes", None)
    return None if names is None else np.asarray(names)[classes]
