"""All attacks on a gradient under one budget, and the strongest of them by its own evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.base import Attack, nothing
from exhume.attacks.matching import Geiping
from exhume.attacks.matching.base import TINY
from exhume.attacks.portfolio.budget import Budget
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Stat, Status
from exhume.release import Release
from exhume.seeds import stream

if TYPE_CHECKING:
    from exhume.attacks.portfolio.entry import Entry
    from exhume.attacks.portfolio.evidence import Judge

_STOPS = (InputError, RuntimeError, ArithmeticError, ValueError, MemoryError)
"""What a member may stop with: it is on record, and the others go on."""


@dataclass(frozen=True)
class Portfolio(Attack):
    """Runs every attack that takes the release, and answers with the strongest.

    Attacks that solve for the batch come first, and end it all where re-simulating their answer
    gives the release. Then those that search share half of ``steps`` (evaluations of the network's
    gradient), with some layers held out: whichever predicts these best, together with known
    batch-norm statistics, gets the other half and the whole release. ``seconds`` (of the
    processor) sets the steps by the pace of this machine instead. The truth plays no part.
    """

    name: ClassVar[str] = "portfolio"
    steps: int = 1600
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"steps must be at least 1, got {self.steps}")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"seconds must be a positive number, got {self.seconds}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for what re-simulating needs: a gradient or update of a known network."""
        return Geiping().accepts(release, knowledge)

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        import torch

        from exhume.attacks.matching.reading import read
        from exhume.attacks.portfolio.evidence import Judge

        with torch.random.fork_rng(devices=[]):
            reading = read(release, knowledge)
            assert not isinstance(reading, str)
            if reading.length < TINY:
                return nothing(knowledge, Status.NO_INFORMATION, "the release is all zeros")
            judge = Judge(release, reading, rng)
            seed = int(rng.integers(2**31))
            return _Contest(self, release, knowledge, judge, seed).run()


class _Contest:
    """One release: who ran, and what came of it."""

    def __init__(
        self, portfolio: Portfolio, release: Release, knowledge: Knowledge, judge: Judge, seed: int
    ) -> None:
        self.portfolio, self.release, self.knowledge = portfolio, release, knowledge
        self.judge, self.seed = judge, seed
        self.budget = Budget(portfolio.steps, portfolio.seconds, judge.pace)
        self.entries: list[Entry] = []

    def run(self) -> Reconstruction:
        from exhume.attacks.portfolio.entry import best_of
        from exhume.attacks.portfolio.members import direct_members

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
        """Run a member and note what came of it; return whether its answer is exact."""
        from exhume.attacks.portfolio.entry import Entry

        rng = stream(self.seed, "portfolio", name or attack.name)
        try:
            found = attack.reconstruct(release, self.knowledge, rng=rng)
            entry = Entry(name or attack.name, found)
            if len(found):
                evidence = self.judge.evidence(found)
                entry = replace(
                    entry, evidence=evidence, records=self.judge.completed(found.samples)
                )
        except _STOPS as error:
            message = f"{type(error).__name__}: {error}"
            entry = Entry(attack.name, nothing(self.knowledge, Status.CRASHED, message))
        self.entries.append(entry)
        return entry.evidence is not None and entry.evidence.exact

    def _searched(self) -> bool:
        """Let the searching members share half of the budget; return whether one is exact."""
        from exhume.attacks.portfolio.members import matching_members, within

        members = matching_members(labels_known=self.knowledge.labels is not None)
        shown, smooth = self.judge.shown(self.release), self.judge.smooth
        able = [m for m in members if m.accepts(shown, self.knowledge) is None]
        for attack in members:
            if attack not in able:
                self._tried(attack, shown)
                continue
            steps = self.budget.share(len(able), len(able) - able.index(attack))
            # On a smooth network these may be exact, and then nothing needs to be held out.
            whole = smooth and attack.name in ("dlg", "idlg")
            given = within(attack, steps, smooth=smooth), self.release if whole else shown
            if self.budget.timed(attack.name, steps, partial(self._tried, *given)):
                return True
        return False

    def _again(self, best: Entry) -> Entry | None:
        """Give the rest of the budget and the whole release to a searching member that won."""
        from exhume.attacks.portfolio.entry import fuller
        from exhume.attacks.portfolio.members import matching_members, within

        members = matching_members(labels_known=self.knowledge.labels is not None)
        chosen = [m for m in members if m.name == best.name]
        if not chosen:
            return None
        steps = self.budget.rest(best.name)
        attack = within(chosen[0], steps, smooth=self.judge.smooth)
        self._tried(attack, self.release, f"{best.name}-again")
        return fuller(best, self.entries[-1])

    def _answer(self, chosen: Entry, first: Entry | None = None) -> Reconstruction:
        from exhume.attacks.portfolio.entry import apart_from

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

    def _contradicted(self) -> Entry | None:
        """Return a member that found the release to contradict what is assumed."""
        wrong = [e for e in self.entries if e.found.status is Status.WRONG_ASSUMPTION]
        return wrong[0] if wrong else None

    def _message(self, chosen: Entry, apart: float | None) -> str:
        assert chosen.evidence is not None
        ran = [e for e in self.entries if e.evidence is not None]
        parts = [f"{chosen.name} was chosen of {len(ran)} answers"]
        if chosen.evidence.exact:
            parts[0] += ": simulating it gives the release, to rounding or noise"
        else:
            how = "predicts the layers held out" if self.judge.held else "fits the release"
            known = " and the known statistics" if chosen.evidence.statistics is not None else ""
            parts[0] += f": it {how}{known} best"
            parts.append(chosen.found.message)
            wrong = self._contradicted()
            if wrong is not None and wrong.found.message != chosen.found.message:
                parts.append(f"{wrong.name}: {wrong.found.message}")
        if apart is not None:
            parts.append(f"its two runs differ by {apart:.2g} a value")
        return "; ".join(part for part in parts if part)

    def _stats(self, chosen: Entry, apart: float | None) -> dict[str, Stat]:
        stats: dict[str, Stat] = {"chosen": chosen.name.removesuffix("-again")}
        assert chosen.evidence is not None
        stats["residual"], stats["floor"] = chosen.evidence.residual, chosen.evidence.floor
        if apart is not None:
            stats["disagreement"] = apart
        for entry in self.entries:
            stats |= entry.stats(self.entries)
        return {k: v for k, v in stats.items() if isinstance(v, str) or np.isfinite(v)}

    def _empty(self) -> Reconstruction:
        """Return why no member has a candidate: never as if the release were safe."""
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
