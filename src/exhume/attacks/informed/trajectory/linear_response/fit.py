"""The record whose predicted effect is the observed one: a Gaussian fit by L-BFGS."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.linear_response.adjoint import Response
from exhume.attacks.informed.trajectory.linear_response.record_prior import (
    KnownEntries,
    RecordPrior,
)


@dataclass(frozen=True, eq=False)
class FittedRecord:
    """The coordinates c (D,) of a record, and the objective there."""

    coordinates: Tensor
    cost: float


@dataclass(frozen=True, eq=False)
class EffectProblem:
    """Minimise ½‖(observed − R(x))/deviation‖² + ½‖c − centre‖² over the coordinates c of x.

    ``observed`` and ``deviation`` are (P,), in the coordinates of the curvature.
    """

    response: Response
    prior: RecordPrior
    entries: KnownEntries
    shape: tuple[int, ...]
    observed: Tensor
    deviation: Tensor
    centre: Tensor

    def record(self, coordinates: Tensor) -> Tensor:
        """Return the record (D,) at coordinates c, with the known entries."""
        return self.entries.filled(self.prior.record(coordinates))

    def fit(self, label: int, start: Tensor, iterations: int) -> FittedRecord:
        """Return the best record of class ``label`` that the search from ``start`` came by."""
        best = FittedRecord(start, math.inf)
        coordinates = start.clone().requires_grad_(True)
        search = torch.optim.LBFGS(
            [coordinates],
            max_iter=iterations,
            max_eval=2 * iterations,
            history_size=30,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )

        def closure() -> float:
            nonlocal best
            search.zero_grad()
            cost = self._cost(coordinates, label)
            cost.backward()  # type: ignore[no-untyped-call]
            reached = float(cost.detach())
            if reached < best.cost:
                best = FittedRecord(coordinates.detach().clone(), reached)
            return reached

        search.step(closure)  # type: ignore[no-untyped-call]
        return best

    def _cost(self, coordinates: Tensor, label: int) -> Tensor:
        effect = self.response(self.record(coordinates).view(self.shape), label)
        misfit = ((self.observed - effect) / self.deviation).square().sum()
        return 0.5 * misfit + 0.5 * (coordinates - self.centre).square().sum()
