"""Many restarts of the KKT search in one batch, by Adam on coordinates and log-multipliers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.kkt.objective import Problem
from exhume.attacks.kkt.span import Coordinates


@dataclass(frozen=True)
class Schedule:
    """How to search: a slope goes from its first to its last value, rates fall ×.3, then ×.1.

    Restarts take turns with the ``slopes``.
    """

    steps: int = 4000
    rate: float = 0.02
    multiplier_rate: float = 0.03
    slopes: tuple[tuple[float, float], ...] = ((50.0, 50.0),)
    range_penalty: float = 0.1

    def factor(self, share: float) -> float:
        """Return what the rates are multiplied with at this share of the steps."""
        return 0.1 if share > 0.8 else 0.3 if share > 0.5 else 1.0

    def slope_at(self, share: float, restarts: int) -> Tensor:
        """Return each restart's slope (restarts,) at this share of the steps."""
        first, last = torch.tensor(self.slopes, dtype=torch.float64).T
        slopes: Tensor = first * (last / first) ** min(1.0, share / 0.7)
        return slopes[torch.arange(restarts) % len(slopes)]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Where every restart ended: ``q`` (B, m, r), multipliers (B, m), squared residuals (B,)."""

    q: Tensor
    multipliers: Tensor
    values: Tensor
    initial: Tensor


def search(
    problem: Problem,
    span: Coordinates,
    q: Tensor,
    rho: Tensor,
    classes: Tensor,
    schedule: Schedule,
    value_range: tuple[float, float] | None,
) -> Candidates:
    """Minimise the residual from ``q`` (B, m, r), ``rho`` (B, m); leaving the range costs."""
    q, rho = span.fitted(q), rho.clone()
    adam_q, adam_rho = _Adam(q), _Adam(rho)
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
        factor = schedule.factor(share)
        q = span.fitted(q - factor * schedule.rate * adam_q.step(dq))
        rho = rho - factor * schedule.multiplier_rate * adam_rho.step(found.rho)
    values = problem.evaluate(q, rho, classes, slopes[1]).value
    return Candidates(q, rho.exp(), values, initial)


class _Adam:
    """The direction of Adam's step (Kingma and Ba 2015), for tensors without autograd."""

    def __init__(self, like: Tensor) -> None:
        self.mean, self.square, self.count = torch.zeros_like(like), torch.zeros_like(like), 0

    def step(self, gradient: Tensor) -> Tensor:
        self.count += 1
        self.mean.mul_(0.9).add_(gradient, alpha=0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = (self.square / (1.0 - 0.999**self.count)).sqrt() + 1e-8
        return self.mean / (1.0 - 0.9**self.count) / size
