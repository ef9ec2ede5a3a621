"""Training records from how far the weights moved since a known initialisation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from exhume.attacks.base import Attack, nothing
from exhume.attacks.kkt.attack import with_proposals
from exhume.attacks.kkt.counts import candidate_classes
from exhume.attacks.kkt.general import Move, read_move
from exhume.attacks.starts import GaussianStart, Start
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release


@dataclass(frozen=True)
class KnownInitialisation(Attack):
    """Solves θ_T − θ_0 ≈ Σᵢ αᵢ ∇f(xᵢ) for records and coefficients (Loo et al. 2024).

    It holds in the kernel regime: wide networks, small learning rates. The gradients are taken
    halfway between start and end, and records are sought in the span of the change's rows, where
    they lie exactly. The restarts are shared out among ``scales`` of the coefficients, and those of
    the scale that leaves the smallest residual are kept. ``records`` None: as many as labels, or as
    the change has directions. Where the value range is known, ``draws`` searches of the span itself
    go first (see ``RowSpace``).
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

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for a known network before and after training."""
        move = read_move(release, knowledge)
        if isinstance(move, str):
            return move
        if changed_count(self.records, move, knowledge) is None:
            return "the number of records must be given, or their labels: nothing else tells it"
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.kkt.autograd import problem_of
        from exhume.attacks.kkt.restarts import merged, restarted
        from exhume.attacks.kkt.row_space import proposed
        from exhume.attacks.kkt.search import Schedule
        from exhume.attacks.kkt.span import Span, coordinates_of

        move = read_move(release, knowledge)
        assert not isinstance(move, str)
        count = changed_count(self.records, move, knowledge)
        assert count is not None
        span = coordinates_of(move.change, count, knowledge)
        if not span.rank:
            return nothing(knowledge, Status.NO_INFORMATION, "the first layer's change is nothing")
        problem = problem_of(move.middle, span, change=move.change)
        classes = candidate_classes(
            move.final, replace(knowledge, labels=None), self.excess * count
        )
        schedule = Schedule(
            self.steps, self.rate, slopes=(self.slope,), range_penalty=self.range_penalty
        )
        ends = [
            restarted(
                *(problem, span, classes, knowledge, schedule, self.start),
                *((0.5 * scale, 2.0 * scale), -(-self.restarts // len(self.scales)), rng),
                from_centre=False,
            )
            for scale in self.scales
        ]
        kept = int(np.argmin([float(end.values.min()) for end in ends]))
        answer = merged(ends[kept], span, classes, knowledge, problem.size)
        answer = replace(answer, stats={**answer.stats, "scale": self.scales[kept]})
        if not (isinstance(span, Span) and span.scaled and self.draws and len(answer)):
            return answer
        if knowledge.value_range is None:
            return answer
        proposals = proposed(span, knowledge.value_range, self.draws, 40, rng)
        return with_proposals(answer, proposals, move.final, knowledge, self.excess * count)


def changed_count(asked: int | None, move: Move, knowledge: Knowledge) -> int | None:
    """How many records: asked for, as many as labels, or up to the widest gap of the spectrum.

    None where nothing tells.
    """
    if asked is not None:
        return asked
    if knowledge.labels is not None:
        return len(knowledge.labels)
    change = move.change.first
    if change is None:
        return None
    singular = np.linalg.svd(change, compute_uv=False)
    # Whatever lies below rounding is all alike: there is no gap within it.
    singular = np.maximum(singular, 1e-14 * singular[0])
    return int(np.argmax(singular[:-1] / singular[1:])) + 1
