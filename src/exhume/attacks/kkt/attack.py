"""Training records from a network's weights alone: the stationarity condition solved for them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.base import Attack, nothing
from exhume.attacks.kkt.counts import candidate_classes, class_names, record_count
from exhume.attacks.kkt.general import Released, read_any, read_general
from exhume.attacks.starts import GaussianStart, Start
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release

if TYPE_CHECKING:
    from exhume.attacks.kkt.row_space import Proposals


@dataclass(frozen=True)
class KKT(Attack):
    """Candidates and multipliers that make the weights a stationary point of training.

    Haim et al. 2022 (two classes), Buzaglo et al. 2023 (more classes, other losses, weight decay,
    biases). One hidden layer of ReLUs has its gradient written out, any other network is
    differentiated; where the first layer is fully connected, within the span of its rows, unless
    ``within_span`` is False: then all pixels are searched, as the papers do.
    ``records`` is how many there were (None: as many as there are labels, or as the first layer
    has directions), ``excess`` how many candidates are searched for each. ``restarts`` run in one
    batch, slopes taking turns; what they agree on comes first. Candidates start at the centre
    plus ``start``. Where the value range is known, half of the answer comes from the span itself,
    by ``draws`` searches (see ``RowSpace``; 0 leaves them out): stationarity puts the records into
    it, and that says more than the residual. A small residual proves nothing.
    """

    records: int | None = None
    excess: int = 2
    restarts: int = 6
    steps: int = 4000
    rate: float = 0.02
    slopes: tuple[tuple[float, float], ...] = ((50.0, 50.0), (10.0, 50.0))
    multipliers: tuple[float, float] = (0.005, 0.055)
    range_penalty: float = 0.1
    draws: int = 3000
    start: Start = field(default_factory=lambda: GaussianStart(0.1))
    from_centre: bool = True
    within_span: bool = True
    name: ClassVar[str] = "kkt"

    def __post_init__(self) -> None:
        for what in ("excess", "restarts", "steps"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, got {getattr(self, what)}")
        if self.draws < 0:
            raise InputError(f"draws can't be negative, got {self.draws}")
        if self.records is not None and self.records < 1:
            raise InputError(f"records must be at least 1, got {self.records}")
        if not 0 < self.multipliers[0] < self.multipliers[1]:
            raise InputError(f"multipliers must be 0 < low < high, got {self.multipliers}")
        if not self.slopes or min(min(pair) for pair in self.slopes) <= 0:
            raise InputError(f"slopes must be pairs of positive numbers, got {self.slopes}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for the weights of a known network whose records have gradients of their own."""
        network = self._read(release, knowledge)
        if isinstance(network, str):
            return network
        if record_count(self.records, network, knowledge) is None:
            return "the number of records must be given, or their labels: nothing else tells it"
        return None

    def _read(self, release: Release, knowledge: Knowledge) -> Released | str:
        """Return the network; what is written out for it is written out within the span."""
        return (read_any if self.within_span else read_general)(release, knowledge)

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.kkt.autograd import problem_of
        from exhume.attacks.kkt.restarts import merged, restarted
        from exhume.attacks.kkt.row_space import proposed
        from exhume.attacks.kkt.search import Schedule
        from exhume.attacks.kkt.span import Span, coordinates_of, everywhere

        network = self._read(release, knowledge)
        assert not isinstance(network, str)
        count = record_count(self.records, network, knowledge)
        assert count is not None
        span = (
            coordinates_of(network, count, knowledge)
            if self.within_span
            else everywhere(network, knowledge)
        )
        if not span.rank:
            return nothing(knowledge, Status.NO_INFORMATION, "the first layer's rows span nothing")
        problem = problem_of(network, span)
        classes = candidate_classes(network, knowledge, self.excess * count)
        schedule = Schedule(
            self.steps, self.rate, slopes=self.slopes, range_penalty=self.range_penalty
        )
        end = restarted(
            *(problem, span, classes, knowledge, schedule),
            *(self.start, self.multipliers, self.restarts, rng),
            from_centre=self.from_centre,
        )
        searched = merged(end, span, classes, knowledge, problem.size)
        if not (isinstance(span, Span) and span.scaled and self.draws and len(searched)):
            return searched
        if knowledge.value_range is None:
            return searched
        found = proposed(span, knowledge.value_range, self.draws, 40, rng)
        return with_proposals(searched, found, network, knowledge, (self.excess * count) // 2)


def with_proposals(
    searched: Reconstruction,
    found: Proposals,
    network: Released,
    knowledge: Knowledge,
    half: int,
) -> Reconstruction:
    """Put the first ``half`` proposals of the span before as many candidates of the search."""
    records = found.records[:half]
    scores = network.scores(records)
    classes = scores.argmax(axis=1)
    if network.outputs == 1:
        classes = (scores[:, 0] > 0).astype(np.intp)
    labels = searched.labels
    names = class_names(knowledge)
    if labels is not None and names is not None:
        labels = np.concatenate([np.asarray(names)[classes], labels[:half]])
    assert searched.confidence is not None
    return replace(
        searched,
        samples=np.concatenate(
            [records.reshape(-1, *knowledge.record_shape), searched.samples[:half]]
        ),
        labels=labels,
        # Zeros in the span say more than restarts that agree: the latter may agree on inventions.
        confidence=np.concatenate(
            [0.5 + 0.5 * found.confidence[:half], 0.5 * searched.confidence[:half]]
        ),
        stats={**searched.stats, "proposals": len(records)},
    )
