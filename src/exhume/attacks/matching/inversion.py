"""Images from features alone: the loop's problem without a gradient of a gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from exhume.attacks.matching.core import Match, Problem
from exhume.attacks.matching.objectives import total_variation


@dataclass(frozen=True, eq=False, kw_only=True)
class Inversion(Problem):
    """Find images with ``features`` (n, d); the release only judges what was found.

    The distance is the mean of ‖f(x) − z‖² / ‖z‖² over records.
    """

    def losses(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the whole objective, and the features' distance alone."""
        distance = self.distances(images).mean()
        if not self.total_variation:
            return distance, distance
        variation = total_variation(images, self.frame.spread)
        return distance + self.total_variation * variation, distance

    def distances(self, images: Tensor) -> Tensor:
        """Return the features' distance of each image (n,)."""
        assert self.features is not None
        self.simulation.watch.clear()
        self.simulation.objective.module(images)
        off = (self.simulation.watch.features[0] - self.features).square().sum(dim=1)
        return off / self.features.square().sum(dim=1).clamp_min(1e-30)


def pieced_together(problem: Inversion, match: Match) -> Match:
    """Return the match with each image from the run that came nearest to its features.

    Features don't mix images, so that each is a search of its own. Where a normalisation mixes
    them after all, the best whole run stays.
    """
    with torch.no_grad():
        each = torch.stack([problem.distances(run.images) for run in match.runs])
        stacked = torch.stack([run.images for run in match.runs])
        images = stacked[each.argmin(dim=0), torch.arange(stacked.shape[1])]
        loss, distance = (float(x) for x in problem.losses(images, match.best.labels))
    if not distance < match.best.distance:
        return match
    return replace(match, best=replace(match.best, images=images, loss=loss, distance=distance))
