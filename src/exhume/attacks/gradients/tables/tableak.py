"""TabLeak: rows of a table from a gradient, by relaxed categories and many starts pooled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.attack import (
    SHADOW_TARGETS,
    Lacking,
    ParsedAttack,
    Refusal,
    ThreatModel,
    nothing,
)
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release

if TYPE_CHECKING:
    from torch import Tensor

    from exhume.attacks.gradients.matching.loop import MatchingProblem
    from exhume.attacks.gradients.matching.problem import MatchableRelease
    from exhume.attacks.gradients.tables.ensemble import Pooled
    from exhume.attacks.gradients.tables.restarts import Releases
    from exhume.attacks.gradients.tables.search import FoundRows

    End = tuple[Tensor, Tensor, float]
    """Rows (n, width), their labels, and their relative squared residual."""


@dataclass(frozen=True)
class TabLeak(ParsedAttack["MatchableRelease"]):
    """Rows of a table: relaxed categories, many starts pooled by assignment (Vero et al. 2023).

    ``restarts`` searches of ``steps`` steps run at once, with ReLUs and levels that sharpen on the
    way; the softmax cools from ``hottest`` to ``coldest``. Then at most ``changes`` single
    levels or labels are changed, if that explains the release better; 0 for none.
    """

    name: ClassVar[str] = "tableak"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.TABLE_GRADIENT
    steps: int = 1500
    restarts: int = 30
    learning_rate: float = 0.06
    hottest: float = 3.0
    coldest: float = 0.03
    changes: int = 40

    def __post_init__(self) -> None:
        if min(self.steps, self.restarts) < 1 or self.changes < 0:
            raise InputError(
                "steps and restarts must be at least 1 and changes at least 0, "
                f"got {self.steps}, {self.restarts} and {self.changes}"
            )
        if not 0 < self.coldest <= self.hottest or not self.learning_rate > 0:
            raise InputError(
                "0 < coldest <= hottest and learning_rate > 0 are needed, "
                f"got {self.coldest}, {self.hottest} and {self.learning_rate}"
            )

    def parse(self, release: Release, knowledge: Knowledge) -> MatchableRelease | Refusal:
        """Require the gradient or update of rows of a table with known columns."""
        from exhume.attacks.gradients.matching.attack import matchable

        schema = knowledge.schema
        if schema is None or knowledge.record_shape != (schema.width,):
            return Refusal("the records are not rows of a table whose columns are known")
        if len(knowledge.pool()) < 2 and any(column.kind.numeric for column in schema.columns):
            return Refusal(Lacking("the ranges of the numbers are not known", SHADOW_TARGETS))
        return matchable(release, knowledge)

    def _solve(self, reading: MatchableRelease, rng: np.random.Generator) -> Reconstruction:
        import torch

        from exhume.attacks.gradients.matching.attack import TINY, known_labels

        if reading.length < TINY:
            return nothing(reading.knowledge, Status.NO_INFORMATION, "the release is all zeros")
        with torch.random.fork_rng(devices=[]):
            labels = known_labels(reading, rng)
            known = reading.knowledge.known_attributes
            if reading.knowledge.labels is None and known is not None and reading.count > 1:
                # Counts of classes do not tell which record has which: its known part does.
                labels = labels if reading.step.classes is None else None
            return _Solution(self, reading, labels, rng).run()


class _Solution:
    """The search on one release."""

    def __init__(
        self,
        attack: TabLeak,
        reading: MatchableRelease,
        labels: Array | None,
        rng: np.random.Generator,
    ) -> None:
        knowledge = reading.knowledge
        assert knowledge.schema is not None
        self.attack, self.reading, self.labels, self.rng = attack, reading, labels, rng
        self.schema, self.pool = knowledge.schema, knowledge.pool()
        if not len(self.pool):
            # No column holds numbers, so that their range does not matter.
            self.pool = np.zeros((1, self.schema.width))
        self.sure = knowledge.labels is not None or reading.step.classes is None

    def run(self) -> Reconstruction:
        from exhume.attacks.gradients.matching.attack import FoundImages, answer
        from exhume.attacks.gradients.matching.loop import Descent, MatchedRuns

        problem, releases = self._posed("float32")
        if problem.simulation.nuisances.expected:
            message = "a defence draws at random, which the search over levels does not follow"
            return nothing(self.reading.knowledge, Status.NOT_CONVERGED, message)
        found = self._searched(problem, releases)
        pooled = self._pooled(found)
        rows, labels, left = self._repaired(found, pooled)
        steps, starts = self.attack.steps, self.attack.restarts
        run = Descent(
            *(rows.to(problem.frame.dtype), labels, left, left, steps * starts, steps, False),
            history=(found.best, left),
        )
        images = FoundImages(problem, MatchedRuns(run, (run,), None))
        return self._with_certainty(answer(self.reading, images, self.rng), pooled, found)

    def _posed(self, precision: str) -> tuple[MatchingProblem, Releases]:
        from exhume.attacks.gradients.matching.objectives import Cosine
        from exhume.attacks.gradients.matching.problem import problem_of
        from exhume.attacks.gradients.tables.restarts import releases_of

        problem = problem_of(self.reading, Cosine(), labels=self.labels, precision=precision)
        return problem, releases_of(self.reading, problem)

    def _searched(self, problem: MatchingProblem, releases: Releases) -> FoundRows:
        from exhume.attacks.gradients.tables.search import labels_to_try

        labels = labels_to_try(problem, self.attack.restarts, sure=self.sure)
        return self._search(problem, releases, labels, self.attack.steps)

    def _search(
        self, problem: MatchingProblem, releases: Releases, labels: Tensor | None, steps: int
    ) -> FoundRows:
        from exhume.attacks.gradients.tables.relaxation import Relaxation
        from exhume.attacks.gradients.tables.search import Annealing, searched

        attack, relaxation = self.attack, Relaxation.of(self.schema, self.pool)
        annealing = Annealing(steps, attack.learning_rate, attack.hottest, attack.coldest)
        starts = attack.restarts
        return searched(problem, relaxation, releases, labels, annealing, starts, self.rng)

    def _pooled(self, found: FoundRows) -> Pooled:
        """Pool the searches that had the same labels as the best one."""
        from exhume.attacks.gradients.tables.ensemble import pooled

        labels = found.labels.cpu().numpy()
        counts = np.sort(labels, axis=1)
        alike = (counts == counts[found.place]).all(axis=1)
        spread = self.schema.scale(self.pool)
        parts = found.rows[alike], found.snapped[alike], labels[alike]
        return pooled(self.schema, *parts, spread)

    def _repaired(self, found: FoundRows, pooled: Pooled) -> End:
        """Return the better of the pooled rows and the best search's, each repaired.

        Numbers that are not settled then are searched once more, the levels as they are.
        """
        from exhume.attacks.gradients.tables.repair import ROUNDING, Repair

        problem, releases = self._posed("float64")
        labels = found.labels[found.place]
        repair = Repair(problem, self.schema, releases, not self.sure, self.attack.changes)
        ends = [
            repair.improved(problem.frame.tensor(self.schema.snap(rows)), labels)
            for rows in (found.rows[found.place], pooled.rows)
        ]
        best = min(ends, key=lambda end: end[2])
        if best[2] <= ROUNDING or not self.schema.numbers.any():
            return best
        again = self._numbers_again(*best[:2])
        rows = problem.frame.tensor(self.schema.snap(again.rows[again.place]))
        return min(best, repair.improved(rows, best[1]), key=lambda end: end[2])

    def _numbers_again(self, rows: Tensor, labels: Tensor) -> FoundRows:
        """Search the numbers of rows, their levels given."""
        import torch

        problem, releases = self._posed("float32")
        known = torch.tensor(~self.schema.numbers)
        values = rows.to(problem.frame.dtype)
        if problem.attributes is not None:
            known = known | problem.attributes[0]
        posed = replace(problem, attributes=(known, values))
        starts, steps = self.attack.restarts, max(1, self.attack.steps // 3)
        return self._search(posed, releases, labels.expand(starts, *labels.shape), steps)

    def _with_certainty(
        self, found: Reconstruction, pooled: Pooled, searches: FoundRows
    ) -> Reconstruction:
        """Return the answer with how far the searches agree on each cell, the surest row first."""
        sure = pooled.certainty.mean(axis=1)
        order = np.argsort(-sure, kind="stable")
        return replace(
            found,
            samples=self.schema.snap(found.samples)[order],
            labels=None if found.labels is None else found.labels[order],
            confidence=sure[order],
            cell_confidence=pooled.certainty[order],
            stats={
                **found.stats,
                "searches": len(searches.rows),
                "lowest": float(np.sqrt(searches.best)),
                "certainty": float(sure.mean()),
            },
        )
