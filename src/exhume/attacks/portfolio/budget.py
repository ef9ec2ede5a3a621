"""How many evaluations each member gets: by number, or by the seconds that are left."""

from __future__ import annotations

import time
from collections.abc import Callable


class Budget:
    """``steps`` evaluations in all, or ``seconds`` of the processor, from now on.

    Half is for the members that search, in equal parts; the rest for the one that wins. In seconds,
    what a member overran is taken from those after it, and the winner's own pace sets its steps.
    """

    def __init__(self, steps: int, seconds: float | None, pace: Callable[[], float]) -> None:
        self._steps, self._seconds = steps, seconds
        self._begun = time.process_time()
        self._pace = pace
        self._bare: float | None = None
        self._own: dict[str, float] = {}

    def share(self, members: int, left: int) -> int:
        """Return the evaluations of the next of ``members`` that search, ``left`` of them to go."""
        if self._seconds is None:
            return self._steps // 2 // members
        if self._bare is None:
            # What the solving members took is gone.
            self._seconds -= self._spent()
            self._begun = time.process_time()
            self._bare = self._pace()
        return max(1, int((0.5 * self._seconds - self._spent()) / left / self._bare))

    def rest(self, name: str) -> int:
        """Return the evaluations that are left for the winner."""
        if self._seconds is None:
            return self._steps - self._steps // 2
        pace = self._own.get(name, self._bare or 1.0)
        return max(1, int((self._seconds - self._spent()) / pace))

    def timed(self, name: str, evaluations: int, run: Callable[[], bool]) -> bool:
        """Run a member, remembering what an evaluation of its own took."""
        begun = time.process_time()
        exact = run()
        self._own[name] = max((time.process_time() - begun) / evaluations, 1e-6)
        return exact

    def _spent(self) -> float:
        return time.process_time() - self._begun
