"""What a release shows of a trained model: a differentiable map of the flat vector θ.

θ has the P parameters first, then the S running statistics of batch normalisation, if any.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from exhume.derivatives.objective import Objective
from exhume.protocol.errors import InputError
from exhume.protocol.release import Answer, Outputs, Release, Weights


class Observation(ABC):
    """A map of θ (P + S,) to the m observed numbers, and its Jacobian's products."""

    @abstractmethod
    def value(self, theta: Tensor) -> Tensor:
        """Return the observed numbers, (m,)."""

    @abstractmethod
    def jvp(self, theta: Tensor, tangent: Tensor) -> Tensor:
        """Return their change (m,) for a change ``tangent`` (P,) of θ."""

    @abstractmethod
    def vjp(self, theta: Tensor, cotangent: Tensor) -> Tensor:
        """Return the transposed product (P + S,) with ``cotangent`` (m,)."""


class WholeVector(Observation):
    """All parameters are observed."""

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
    """Only the parameters at ``index`` (m,) are observed: some layers of a model."""

    index: Tensor

    def value(self, theta: Tensor) -> Tensor:
        """Return the chosen entries of θ."""
        return theta[self.index]

    def jvp(self, theta: Tensor, tangent: Tensor) -> Tensor:
        """Return the chosen entries of the tangent."""
        return tangent[self.index]

    def vjp(self, theta: Tensor, cotangent: Tensor) -> Tensor:
        """Return the cotangent at its positions, 0 elsewhere."""
        return torch.zeros_like(theta).index_copy(0, self.index, cotangent)


@dataclass(frozen=True, eq=False)
class ObservedScores(Observation):
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
        return self._scores(theta).reshape(-1)

    def _scores(self, theta: Tensor) -> Tensor:
        """Return the scores (q, outputs) of the model in evaluation mode."""
        if not self.objective.running:
            return self.objective.scores(theta, self.queries)
        parameters, running = theta[: self.objective.size], theta[self.objective.size :]
        return self.objective.scores_in_use(parameters, running, self.queries)


class CentredScores(ObservedScores):
    """Log-probabilities up to the additive constant that normalises them: scores minus their mean.

    Probabilities hide one constant per query, so only scores without it can be compared.
    """

    def _seen(self, theta: Tensor) -> Tensor:
        scores = self._scores(theta)
        return (scores - scores.mean(dim=1, keepdim=True)).reshape(-1)


@dataclass(frozen=True, eq=False)
class ObservedRelease:
    """How a release shows θ, and the observed numbers, ``seen`` (m,)."""

    observation: Observation
    seen: Tensor

    def only(self, kept: Tensor) -> ObservedRelease:
        """Return the numbers where ``kept`` (m,) is true, if they are parameters or statistics."""
        if bool(kept.all()) or isinstance(self.observation, ObservedScores):
            return self
        index = kept.nonzero()[:, 0]
        if isinstance(self.observation, Entries):
            index = self.observation.index[index]
        return replace(self, observation=Entries(index), seen=self.seen[kept])


def observed_release(release: Release, objective: Objective) -> ObservedRelease:
    """Read weights (all layers, or only the released ones) or a network's answers.

    Raises InputError if the release does not belong to this network.
    """
    match release:
        case Weights(parameters, buffers):
            return _read_weights({**parameters, **buffers}, objective)
        case Outputs():
            return _read_outputs(release, objective)
    raise InputError(f"weights or outputs of a network are needed, got {type(release).__name__}")


def _read_weights(arrays: dict[str, np.ndarray], objective: Objective) -> ObservedRelease:
    """Read parameters and running statistics; the number of batches is known from the training."""
    whole = {**objective.shapes, **objective.running}
    counts = {f"{name.rpartition('.')[0]}.num_batches_tracked" for name in objective.running}
    strangers = [name for name in arrays if name not in whole and name not in counts]
    if strangers:
        raise InputError(f"the network has no parameter {strangers[0]!r}")
    if not arrays:
        raise InputError(f"no parameters were released, the network has {list(objective.shapes)}")
    places, parts, start = [], [], 0
    for name, shape in whole.items():
        size = math.prod(shape)
        if name in arrays:
            if arrays[name].shape != shape:
                raise InputError(
                    f"{name!r} has shape {arrays[name].shape}, the network's has {shape}"
                )
            places.append(torch.arange(start, start + size, device=objective.device))
            parts.append(np.asarray(arrays[name], dtype=np.float64).ravel())
        start += size
    seen = objective.tensor(np.concatenate(parts))
    if len(parts) == len(whole):
        return ObservedRelease(WholeVector(), seen)
    return ObservedRelease(Entries(torch.cat(places)), seen)


def _read_outputs(release: Outputs, objective: Objective) -> ObservedRelease:
    shape, outputs = objective.network.record_shape, objective.network.outputs
    if release.queries.shape[1:] != shape or release.values.shape[1] != outputs:
        raise InputError(
            f"queries of shape {shape} with {outputs} answers each are needed, "
            f"got {release.queries.shape[1:]} with {release.values.shape[1]}"
        )
    queries = objective.tensor(release.queries)
    if release.answer is not Answer.PROBABILITIES:
        return ObservedRelease(
            ObservedScores(objective, queries), objective.tensor(release.values).reshape(-1)
        )
    # A probability rounded to 0 has no logarithm; the smallest float32 replaces it.
    logs = np.log(np.maximum(np.asarray(release.values, dtype=np.float64), 1e-38))
    centred = logs - logs.mean(axis=1, keepdims=True)
    return ObservedRelease(CentredScores(objective, queries), objective.tensor(centred).reshape(-1))
