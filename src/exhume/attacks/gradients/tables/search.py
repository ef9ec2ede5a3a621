"""The search for relaxed rows whose release is the observed one, from many starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from exhume.attacks.gradients.matching.loop import MatchingProblem
from exhume.attacks.gradients.tables.relaxation import Relaxation
from exhume.attacks.gradients.tables.restarts import Releases
from exhume.derivatives.smoothed_relu import Continuation
from exhume.protocol.arrays import FloatArray


@dataclass(frozen=True)
class Annealing:
    """``steps`` of Adam on the gradient's sign; the rate falls to 0 along a cosine.

    The temperature of the softmax falls geometrically from ``first`` to ``last``.
    """

    steps: int
    learning_rate: float
    first: float
    last: float

    def temperature(self, done: float) -> float:
        """Return the temperature after a share ``done`` of the steps."""
        return float(self.first * (self.last / self.first) ** done)


@dataclass(frozen=True, eq=False)
class FoundRows:
    """Each start's rows (starts, n, width), labels (starts, n), and relative squared residual.

    ``losses`` belong to the rows as they are, ``snapped`` to the nearest admissible ones.
    """

    rows: FloatArray
    labels: Tensor
    losses: FloatArray
    snapped: FloatArray

    @property
    def place(self) -> int:
        """The start whose admissible rows explain the release best."""
        return int(self.snapped.argmin())

    @property
    def best(self) -> float:
        """The relative squared residual of its admissible rows."""
        return float(self.snapped.min())


def labels_to_try(problem: MatchingProblem, starts: int, *, sure: bool) -> Tensor | None:
    """Return labels (starts, n), or None to search them, too.

    Where the likely labels are not ``sure``, every other start has them, and the rest share those
    with one record of another class: counts of classes are often off by one.
    """
    if problem.labels is None:
        return None
    tried = [problem.labels]
    if not (sure or problem.labels.is_floating_point()):
        classes = range(problem.simulation.objective.network.outputs)
        for own, other in permutations(classes, 2):
            places = (problem.labels == own).nonzero()
            if len(places):
                labels = problem.labels.clone()
                labels[places[0]] = other
                tried.append(labels)
    others = tried[1:] or tried
    return torch.stack(
        [others[start // 2 % len(others)] if start % 2 else tried[0] for start in range(starts)]
    )


def searched(
    problem: MatchingProblem,
    relaxation: Relaxation,
    releases: Releases,
    labels: Tensor | None,
    annealing: Annealing,
    starts: int,
    rng: np.random.Generator,
) -> FoundRows:
    """Search from ``starts`` starts; ``labels`` (starts, n), or None to search them, too."""
    frame, kinks = problem.frame, problem.simulation.kinks
    free = frame.tensor(relaxation.start((starts, frame.count), rng)).requires_grad_(True)
    unknowns, soft = [free], None
    if labels is None:
        classes = problem.simulation.objective.network.outputs
        drawn = rng.standard_normal((starts, frame.count, classes))
        soft = frame.tensor(drawn).requires_grad_(True)
        unknowns.append(soft)
    optimiser = torch.optim.Adam(unknowns, annealing.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, annealing.steps)
    smoothing, temperature = Continuation(), annealing.first
    for step in range(annealing.steps):
        done = step / annealing.steps
        kinks.sharpness, temperature = smoothing.sharpness(done), annealing.temperature(done)
        rows = problem.completed(relaxation.rows(free, temperature))
        own = labels if soft is None else soft.softmax(dim=-1)
        assert own is not None
        loss = cosine_distances(releases(rows, own), problem).sum()
        for unknown, slope in zip(unknowns, torch.autograd.grad(loss, unknowns), strict=True):
            unknown.grad = slope.sign()
        optimiser.step()
        schedule.step()
    kinks.sharpness = None
    rows = problem.completed(relaxation.rows(free.detach(), temperature))
    ends = labels if soft is None else soft.detach().argmax(dim=-1)
    assert ends is not None
    found = rows.double().cpu().numpy()
    admissible = torch.stack([frame.tensor(relaxation.schema.snap(one)) for one in found])
    losses = [squared_residuals(releases(x, ends), problem) for x in (rows, admissible)]
    return FoundRows(found, ends, *(one.detach().double().cpu().numpy() for one in losses))


def cosine_distances(made: list[Tensor], problem: MatchingProblem) -> Tensor:
    """Return 1 − cos of each start's whole release to the observed one, (starts,)."""
    pairs = list(zip(made, problem.released.values, strict=True))
    dots = torch.stack([(g * t).flatten(1).sum(dim=1) for g, t in pairs]).sum(dim=0)
    squares = torch.stack([g.square().flatten(1).sum(dim=1) for g, _ in pairs]).sum(dim=0)
    return 1.0 - dots / squares.clamp_min(1e-30).sqrt()


def squared_residuals(made: list[Tensor], problem: MatchingProblem) -> Tensor:
    """Return ‖g − g*‖² / ‖g*‖² of each start's release, (starts,)."""
    pairs = zip(made, problem.released.values, strict=True)
    return torch.stack([(g - t).square().flatten(1).sum(dim=1) for g, t in pairs]).sum(dim=0)
