"""How far the predicted effect of a record is from a real training's: the engine judges itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.attacks.informed.trajectory.linear_response.ekfac import KroneckerCurvature

_BINS = 10


@dataclass(frozen=True, eq=False)
class ResponseErrors:
    """``error`` is the relative error of predictions, their mean over real trainings.

    ``deviation`` (P,) is its root mean square per coordinate, over coordinates of one layer and of
    similar curvature.
    """

    error: float
    deviation: Tensor


def calibrated(
    curvature: KroneckerCurvature, predicted: Sequence[Tensor], real: Sequence[Tensor]
) -> ResponseErrors:
    """Compare predicted effects of records with those of real trainings, (P,) each."""
    relative = [
        (guess - truth) / truth.norm() for guess, truth in zip(predicted, real, strict=True)
    ]
    squares = torch.stack(relative).square().mean(dim=0)
    bins = curvature_bins(curvature)
    count = int(bins.max()) + 1
    sums = squares.new_zeros(count).index_add_(0, bins, squares)
    sizes = torch.bincount(bins, minlength=count)
    means = (sums / sizes).sqrt()
    error = sum(float(one.norm()) for one in relative) / len(relative)
    # A coordinate that no calibrating record moved is not known exactly because of that.
    return ResponseErrors(error, means.clamp_min(1e-3 * float(means.mean()) + 1e-30)[bins])


def curvature_bins(curvature: KroneckerCurvature) -> Tensor:
    """Return the number of each coordinate's bin (P,): by layer, then by mean curvature."""
    mean, found, start = curvature.diagonals.mean(dim=0), list[Tensor](), 0
    for part in torch.split(mean, [o * i for o, i in curvature.chain.shapes]):
        rank = part.argsort().argsort()
        found.append(start + rank * _BINS // len(part))
        start += _BINS
    return torch.cat(found)
