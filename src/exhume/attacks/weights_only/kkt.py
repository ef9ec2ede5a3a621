"""Training records from a network's weights alone, by solving the stationarity condition."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.weights_only.read_weights import Released, known_weights
from exhume.attacks.weights_only.record_counts import (
    candidate_classes,
    class_names,
    record_count,
    uncounted,
)
from exhume.attacks.weights_only.starts import GaussianStart, Start
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release

if TYPE_CHECKING:
    from exhume.attacks.weights_only.row_space import Proposals


@dataclass(frozen=True, eq=False)
class KKTProblem:
    """A released network, and how many records are sought in it."""

    network: Released
    count: int
    knowledge: Knowledge


@dataclass(frozen=True)
class KKT(ParsedAttack[KKTProblem]):
    """Finds records and multipliers that make the weights a stationary point of training.

    Haim et al. 2022 (two classes), Buzaglo et al. 2023 (more classes, other losses, weight decay,
    biases). The gradient is explicit for one hidden layer of ReLUs and automatic for any other
    network. If the first layer is fully connected, the search stays within the span of its rows.
    ``within_span=False`` searches all pixels instead, as the papers do.
    ``records`` is the number of training records (None: the number of labels, or of directions in
    the first layer). ``excess`` is the number of candidates per record. ``restarts`` run in one
    batch and use the slopes in rotation. Candidates on which restarts agree come first. Candidates
    start at the centre plus ``start``. If the value range is known, half of the answer comes from
    ``draws`` searches of the span itself (see ``RowSpace``; 0 skips them): stationarity puts the
    records into the span, which says more than the residual. A small residual proves nothing.
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
    made_for: ClassVar[ThreatModel | None] = ThreatModel.WEIGHTS_ALONE

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

    def parse(self, release: Release, knowledge: Knowledge) -> KKTProblem | Refusal:
        """Require the weights of a known network in which each record has its own gradient."""
        weights = known_weights(release, knowledge)
        if isinstance(weights, Refusal):
            return weights
        # The gradient is written out within the span alone.
        network = weights.released() if self.within_span else weights.module()
        if isinstance(network, Refusal):
            return network
        count = record_count(self.records, network, knowledge)
        return uncounted(self.name) if count is None else KKTProblem(network, count, knowledge)

    def _solve(self, problem: KKTProblem, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.weights_only.adam_search import Schedule
        from exhume.attacks.weights_only.restarts import merged, restarted
        from exhume.attacks.weights_only.row_space import proposed
        from exhume.attacks.weights_only.row_span import RowSpan, coordinates_of, everywhere
        from exhume.attacks.weights_only.stationarity_autograd import problem_of

        network, count, knowledge = problem.network, problem.count, problem.knowledge
        span = (
            coordinates_of(network, count, knowledge)
            if self.within_span
            else everywhere(network, knowledge)
        )
        if not span.rank:
            return nothing(knowledge, Status.NO_INFORMATION, "the first layer's rows are all zero")
        conditions = problem_of(network, span)
        classes = candidate_classes(network, knowledge, self.excess * count)
        schedule = Schedule(
            self.steps, self.rate, slopes=self.slopes, range_penalty=self.range_penalty
        )
        end = restarted(
            *(conditions, span, classes, knowledge, schedule),
            *(self.start, self.multipliers, self.restarts, rng),
            from_centre=self.from_centre,
        )
        searched = merged(end, span, classes, knowledge, conditions.size)
        if not (isinstance(span, RowSpan) and span.scaled and self.draws and len(searched)):
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
    """Put the first ``half`` proposals from the span before as many candidates of the search."""
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
        # Zeros in the span say more than agreement: restarts may agree on an invented record.
        confidence=np.concatenate(
            [0.5 + 0.5 * found.confidence[:half], 0.5 * searched.confidence[:half]]
        ),
        stats={**searched.stats, "proposals": len(records)},
    )
