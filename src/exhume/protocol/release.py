"""What the adversary sees: a closed set of frozen types.

All arrays are NumPy and read-only. Attacks that compute in PyTorch copy the arrays to their device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np

from exhume.protocol.arrays import Array, all_finite, frozen, frozen_mapping
from exhume.protocol.errors import InputError


@dataclass(frozen=True, eq=False)
class Weights:
    """The parameters of a trained model, by name, and the other ``buffers`` of a checkpoint.

    Running statistics of batch normalisation are buffers. They depend on the records, too.
    """

    parameters: Mapping[str, Array]
    buffers: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", frozen_mapping(self.parameters))
        object.__setattr__(self, "buffers", frozen_mapping(self.buffers))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every released array, with its name."""
        yield from self.parameters.items()
        yield from self.buffers.items()


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of the loss on one batch, by parameter name, and the batch's size."""

    gradients: Mapping[str, Array]
    batch_size: int

    def __post_init__(self) -> None:
        _require_positive("batch_size", self.batch_size)
        object.__setattr__(self, "gradients", frozen_mapping(self.gradients))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every released array, with its name."""
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
        """Every released array, with its name."""
        yield from self.changes.items()


class Answer(Enum):
    """The kind of a model's answers."""

    SCORES = "scores"
    """Raw scores: the linear predictor, or logits."""
    PROBABILITIES = "probabilities"
    """Class probabilities, one column per class."""
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
        """Every released array, with its name."""
        yield "queries", self.queries
        yield "values", self.values


_PARTS = ("parameters", "gradients", "final")
"""The mappings of a transcript, and the prefixes of their arrays' names."""


@dataclass(frozen=True, eq=False)
class Transcript:
    """The steps of a training: what a curious server sees, or anyone who keeps checkpoints.

    ``parameters`` are those before each recorded step. ``gradients`` are the optimiser's inputs.
    Both are (steps, *shape) by name. ``final`` are the parameters at the end. ``steps`` are the
    numbers of the recorded steps, from 0. ``members`` (steps, records) marks which known records
    took part in each step; None if all records always did. It does not contain the missing record.
    """

    parameters: Mapping[str, Array]
    gradients: Mapping[str, Array]
    final: Mapping[str, Array]
    steps: Array
    members: Array | None = None

    def __post_init__(self) -> None:
        for name in _PARTS:
            object.__setattr__(self, name, frozen_mapping(getattr(self, name)))
        object.__setattr__(self, "steps", frozen(self.steps, dtype=np.int64))
        if self.members is not None:
            object.__setattr__(self, "members", frozen(self.members, dtype=bool))
        self._require_steps()
        self._require_shapes()

    def __len__(self) -> int:
        return len(self.steps)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Array]) -> Transcript:
        """Return the transcript whose ``arrays()`` these are."""
        parts: dict[str, dict[str, Array]] = {name: {} for name in _PARTS}
        for key, array in arrays.items():
            part, _, name = key.partition(".")
            if part in parts and name:
                parts[part][name] = array
            elif key not in ("steps", "members"):
                raise InputError(
                    f"a transcript has no array {key!r}; there are steps, members, and "
                    "parameters., gradients. and final. with the parameters' names"
                )
        if "steps" not in arrays:
            raise InputError("a transcript needs the array 'steps': the number of each step")
        return cls(**parts, steps=arrays["steps"], members=arrays.get("members"))

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Every released array, with its name: what a file of the transcript holds."""
        for part in _PARTS:
            for name, array in getattr(self, part).items():
                yield f"{part}.{name}", array
        yield "steps", self.steps
        if self.members is not None:
            yield "members", self.members

    def renamed(self, change: Callable[[Mapping[str, Array]], Iterable[str]]) -> Transcript:
        """Return the transcript with the names that ``change`` gives its parameters, in order."""
        parts = [
            dict(zip(change(part), part.values(), strict=True))
            for part in (self.parameters, self.gradients, self.final)
        ]
        return Transcript(parts[0], parts[1], parts[2], self.steps, self.members)

    def weights(self) -> Weights:
        """Return the last iterate: the whole release if the steps are hidden."""
        return Weights(self.final)

    def _require_steps(self) -> None:
        if self.steps.ndim != 1 or not len(self.steps):
            raise InputError(f"steps needs shape (steps,) and one at least, got {self.steps.shape}")
        if self.steps[0] < 0 or (np.diff(self.steps) <= 0).any():
            raise InputError("the numbers of the steps must rise, from 0 on")
        if self.members is not None and self.members.shape[:1] != self.steps.shape:
            raise InputError(
                f"members needs one row per step ({len(self.steps)}), got {self.members.shape}"
            )

    def _require_shapes(self) -> None:
        names = {*self.parameters}
        for named in (self.gradients, self.final):
            if other := sorted({*named} ^ names):
                raise InputError(
                    f"parameters, gradients and final must have the same names: see {other[0]}"
                )
        for name, array in self.final.items():
            wanted = (len(self.steps), *array.shape)
            for part in ("parameters", "gradients"):
                found = getattr(self, part)[name].shape
                if found != wanted:
                    raise InputError(f"{part}.{name} has shape {found}, it must be {wanted}")


Release: TypeAlias = Weights | Gradient | Update | Outputs | Transcript


def mapped(release: Release, change: Callable[[Array], Array]) -> Release:
    """Return the release with ``change`` applied to every array except the queries."""
    match release:
        case Weights(parameters, buffers):
            return Weights(
                {name: change(a) for name, a in parameters.items()},
                {name: change(a) for name, a in buffers.items()},
            )
        case Gradient(gradients, batch_size):
            return Gradient({name: change(a) for name, a in gradients.items()}, batch_size)
        case Update(changes, batch_size, steps):
            return Update({name: change(a) for name, a in changes.items()}, batch_size, steps)
        case Outputs(queries, values, answer):
            return Outputs(queries, change(values), answer)
        case Transcript(parameters, gradients, final, steps, members):
            return Transcript(
                {name: change(a) for name, a in parameters.items()},
                {name: change(a) for name, a in gradients.items()},
                {name: change(a) for name, a in final.items()},
                steps,
                members,
            )


def mapped_together(
    release: Gradient | Update, change: Callable[[Mapping[str, Array]], Mapping[str, Array]]
) -> Gradient | Update:
    """Return the release with ``change`` applied to all its arrays at once, by name."""
    if isinstance(release, Gradient):
        return Gradient(change(release.gradients), release.batch_size)
    return Update(change(release.changes), release.batch_size, release.steps)


def non_finite(release: Release) -> str | None:
    """Return the name of the first released array with a NaN or infinity, or None."""
    for name, array in release.arrays():
        if not all_finite(array):
            return name
    return None


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name} must be at least 1, got {value}")
