"""What the adversary sees: a closed set of frozen types.

All arrays are NumPy and read-only. Attacks that compute in PyTorch copy what they need to their
device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from exhume.arrays import Array, all_finite, frozen, frozen_mapping
from exhume.errors import InputError


@dataclass(frozen=True, eq=False)
class Weights:
    """The parameters of a trained model, by name."""

    parameters: Mapping[str, Array]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", frozen_mapping(self.parameters))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every array that was released, with its name."""
        yield from self.parameters.items()


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of the loss on one batch, by parameter name, and the batch's size."""

    gradients: Mapping[str, Array]
    batch_size: int

    def __post_init__(self) -> None:
        _require_positive("batch_size", self.batch_size)
        object.__setattr__(self, "gradients", frozen_mapping(self.gradients))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every array that was released, with its name."""
        yield from self.gradients.items()


@dataclass(frozen=True, eq=False)
class Update:
    """The change of the parameters over several local steps, by parameter name."""

    changes: Mapping[str, Array]
    batch_size: int
    steps: int

    def __post_init__(self) -> None:
        _require_positive("batch_size", self.batch_size)
        _require_positive("steps", self.steps)
        object.__setattr__(self, "changes", frozen_mapping(self.changes))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every array that was released, with its name."""
        yield from self.changes.items()


class Answer(Enum):
    """What a model answers with."""

    SCORES = "scores"
    """Raw scores: the linear predictor, or logits."""
    PROBABILITIES = "probabilities"
    """Class probabilities, one column a class."""
    MEANS = "means"
    """Predicted responses of a regression, on the scale of the response."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """A model's answers: ``queries`` (q, *record shape), ``values`` (q, outputs)."""

    queries: Array
    values: Array
    answer: Answer = field(default=Answer.SCORES)

    def __post_init__(self) -> None:
        queries, values = frozen(self.queries), frozen(self.values)
        if values.ndim != 2 or queries.ndim < 2 or len(values) != len(queries):
            raise InputError(
                "outputs need queries (q, features, ...) and values (q, outputs), "
                f"got {queries.shape} and {values.shape}"
            )
        object.__setattr__(self, "queries", queries)
        object.__setattr__(self, "values", values)

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every array that was released, with its name."""
        yield "queries", self.queries
        yield "values", self.values


Release: TypeAlias = Weights | Gradient | Update | Outputs


def mapped(release: Release, change: Callable[[Array], Array]) -> Release:
    """Return the release with ``change`` made to every array in it, but not to the questions."""
    match release:
        case Weights(parameters):
            return Weights({name: change(a) for name, a in parameters.items()})
        case Gradient(gradients, batch_size):
            return Gradient({name: change(a) for name, a in gradients.items()}, batch_size)
        case Update(changes, batch_size, steps):
            return Update({name: change(a) for name, a in changes.items()}, batch_size, steps)
        case Outputs(queries, values, answer):
            return Outputs(queries, change(values), answer)


def mapped_together(
    release: Gradient | Update, change: Callable[[Mapping[str, Array]], Mapping[str, Array]]
) -> Gradient | Update:
    """Return the release with ``change`` made to its arrays, all of which it is given by name."""
    if isinstance(release, Gradient):
        return Gradient(change(release.gradients), release.batch_size)
    return Update(change(release.changes), release.batch_size, release.steps)


def non_finite(release: Release) -> str | None:
    """Name the first released array with a NaN or infinity in it, or return None."""
    for name, array in release.arrays():
        if not all_finite(array):
            return name
    return None


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name} must be at least 1, got {value}")
