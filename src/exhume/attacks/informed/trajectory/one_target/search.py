"""One release without noise: attempts from several starts and labels, judged by their residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.observation import ObservedRelease, WholeVector
from exhume.attacks.informed.trajectory.one_target.adam_zero_pixels import LEAST, zero_pixels
from exhume.attacks.informed.trajectory.one_target.gauss_newton import (
    IterationBudget,
    ResidualProblem,
    Solution,
    gauss_newton,
)
from exhume.attacks.informed.trajectory.one_target.references import References, ReferenceStart
from exhume.attacks.informed.trajectory.one_target.secants import LARGEST, follow_secants
from exhume.attacks.informed.trajectory.one_target.unroll import label_vectors
from exhume.attacks.informed.trajectory.one_target.unrolled import StepwiseUnrolled, Unrolled
from exhume.derivatives.objective import Objective
from exhume.protocol.arrays import Array
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.training.network import Training

_CLOSE = 0.1
"""A relative residual from which the Jacobian changes little from step to step."""
_NEAR = 0.35
"""Wrong labels and wrong local minima have almost never reached this relative residual."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """The effort: at most ``attempts`` starts of ``short`` iterations each; the best continue.

    ``jacobians`` limits the iterations of all attempts together. A relative residual of
    ``tolerance`` ends the search. At ``certificate`` or less, the training itself confirms the
    answer. ``each`` and ``crossed`` are the numbers of records per class that are simulated
    beforehand.
    """

    attempts: int = 14
    short: int = 2
    jacobians: int = 100
    directions: int = 24
    tolerance: float = 5e-5
    certificate: float = 1e-3
    each: int = 6
    crossed: int = 4


@dataclass(frozen=True, eq=False)
class Prepared:
    """What releases of one training share: the training unrolled twice, and simulated records.

    ``exact`` is in double precision, for residuals; ``rough`` in single, for Jacobians. ``kept``
    (m,) marks the released numbers that arithmetic reproduces; None means all of them.
    """

    training: Training
    objective: Objective
    kept: Tensor | None
    exact: Unrolled
    rough: Unrolled
    references: References


@dataclass(frozen=True, eq=False)
class _Attempt:
    """An attempt: its problem (which entries are free), its result, and whether it stalled."""

    problem: ResidualProblem
    solution: Solution
    stalled: bool = False

    def followed(self, found: Solution) -> _Attempt:
        if found.relative > 0.9 * self.solution.relative:
            return replace(self, stalled=True)
        return replace(self, solution=found)


class Search:
    """One release: attempts from several starts and labels, judged by their residuals alone."""

    def __init__(
        self, prepared: Prepared, read: ObservedRelease, knowledge: Knowledge, effort: Effort
    ) -> None:
        self.prepared, self.knowledge, self.effort = prepared, knowledge, effort
        self.seen = read.seen.to(torch.float64)
        self.base = prepared.exact.observation.value(prepared.exact.base)
        self.outputs = prepared.training.network.outputs
        self.entries = prepared.exact.unknowns - self.outputs
        self.attempts = self.jacobians = 0
        scale = float((self.seen - self.base).norm())
        fixed_set = knowledge.fixed_set
        assert fixed_set is not None
        self.dark = zero_pixels(prepared.training, fixed_set, prepared.exact, self.seen)
        free, low, high = self._box()
        self.problem = ResidualProblem(
            prepared.exact,
            prepared.rough,
            self.seen,
            free,
            low,
            high,
            max(scale, 1e-300),
        )

    def _box(self) -> tuple[Tensor, Tensor, Tensor]:
        low, high = self.knowledge.value_range or (-math.inf, math.inf)
        size = self.prepared.exact.unknowns
        free = torch.ones(size, dtype=torch.bool)
        lows, highs = torch.full((size,), low), torch.full((size,), high)
        classified = self.prepared.training.classes is not None
        lows[self.entries :], highs[self.entries :] = (
            (0.0, 1.0) if classified else (-math.inf, math.inf)
        )
        if self.dark is not None:
            free[: self.entries] &= ~self.dark.unlit
            lows[: self.entries][self.dark.lit] = max(low, LEAST)
        known = self.knowledge.known_attributes
        if known is not None:
            free[: self.entries] &= ~torch.as_tensor(known.mask.copy()).reshape(-1)
        if self.knowledge.labels is not None:
            free[self.entries :] = False
        return free, lows.to(torch.float64), highs.to(torch.float64)

    def run(self) -> Solution:
        """Give every label a short run, continue those that make progress, then the best ones."""
        tried: list[_Attempt] = []
        for start, free in self.starts():
            if self.attempts >= self.effort.attempts or self._spent():
                break
            self.attempts += 1
            problem = replace(self.problem, free=free)
            found = self._settled(problem, self._solve(problem, start, self.effort.short))
            tried.append(_Attempt(problem, found))
            if self._certified(found):
                return found
        for _ in range(self.effort.attempts):
            going = [one for one in tried if not one.stalled]
            if self._spent() or not going:
                break
            best = min(going, key=lambda one: one.solution.relative)
            found = self._solve(best.problem, best.solution.record, 3)
            found = self._settled(best.problem, found)
            tried.remove(best)
            tried.append(best.followed(found))
            if self._certified(found):
                return found
        return min((one.solution for one in tried), key=lambda one: one.relative)

    def _settled(self, problem: ResidualProblem, found: Solution) -> Solution:
        """Continue an attempt that makes progress; near the end, fix its label."""
        while self.effort.tolerance < found.relative and _on_its_way(found):
            if self._spent():
                break
            before = found.relative
            chosen, record = self._decided(problem, found)
            if before < _CLOSE and self._follows_secants:
                found = self._finished(chosen, record)
                if found.relative < 0.5 * before:
                    continue
            patience = 1 if self._follows_secants else 4
            following = self._solve(chosen, record, patience if before < _NEAR else 2)
            if following.relative > 0.7 * before and before < _NEAR and chosen is not self.problem:
                following = self._solve(self.problem, found.record, 4)
            if following.relative < found.relative:
                found = following
            if found.relative > 0.7 * before or self._crawls(found):
                break
        return found

    @property
    def _follows_secants(self) -> bool:
        """Whether the whole Jacobian is affordable, and Krylov spaces are no cheaper."""
        unrolled = self.prepared.exact
        return isinstance(unrolled, StepwiseUnrolled) and unrolled.unknowns <= LARGEST

    def _finished(self, problem: ResidualProblem, record: Tensor) -> Solution:
        """Follow secants from a record that is close."""
        residual = problem.residual(record)
        relative = problem.relative(residual)
        start = Solution(record, residual, relative, (relative,))
        found = follow_secants(problem, start, jacobians=2, tolerance=self.effort.tolerance)
        # A Jacobian is that many products; elsewhere one is two per direction.
        whole = int(problem.free.sum()) // (2 * self.effort.directions) + 1
        self.jacobians += whole * (len(found.history) - 1)
        return found

    def _certified(self, found: Solution) -> bool:
        return found.relative <= max(self.effort.tolerance, 0.5 * self.effort.certificate)

    def _crawls(self, found: Solution) -> bool:
        """Whether a certified answer gains little from a further Jacobian."""
        certain = found.relative <= 0.5 * self.effort.certificate
        latest = found.history[-2:]
        return certain and latest[-1] > 0.5 * latest[0]

    def _decided(self, problem: ResidualProblem, found: Solution) -> tuple[ResidualProblem, Tensor]:
        """Return problem and record to continue with: unchanged, label open, or largest label."""
        if found.relative > _NEAR:
            return problem, found.record
        label = found.record[self.entries :]
        classified = self.prepared.training.classes is not None
        if not classified or self.knowledge.labels is not None or found.relative > 0.1:
            return self.problem, found.record
        free = self.problem.free.clone()
        free[self.entries :] = False
        record = found.record.clone()
        record[self.entries :] = torch.nn.functional.one_hot(label.argmax(), self.outputs).to(label)
        return replace(self.problem, free=free), record

    def _solve(self, problem: ResidualProblem, start: Tensor, iterations: int) -> Solution:
        budget = IterationBudget(
            iterations=min(iterations, self.effort.jacobians - self.jacobians),
            directions=self.effort.directions,
            tolerance=self.effort.tolerance,
        )
        found = gauss_newton(problem, start, budget)
        self.jacobians += len(found.history) - 1
        return found

    def _spent(self) -> bool:
        return self.jacobians >= self.effort.jacobians

    def starts(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield starts and their free entries: labels by evidence 1, 2, 1, 3, …, then open ones."""
        above = None
        if isinstance(self.prepared.exact.observation, WholeVector):
            above = self.prepared.objective.sizes[0]
        ranked = self.prepared.references.ranked(self.seen - self.base, above)
        given = self._given()
        if given is not None or self.prepared.training.classes is None:
            label = -1 if given is None else int(given.argmax())
            # Simulations under the given label come first: their similarity has the right cause.
            for start in sorted(ranked, key=lambda one: one.label != label):
                yield self.filled(start, given), self.problem.free
            return
        closed = self.problem.free.clone()
        closed[self.entries :] = False
        for start, is_open in _interleaved(ranked):
            record = self.filled(start, None)
            if is_open:
                record[self.entries :] = 0.6 * record[self.entries :] + 0.4 / self.outputs
            yield record, self.problem.free if is_open else closed

    def _given(self) -> Tensor | None:
        if self.knowledge.labels is None:
            return None
        vector = label_vectors(self.prepared.training, self.knowledge.labels)[0]
        return torch.as_tensor(np.asarray(vector, dtype=np.float64))

    def filled(self, start: ReferenceStart, given: Tensor | None) -> Tensor:
        """Return a start's record with the known parts of the target inserted."""
        record = start.record.clone()
        if self.dark is not None:
            record[: self.entries] = self.dark.filled(record[: self.entries])
        known = self.knowledge.known_attributes
        if known is not None:
            mask = torch.as_tensor(known.mask.copy()).reshape(-1)
            values = torch.as_tensor(known.values.copy()).reshape(-1)
            record[: self.entries] = torch.where(mask, values, record[: self.entries])
        if given is not None:
            record[self.entries :] = given
        return record

    def answer(self, found: Solution, rng: np.random.Generator) -> Reconstruction:
        """Return the record with its certificate, or say that it has none."""
        shape = self.knowledge.record_shape
        sample = found.record[: self.entries].cpu().numpy().reshape(1, *shape)
        status = self._status(found)
        path = self.problem.path(found.record)
        values = None if found.triplets is None else found.triplets.values
        return Reconstruction(
            sample,
            status,
            labels=self.label(found.record),
            confidence=np.array([1.0 / (1.0 + found.relative / self.effort.certificate)]),
            error_estimate=np.array([self._error(found, status)]),
            message="" if status is Status.CONVERGED else self._why(found),
            stats={
                "relative_residual": found.relative,
                "attempts": self.attempts,
                "jacobians": self.jacobians,
                "amplification": path.amplification(rng),
                "largest_singular_value": 0.0 if values is None else float(values[0]),
                "smallest_singular_value": 0.0 if values is None else float(values[-1]),
            },
        )

    def _status(self, found: Solution) -> Status:
        if found.relative <= self.effort.certificate:
            return Status.CONVERGED
        return Status.APPROXIMATE if found.relative <= 0.03 else Status.NOT_CONVERGED

    def _error(self, found: Solution, status: Status) -> float:
        blind = spread(self.knowledge)
        return blind if status is Status.NOT_CONVERGED else min(found.error(), blind)

    def label(self, record: Tensor) -> Array:
        """Return the label (1,) of a record (R,)."""
        label = record[self.entries :].cpu().numpy()
        classes = self.prepared.training.classes
        return label[:1] if classes is None else np.asarray(classes)[[int(label.argmax())]]

    def _why(self, found: Solution) -> str:
        return (
            f"repeating the training with the answer misses the release by {found.relative:.2g} "
            f"of the record's own effect, after {self.attempts} starts"
        )


def _on_its_way(found: Solution) -> bool:
    """Whether it is near the end, or falls fast from a residual that is not too long."""
    if found.relative < _NEAR:
        return True
    falling = len(found.history) > 1 and found.history[-1] < 0.7 * found.history[-2]
    return falling and found.relative < 0.8


def _interleaved(ranked: list[ReferenceStart]) -> Iterator[tuple[ReferenceStart, bool]]:
    """Order: each label's best start, the best of all with its label open, then the other labels.

    After these, second starts follow by similarity, alternating between open labels and their own.
    """
    firsts = {start.label: start for start in reversed(ranked)}
    labels = list(dict.fromkeys(start.label for start in ranked))
    yield firsts[labels[0]], False
    yield ranked[0], True
    for label in labels[1:]:
        yield firsts[label], False
    seconds = [start for start in ranked if start is not firsts[start.label]]
    for start in seconds:
        yield start, True
        yield start, False


def spread(knowledge: Knowledge) -> float:
    """Return the root-mean-square error of guessing the pool's mean; 1 without a pool."""
    pool = knowledge.pool()
    if len(pool) < 2:
        return 1.0
    return math.sqrt(float(pool.reshape(len(pool), -1).var(axis=0).mean()))
