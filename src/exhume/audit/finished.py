"""Reports each setting as soon as its trials are done, while others still run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from exhume.audit.plan import Plan
from exhume.runlog.store import Store
from exhume.runlog.summary import Bracket, bracket_of

Finished = Callable[[Bracket], None]
"""Called with the bracket of each setting that is finished."""


class FinishedSettings:
    """Looks into the log after each step; what was finished before is not reported again."""

    def __init__(self, plan: Plan, log: Store, tell: Finished) -> None:
        self._log, self._tell = log, tell
        self._left = Counter[str]()
        for unit in plan.units():
            trials = len(plan.attacks_on(unit)) * len(unit.targets)
            self._left[plan.config.setting[unit.setting].name] += trials
        self._targets = {
            table.name: plan.planned(index) for index, table in enumerate(plan.config.setting)
        }
        self._look(lambda bracket: None)

    def look(self) -> None:
        """Tell of the settings that are finished since the last look."""
        self._look(self._tell)

    def _look(self, tell: Finished) -> None:
        counts = self._log.counts()
        ready = [name for name, size in self._left.items() if counts.get(name, 0) >= size]
        if not ready:
            return
        outcomes = self._log.outcomes()
        for setting in self._log.settings():
            if setting.name in ready:
                del self._left[setting.name]
                own = [one for one in outcomes if one.trial.setting == setting.name]
                tell(bracket_of(setting, own, self._targets[setting.name]))
