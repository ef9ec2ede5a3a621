"""Adam on the coordinates and log-multipliers of many restarts of the KKT search in one batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.weights_only.row_span import Coordinates
from exhume.attacks.weights_only.stationarity import StationarityProblem
from exhume.training.optimisers import Adam


@dataclass(frozen=True)
class Schedule:
    """Search schedule: the slope moves from first to last value; rates fall by ×.3, then ×.1.

    Restarts use the ``slopes`` in rotation.
    """

    steps: int = 4000
    rate: float = 0.02
    multiplier_rate: float = 0.03
    slopes: tuple[tuple[float, float], ...] = ((50.0, 50.0),)
    range_penalty: float = 0.1

    def optimisers(self, share: float) -> tuple[Adam, Adam]:
        """Return coordinates' and multipliers' optimiser after this share of the steps."""
        factor = 0.1 if share > 0.8 else 0.3 if share > 0.5 else 1.0
        return Adam(factor * self.rate), Adam(factor * self.multiplier_rate)

    def slope_at(self, share: float, restarts: int) -> Tensor:
        """Return the slope of each restart (restarts,) after this share of the steps."""
        first, last = torch.tensor(self.slopes, dtype=torch.float64).T
        slopes: Tensor = first * (last / first) ** min(1.0, share / 0.7)
        return slopes[torch.arange(restarts) % len(slopes)]


@dataclass(frozen=True, eq=False)
class RestartEnds:
    """The end of every restart: ``q`` (B, m, r), multipliers (B, m), squared residuals (B,)."""

    q: Tensor
    multipliers: Tensor
    values: Tensor
    initial: Tensor


def search(
    problem: StationarityProblem,
    span: Coordinates,
    q: Tensor,
    rho: Tensor,
    classes: Tensor,
    schedule: Schedule,
    value_range: tuple[float, float] | None,
) -> RestartEnds:
    """Minimise the residual from ``q`` (B, m, r), ``rho`` (B, m), with a penalty on the range."""
    q, rho = span.fitted(q), rho.clone()
    state_q, state_rho = Adam().start(q), Adam().start(rho)
    pixels = span.map
    slopes = [schedule.slope_at(s, len(q)).to(q.dtype) for s in (0.0, 1.0)]
    initial = problem.evaluate(q, rho, classes, slopes[0]).value
    for step in range(schedule.steps):
        share = step / schedule.steps
        found = problem.evaluate(q, rho, classes, schedule.slope_at(share, len(q)).to(q.dtype))
        dq = found.q
        if value_range is not None and schedule.range_penalty > 0:
            x = pixels.records(q)
            outside = (x - value_range[0]).clamp_max(0) + (x - value_range[1]).clamp_min(0)
            dq = dq + 2.0 * schedule.range_penalty * pixels.pulled(outside)
        adam_q, adam_rho = schedule.optimisers(share)
        q, state_q = adam_q.step(q, dq, state_q)
        q = span.fitted(q)
        rho, state_rho = adam_rho.step(rho, found.rho, state_rho)
    values = problem.evaluate(q, rho, classes, slopes[1]).value
    return RestartEnds(q, rho.exp(), values, initial)
