"""The result of an attack: candidates, best first, and its confidence in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from exhume.protocol.arrays import Array, frozen
from exhume.protocol.errors import InputError

Stat = float | int | str | bool


class Status(Enum):
    """How an attack ended. The value is the text in the report."""

    CONVERGED = "converged"
    APPROXIMATE = "ended with a candidate, but its own error estimate is large"
    NOT_CONVERGED = "did not converge"
    NO_INFORMATION = "the release holds no information about the target that this attack can use"
    WRONG_ASSUMPTION = "what was assumed about the training contradicts the release"
    REFUSED = "does not apply to this release"
    UNINFORMED = "lacks a fact that the adversary was not given"
    INVALID_RELEASE = "the release holds NaN or infinite values"
    CRASHED = "stopped with an error"

    @property
    def ran(self) -> bool:
        """Whether the attack ran to its end: only then is its failure evidence."""
        return self in (Status.CONVERGED, Status.APPROXIMATE, Status.NO_INFORMATION)


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Candidate records, best first by the attack's own evidence.

    ``samples`` has shape (candidates, *record shape). ``confidence`` is in [0, 1], one per
    candidate. ``error_estimate`` is the attack's own estimate of the root-mean-square error of each
    candidate, in the units of the record. For a batch of k records the first k candidates are its
    members. ``cell_confidence`` (candidates, columns) is that in each cell of a table's rows.
    """

    samples: Array
    status: Status
    labels: Array | None = None
    confidence: Array | None = None
    error_estimate: Array | None = None
    message: str = ""
    stats: Mapping[str, Stat] = field(default_factory=dict)
    cell_confidence: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", frozen(self.samples))
        for name in ("labels", "confidence", "error_estimate", "cell_confidence"):
            values = getattr(self, name)
            if values is None:
                continue
            values = frozen(values)
            if values.shape[:1] != self.samples.shape[:1]:
                raise InputError(
                    f"{name} needs one per candidate ({len(self.samples)}), got {values.shape}"
                )
            object.__setattr__(self, name, values)
        object.__setattr__(self, "stats", MappingProxyType(dict(self.stats)))

    def __len__(self) -> int:
        return len(self.samples)
