"""All attacks on a gradient under one budget; the strongest by its own evidence answers.

Also the number of evaluations per member, by steps or by the remaining seconds, and the members
with the settings for their share of the budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.gradients.analytic import Cocktail, FirstLayer, Imprint, Sparsity
from exhume.attacks.gradients.features import Features
from exhume.attacks.gradients.matching import (
    DLG,
    IDLG,
    BatchNormMatching,
    Geiping,
    GenerativePrior,
    LiuMatching,
)
from exhume.attacks.gradients.matching.attack import TINY, matchable
from exhume.protocol.attack import Attack, ParsedAttack, Refusal, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Stat, Status
from exhume.protocol.release import Release
from exhume.protocol.seeds import stream

if TYPE_CHECKING:
    from exhume.attacks.gradients.matching.problem import MatchableRelease
    from exhume.attacks.gradients.portfolio.choice import MemberRun
    from exhume.attacks.gradients.portfolio.evidence import HeldOutJudge


_STOPS = (InputError, RuntimeError, ArithmeticError, ValueError, MemoryError)
"""Errors that stop one member: they are recorded, and the other members still run."""


@dataclass(frozen=True)
class Portfolio(ParsedAttack["MatchableRelease"]):
    """Runs every attack that accepts the release, and returns the strongest answer.

    Attacks that solve for the batch come first. If simulating their answer reproduces the release,
    the portfolio stops. Then the attacks that search share half of ``steps`` (evaluations of the
    network's gradient), with some layers held out. The one that predicts these layers and the known
    batch-norm statistics best gets the other half and the whole release. ``seconds`` (processor
    time) derives the steps from the speed of this machine instead. The truth is never used.
    """

    name: ClassVar[str] = "portfolio"
    steps: int = 1600
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, got {self.steps}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be a positive number, got {self.seconds}")

    def parse(self, release: Release, knowledge: Knowledge) -> MatchableRelease | Refusal:
        """Require what a simulation needs: a gradient or update of a known network."""
        return matchable(release, knowledge)

    def _solve(self, reading: MatchableRelease, rng: np.random.Generator) -> Reconstruction:
        import torch

        from exhume.attacks.gradients.portfolio.evidence import HeldOutJudge

        with torch.random.fork_rng(devices=[]):
            if reading.length < TINY:
                return nothing(reading.knowledge, Status.NO_INFORMATION, "the release is all zeros")
            judge = HeldOutJudge(reading, rng)
            return _Contest(self, reading, judge, int(rng.integers(2**31))).run()


class _Contest:
    """The runs of all members on one release."""

    def __init__(
        self,
        portfolio: Portfolio,
        reading: MatchableRelease,
        judge: HeldOutJudge,
        seed: int,
    ) -> None:
        self.release, self.knowledge = reading.release, reading.knowledge
        self.judge, self.seed = judge, seed
        self.budget = MemberBudget(portfolio.steps, portfolio.seconds, judge.pace)
        self.entries: list[MemberRun] = []

    def run(self) -> Reconstruction:
        from exhume.attacks.gradients.portfolio.choice import best_of

        for attack in direct_members():
            if self._tried(attack, self.release):
                return self._answer(self.entries[-1])
        if self._searched():
            return self._answer(self.entries[-1])
        best = best_of(self.entries)
        if best is None:
            return self._empty()
        again = self._again(best)
        return self._answer(best if again is None else again, first=best)

    def _tried(self, attack: Attack, release: Release, name: str | None = None) -> bool:
        """Run a member and record its result; return whether its answer is exact."""
        from exhume.attacks.gradients.portfolio.choice import MemberRun

        rng = stream(self.seed, "portfolio", name or attack.name)
        try:
            found = attack.reconstruct(release, self.knowledge, rng=rng)
            entry = MemberRun(name or attack.name, found)
            if len(found):
                evidence = self.judge.evidence(found)
                entry = replace(
                    entry, evidence=evidence, records=self.judge.completed(found.samples)
                )
        except _STOPS as error:
            message = f"{type(error).__name__}: {error}"
            entry = MemberRun(attack.name, nothing(self.knowledge, Status.CRASHED, message))
        self.entries.append(entry)
        return entry.evidence is not None and entry.evidence.exact

    def _searched(self) -> bool:
        """Let the searching members share half of the budget; return whether one is exact."""
        members = matching_members(labels_known=self.knowledge.labels is not None)
        shown, smooth = self.judge.shown(), self.judge.smooth
        able = [m for m in members if m.accepts(shown, self.knowledge) is None]
        for attack in members:
            if attack not in able:
                self._tried(attack, shown)
                continue
            steps = self.budget.share(len(able), len(able) - able.index(attack))
            # On a smooth network these may be exact, so no layer needs to be held out.
            whole = smooth and attack.name in ("dlg", "idlg")
            given = within(attack, steps, smooth=smooth), self.release if whole else shown
            if self.budget.timed(attack.name, steps, partial(self._tried, *given)):
                return True
        return False

    def _again(self, best: MemberRun) -> MemberRun | None:
        """Give the rest of the budget and the whole release to a searching member that won."""
        from exhume.attacks.gradients.portfolio.choice import fuller

        members = matching_members(labels_known=self.knowledge.labels is not None)
        chosen = [m for m in members if m.name == best.name]
        if not chosen:
            return None
        steps = self.budget.rest(best.name)
        attack = within(chosen[0], steps, smooth=self.judge.smooth)
        self._tried(attack, self.release, f"{best.name}-again")
        return fuller(best, self.entries[-1])

    def _answer(self, chosen: MemberRun, first: MemberRun | None = None) -> Reconstruction:
        from exhume.attacks.gradients.portfolio.choice import apart_from

        assert chosen.evidence is not None
        found, evidence = chosen.found, chosen.evidence
        status = found.status
        if evidence.exact:
            status = Status.CONVERGED
        elif status is Status.CONVERGED:
            status = Status.APPROXIMATE
        elif status is not Status.APPROXIMATE and self._contradicted() is not None:
            status = Status.WRONG_ASSUMPTION
        last = self.entries[-1]
        apart = None
        if first is not None and last is not first:
            apart = apart_from(first, last)
        errors = found.error_estimate
        if apart is not None and not evidence.exact:
            errors = np.full(len(found), apart)
        return Reconstruction(
            found.samples,
            status,
            labels=found.labels,
            confidence=found.confidence,
            error_estimate=errors,
            message=self._message(chosen, apart),
            stats=self._stats(chosen, apart),
        )

    def _contradicted(self) -> MemberRun | None:
        """Return a member whose finding contradicts the assumptions on the release, or None."""
        wrong = [e for e in self.entries if e.found.status is Status.WRONG_ASSUMPTION]
        return wrong[0] if wrong else None

    def _message(self, chosen: MemberRun, apart: float | None) -> str:
        assert chosen.evidence is not None
        ran = [e for e in self.entries if e.evidence is not None]
        parts = [f"{chosen.name} was chosen from {len(ran)} answers"]
        if chosen.evidence.exact:
            parts[0] += ": simulating it reproduces the release, up to rounding or noise"
        else:
            how = "predicts the held-out layers" if self.judge.held else "fits the release"
            known = " and the known statistics" if chosen.evidence.statistics is not None else ""
            parts[0] += f": it {how}{known} best"
            parts.append(chosen.found.message)
            wrong = self._contradicted()
            if wrong is not None and wrong.found.message != chosen.found.message:
                parts.append(f"{wrong.name}: {wrong.found.message}")
        if apart is not None:
            parts.append(f"its two runs differ by {apart:.2g} per value")
        return "; ".join(part for part in parts if part)

    def _stats(self, chosen: MemberRun, apart: float | None) -> dict[str, Stat]:
        stats: dict[str, Stat] = {"chosen": chosen.name.removesuffix("-again")}
        assert chosen.evidence is not None
        stats["residual"], stats["floor"] = chosen.evidence.residual, chosen.evidence.floor
        if apart is not None:
            stats["disagreement"] = apart
        for entry in self.entries:
            stats |= entry.stats(self.entries)
        return {k: v for k, v in stats.items() if isinstance(v, str) or np.isfinite(v)}

    def _empty(self) -> Reconstruction:
        """Return why no member has a candidate; the release must not look safe."""
        ran = [e for e in self.entries if e.found.status is not Status.REFUSED]
        statuses = {e.found.status for e in ran}
        status = Status.NOT_CONVERGED
        if Status.WRONG_ASSUMPTION in statuses:
            status = Status.WRONG_ASSUMPTION
        elif statuses == {Status.NO_INFORMATION}:
            status = Status.NO_INFORMATION
        told = "; ".join(f"{e.name}: {e.found.message}" for e in ran)
        stats: dict[str, Stat] = {}
        for entry in self.entries:
            stats |= entry.stats(self.entries)
        found = nothing(self.knowledge, status, f"no attack has a candidate ({told})")
        return replace(found, stats=stats)


class MemberBudget:
    """A budget of ``steps`` evaluations, or of ``seconds`` of processor time from now on.

    Half is for the members that search, in equal parts; the rest is for the winner. With seconds, a
    member that takes too long shortens the others, and the winner's own speed sets its steps.
    """

    def __init__(self, steps: int, seconds: float | None, pace: Callable[[], float]) -> None:
        self._steps, self._seconds = steps, seconds
        self._begun = time.process_time()
        self._pace = pace
        self._bare: float | None = None
        self._own: dict[str, float] = {}

    def share(self, members: int, left: int) -> int:
        """Return the evaluations of the next of ``members`` that search; ``left`` remain."""
        if self._seconds is None:
            return max(1, self._steps // 2 // members)
        if self._bare is None:
            # Subtract the time that the solving members took.
            self._seconds -= self._spent()
            self._begun = time.process_time()
            self._bare = self._pace()
        return max(1, int((0.5 * self._seconds - self._spent()) / left / self._bare))

    def rest(self, name: str) -> int:
        """Return the evaluations that remain for the winner."""
        if self._seconds is None:
            return self._steps - self._steps // 2
        pace = self._own.get(name, self._bare or 1.0)
        return max(1, int((self._seconds - self._spent()) / pace))

    def timed(self, name: str, evaluations: int, run: Callable[[], bool]) -> bool:
        """Run a member and record the time per evaluation."""
        begun = time.process_time()
        exact = run()
        self._own[name] = max((time.process_time() - begun) / evaluations, 1e-6)
        return exact

    def _spent(self) -> float:
        return time.process_time() - self._begun


ROUND = 25
"""Approximate number of evaluations in a round of L-BFGS."""
LEAST = 8
"""Fewer steps than this make no useful schedule."""


def direct_members() -> tuple[Attack, ...]:
    """Return the attacks that solve for the batch, cheapest first."""
    return FirstLayer(), Imprint(), Sparsity(), Features(), Cocktail()


def matching_members(*, labels_known: bool) -> tuple[Attack, ...]:
    """Return the attacks that search for the batch; DLG with known labels is iDLG."""
    first: tuple[Attack, ...] = (DLG(),) if labels_known else (IDLG(), DLG())
    return (*first, Geiping(), BatchNormMatching(), LiuMatching(), GenerativePrior())


def within(attack: Attack, evaluations: int, *, smooth: bool) -> Attack:
    """Return the attack with settings that take about this many evaluations.

    Gauss–Newton is skipped if the network has kinks: it needs a smooth one.
    """
    steps = max(LEAST, evaluations)
    match attack:
        case DLG():
            jacobians = attack.jacobians if smooth else 0
            rounds = min(attack.steps, max(1, evaluations // ROUND))
            return replace(attack, steps=rounds, starts=1, jacobians=jacobians)
        case GenerativePrior():
            half = max(LEAST, steps // 2)
            return replace(attack, steps=half, training_steps=half, restarts=1)
        case Geiping() | BatchNormMatching() | LiuMatching():
            return replace(attack, steps=steps, restarts=1)
        case _:
            return attack
