"""What a release shows of the parameters: a differentiable map of the flat vector θ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from exhume.errors import InputError
from exhume.release import Answer, Outputs, Release, Weights
from exhume.training.objective import Objective


class Observation(ABC):
    """A map of θ (P,) to the m numbers that an adversary sees, and its Jacobian's products."""

    @abstractmethod
    def value(self, theta: Tensor) -> Tensor:
        """Return what is seen of θ, (m,)."""

    @abstractmethod
    def jvp(self, theta: Tensor, tangent: Tensor) -> Tensor:
        """Return how it moves, (m,), when θ moves by ``tangent`` (P,)."""

    @abstractmethod
    def vjp(self, theta: Tensor, cotangent: Tensor) -> Tensor:
        """Return the transposed product (P,) with ``cotangent`` (m,)."""


class WholeVector(Observation):
    """Every parameter is seen."""

    def value(self, theta: Tensor) -> Tensor:
        """Return θ."""
        return theta

    def jvp(self, theta: Tensor, tangent: Tensor) -> Tensor:
        """Return the tangent."""
        return tangent

    def vjp(self, theta: Tensor, cotangent: Tensor) -> Tensor:
        """Return the cotangent."""
        return cotangent


@dataclass(frozen=True, eq=False)
class Entries(Observation):
    """Only the parameters at ``index`` (m,) are seen: some layers of a model."""

    index: Tensor

    def value(self, theta: Tensor) -> Tensor:
        """Return the chosen entries of θ."""
        return theta[self.index]

    def jvp(self, theta: Tensor, tangent: Tensor) -> Tensor:
        """Return the chosen entries of the tangent."""
        return tangent[self.index]

    def vjp(self, theta: Tensor, cotangent: Tensor) -> Tensor:
        """Return the cotangent at its places, 0 elsewhere."""
        return torch.zeros_like(theta).index_copy(0, self.index, cotangent)


@dataclass(frozen=True, eq=False)
class Scores(Observation):
    """The model's raw scores on ``queries`` (q, *record shape), record by record."""

    objective: Objective
    queries: Tensor

    def value(self, theta: Tensor) -> Tensor:
        """Return the scores, (q · outputs,)."""
        with torch.no_grad():
            return self._seen(theta)

    def jvp(self, theta: Tensor, tangent: Tensor) -> Tensor:
        """Return the scores' change to first order."""
        moved: Tensor = torch.func.jvp(self._seen, (theta,), (tangent,))[1]
        return moved

    def vjp(self, theta: Tensor, cotangent: Tensor) -> Tensor:
        """Return the gradient of ⟨scores, cotangent⟩."""
        at = theta.detach().requires_grad_(True)
        return torch.autograd.grad(self._seen(at), at, cotangent)[0]

    def _seen(self, theta: Tensor) -> Tensor:
        return self.objective.scores(theta, self.queries).reshape(-1)


class CentredScores(Scores):
    """Log-probabilities up to the additive constant that normalises them: scores minus their mean.

    Probabilities hide a constant a query, so only what is left without it can be compared.
    """

    def _seen(self, theta: Tensor) -> Tensor:
        scores = self.objective.scores(theta, self.queries)
        return (scores - scores.mean(dim=1, keepdim=True)).reshape(-1)


@dataclass(frozen=True, eq=False)
class Reading:
    """How a release shows θ, and the numbers it showed, ``seen`` (m,)."""

    observation: Observation
    seen: Tensor


def reading(release: Release, objective: Objective) -> Reading:
    """Read weights (all, or the layers that are there) or a network's answers.

    Raises InputError where the release is not one of this network.
    """
    match release:
        case Weights(parameters):
            return _read_weights(dict(parameters), objective)
        case Outputs():
            return _read_outputs(release, objective)
    raise InputError(f"weights or outputs of a network are needed, got {type(release).__name__}")


def _read_weights(parameters: dict[str, np.ndarray], objective: Objective) -> Reading:
    strangers = [name for name in parameters if name not in objective.shapes]
    if strangers:
        raise InputError(f"the network has no parameter {strangers[0]!r}")
    if not parameters:
        raise InputError(f"no parameters were released, the network has {list(objective.shapes)}")
    places, parts, start = [], [], 0
    for (name, shape), size in zip(objective.shapes.items(), objective.sizes, strict=True):
        if name in parameters:
            if parameters[name].shape != shape:
                raise InputError(
                    f"{name!r} has shape {parameters[name].shape}, the network's has {shape}"
                )
            places.append(torch.arange(start, start + size, device=objective.device))
            parts.append(np.asarray(parameters[name], dtype=np.float64).ravel())
        start += size
    seen = objective.tensor(np.concatenate(parts))
    if len(parts) == len(objective.shapes):
        return Reading(WholeVector(), seen)
    return Reading(Entries(torch.cat(places)), seen)


def _read_outputs(release: Outputs, objective: Objective) -> Reading:
    shape, outputs = objective.network.record_shape, objective.network.outputs
    if release.queries.shape[1:] != shape or release.values.shape[1] != outputs:
        raise InputError(
            f"queries of shape {shape} with {outputs} answers each are needed, "
            f"got {release.queries.shape[1:]} with {release.values.shape[1]}"
        )
    queries = objective.tensor(release.queries)
    if release.answer is not Answer.PROBABILITIES:
        return Reading(Scores(objective, queries), objective.tensor(release.values).reshape(-1))
    # A probability that was rounded to 0 has no logarithm; the smallest float32 stands in.
    logs = np.log(np.maximum(np.asarray(release.values, dtype=np.float64), 1e-38))
    centred = logs - logs.mean(axis=1, keepdims=True)
    return Reading(CentredScores(objective, queries), objective.tensor(centred).reshape(-1))
