"""Training records from the change of the weights since a known initialisation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from exhume.attacks.weights_only.kkt import with_proposals
from exhume.attacks.weights_only.read_weights import Move, read_move
from exhume.attacks.weights_only.record_counts import candidate_classes, uncounted
from exhume.attacks.weights_only.starts import GaussianStart, Start
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release


@dataclass(frozen=True, eq=False)
class MoveProblem:
    """A network before and after training, and how many records are sought in its change."""

    move: Move
    count: int
    knowledge: Knowledge


@dataclass(frozen=True)
class KnownInitialisation(ParsedAttack[MoveProblem]):
    """Solves θ_T − θ_0 ≈ Σᵢ αᵢ ∇f(xᵢ) for records and coefficients (Loo et al. 2024).

    The equation holds in the kernel regime: wide networks, small learning rates. Gradients are
    taken halfway between start and end. Records are searched in the span of the change's rows,
    which contains them exactly. The restarts are divided among ``scales`` of the coefficients; the
    scale with the smallest residual is kept. ``records`` None means the number of labels, or of
    directions in the change. If the value range is known, ``draws`` searches of the span itself
    come first (see ``RowSpace``).
    """

    records: int | None = None
    excess: int = 2
    restarts: int = 6
    steps: int = 3000
    rate: float = 0.02
    slope: tuple[float, float] = (50.0, 200.0)
    scales: tuple[float, ...] = (0.003, 0.01)
    range_penalty: float = 0.1
    draws: int = 1600
    start: Start = field(default_factory=lambda: GaussianStart(0.1, mean=0.5))
    name: ClassVar[str] = "known-initialisation"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.WEIGHTS_ALONE

    def __post_init__(self) -> None:
        for what in ("excess", "restarts", "steps"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, got {getattr(self, what)}")
        if self.records is not None and self.records < 1:
            raise InputError(f"records must be at least 1, got {self.records}")
        if self.draws < 0:
            raise InputError(f"draws can't be negative, got {self.draws}")
        if not self.scales or min(self.scales) <= 0:
            raise InputError(f"scales must be positive numbers, got {self.scales}")

    def parse(self, release: Release, knowledge: Knowledge) -> MoveProblem | Refusal:
        """Require a known network before and after training."""
        move = read_move(release, knowledge)
        if isinstance(move, Refusal):
            return move
        count = changed_count(self.records, move, knowledge)
        return uncounted(self.name) if count is None else MoveProblem(move, count, knowledge)

    def _solve(self, problem: MoveProblem, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.weights_only.adam_search import Schedule
        from exhume.attacks.weights_only.restarts import merged, restarted
        from exhume.attacks.weights_only.row_space import proposed
        from exhume.attacks.weights_only.row_span import RowSpan, coordinates_of
        from exhume.attacks.weights_only.stationarity_autograd import problem_of

        move, count, knowledge = problem.move, problem.count, problem.knowledge
        span = coordinates_of(move.change, count, knowledge)
        if not span.rank:
            return nothing(knowledge, Status.NO_INFORMATION, "the first layer did not change")
        conditions = problem_of(move.middle, span, change=move.change)
        classes = candidate_classes(
            move.final, replace(knowledge, labels=None), self.excess * count
        )
        schedule = Schedule(
            self.steps, self.rate, slopes=(self.slope,), range_penalty=self.range_penalty
        )
        ends = [
            restarted(
                *(conditions, span, classes, knowledge, schedule, self.start),
                *((0.5 * scale, 2.0 * scale), -(-self.restarts // len(self.scales)), rng),
                from_centre=False,
            )
            for scale in self.scales
        ]
        kept = int(np.argmin([float(end.values.min()) for end in ends]))
        answer = merged(ends[kept], span, classes, knowledge, conditions.size)
        answer = replace(answer, stats={**answer.stats, "scale": self.scales[kept]})
        if not (isinstance(span, RowSpan) and span.scaled and self.draws and len(answer)):
            return answer
        if knowledge.value_range is None:
            return answer
        proposals = proposed(span, knowledge.value_range, self.draws, 40, rng)
        return with_proposals(answer, proposals, move.final, knowledge, self.excess * count)


def changed_count(asked: int | None, move: Move, knowledge: Knowledge) -> int | None:
    """Return the number of records: given, one per label, or up to the spectrum's widest gap.

    Returns None if none of these is available.
    """
    if asked is not None:
        return asked
    if knowledge.labels is not None:
        return len(knowledge.labels)
    change = move.change.first
    if change is None:
        return None
    singular = np.linalg.svd(change, compute_uv=False)
    # Singular values below rounding error are all alike: gaps among them mean nothing.
    singular = np.maximum(singular, 1e-14 * singular[0])
    return int(np.argmax(singular[:-1] / singular[1:])) + 1
