"""An audit every few rounds, whose verdict goes into the run's metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exhume.flower.recording import Attempts, round_folder
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from exhume.audit import Bracket

IN_THE_LOOP = ("first-layer", "sparsity", "cocktail", "geiping")
"""The attacks of an audit during training: those that solve for records, and one search."""


@dataclass(frozen=True, eq=False)
class AuditInTheLoop:
    """An ``evaluate_fn`` that audits what was stored of every ``every``-th round.

    Its metrics begin with exhume-client (the client that gave most away) and exhume-aggregate:
    reached, low, high, blind, bound where one holds, and unanswered, the targets on which no attack
    really ran. ``attacks`` of None are all. ``then`` is an ``evaluate_fn`` of the user's own, whose
    metrics are kept. The run is in the round's folder, ``audit``.
    """

    folder: Path
    attempts: Attempts
    every: int = 1
    attacks: Sequence[str] | None = IN_THE_LOOP
    then: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"every must be at least 1, got {self.every}")

    def __call__(self, server_round: int, arrays: Any, *config: Any) -> Any:
        """Return metrics: a MetricRecord or None, and (loss, metrics) in the legacy form."""
        own = None if self.then is None else self.then(server_round, arrays, *config)
        found: dict[str, float] = {}
        if server_round > 0 and server_round % self.every == 0:
            self.attempts.attempt(lambda: found.update(self.verdict(server_round)))
        if config:
            loss, metrics = (math.nan, {}) if own is None else own
            return loss, {**metrics, **found}
        from flwr.app import MetricRecord

        return MetricRecord({**(own or {}), **found}) if own or found else None

    def verdict(self, server_round: int) -> dict[str, float]:
        """Audit what was stored of a round, and return the verdict as metrics."""
        from exhume.api import audited
        from exhume.audit import make_plan
        from exhume.config import load

        folder = round_folder(self.folder, server_round)
        config = load(folder)
        chosen = None if self.attacks is None else tuple(self.attacks)
        limited = config.audit.model_copy(update={"attacks": chosen})
        plan = make_plan(config.model_copy(update={"audit": limited}))
        brackets = audited(plan, folder / "audit", 1, True).summary.brackets
        return {
            f"exhume-{kind}-{key}": value
            for kind in ("client", "aggregate")
            for key, value in _worst([one for one in brackets if one.setting.startswith(kind)])
        }


def _worst(brackets: Sequence[Bracket]) -> list[tuple[str, float]]:
    """Return the verdict on the release that gave most away; what is unanswered is never 0."""
    if not brackets:
        return []
    found: list[tuple[str, float]] = [("unanswered", sum(one.unanswered for one in brackets))]
    judged = [(one.reached, one.blind) for one in brackets if one.reached is not None]
    if judged:
        reached, blind = max(judged, key=lambda one: (one[0].rate, one[0].low))
        found += [("reached", reached.rate), ("low", reached.low), ("high", reached.high)]
        found += [] if blind is None else [("blind", blind.rate)]
    limits = [one.ceiling for one in brackets if one.ceiling is not None]
    return found + ([("bound", max(limits))] if len(limits) == len(brackets) else [])
