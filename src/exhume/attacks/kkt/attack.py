"""Training records from a network's weights alone: the stationarity condition solved for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from exhume.arrays import Array
from exhume.attacks.base import Attack
from exhume.attacks.kkt.network import HiddenLayer, read
from exhume.attacks.starts import GaussianStart, Start
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction
from exhume.release import Release


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
        from exhume.attacks.kkt.objective import Stationarity
        from exhume.attacks.kkt.restarts import merged, restarted
        from exhume.attacks.kkt.search import Schedule
        from exhume.attacks.kkt.span import span_of

        network = read(release, knowledge)
        assert not isinstance(network, str)
        count = record_count(self.records, network, knowledge)
        span = span_of(network, count)
        problem = Stationarity(network, span)
        classes = candidate_classes(network, knowledge, self.excess * count)
        ends = [
            restarted(
                *(problem, span, classes, knowledge),
                Schedule(self.steps, self.rate, slope=pair, range_penalty=self.range_penalty),
                *(self.start, self.multipliers, turns, rng),
                from_centre=self.from_centre,
            )
            for pair, turns in zip(self.slopes, self._turns(), strict=True)
            if turns
        ]
        return merged(ends, span, classes, knowledge, problem.size)

    def _turns(self) -> list[int]:
        """How many restarts each slope gets."""
        kinds = len(self.slopes)
        return [len(range(i, self.restarts, kinds)) for i in range(kinds)]


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
