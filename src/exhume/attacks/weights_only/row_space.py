"""Training records from the row space of the first layer and the records' value range alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.weights_only.read_weights import (
    KnownWeights,
    Released,
    decays,
    known_start,
    read_any,
    read_move,
    without_entrance,
)
from exhume.attacks.weights_only.record_counts import record_count, uncounted
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import Lacking, ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release

if TYPE_CHECKING:
    from torch import Tensor

    from exhume.attacks.weights_only.row_span import RowSpan

SMALL = 0.03
"""A value within this share of the range from the low end counts as being at the low end."""


@dataclass(frozen=True, eq=False)
class RowSpaceProblem:
    """A first layer whose rows lie in the span of ``count`` records of a known range."""

    network: Released
    count: int
    value_range: tuple[float, float]
    knowledge: Knowledge


@dataclass(frozen=True)
class RowSpace(ParsedAttack[RowSpaceProblem]):
    """Searches the row space of the first layer for records with many values at the low end.

    Weight decay leaves the rows of W in the span of the training records (the KKT conditions). In
    that span, non-negative vectors with many zeros are rare, but images with dark backgrounds are
    such vectors. Each of ``draws`` searches fixes a random linear form at 1 and reduces the number
    of lit (non-zero) values by reweighted least squares. Results with fewer lit values come first.
    Without weight decay, the attack reads W minus its known initial value instead of W: the rows of
    that change lie in the span exactly, because only gradients changed them.
    """

    records: int | None = None
    draws: int = 1600
    iterations: int = 40
    excess: int = 2
    name: ClassVar[str] = "row-space"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.WEIGHTS_ALONE

    def __post_init__(self) -> None:
        for what in ("draws", "iterations", "excess"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, got {getattr(self, what)}")
        if self.records is not None and self.records < 1:
            raise InputError(f"records must be at least 1, got {self.records}")

    def parse(self, release: Release, knowledge: Knowledge) -> RowSpaceProblem | Refusal:
        """Require a fully connected first layer with a bias, and a known value range."""
        network = _read(release, knowledge)
        if isinstance(network, Refusal):
            return network
        bounds, count = knowledge.value_range, record_count(self.records, network, knowledge)
        if bounds is None:
            return Refusal(
                Lacking("the search relies on the records' value range", "knowledge.value_range")
            )
        return (
            uncounted(self.name)
            if count is None
            else RowSpaceProblem(network, count, bounds, knowledge)
        )

    def _solve(self, problem: RowSpaceProblem, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.weights_only.row_span import span_of

        count, knowledge = problem.count, problem.knowledge
        span = span_of(problem.network, count)
        if not span.rank:
            return nothing(knowledge, Status.NO_INFORMATION, "the first layer's rows are all zero")
        found = proposed(span, problem.value_range, self.draws, self.iterations, rng)
        if not len(found.records):
            message = f"none of {self.draws} searches ended within the value range"
            return nothing(knowledge, Status.NO_INFORMATION, message)
        kept = slice(0, self.excess * count)
        return Reconstruction(
            found.records[kept].reshape(-1, *knowledge.record_shape),
            Status.APPROXIMATE,
            confidence=found.confidence[kept],
            message=f"{len(found.records)} different results of {self.draws} searches",
            stats={"rank": span.rank, "ends": len(found.records), "within_range": found.ends},
        )


@dataclass(frozen=True, eq=False)
class Proposals:
    """Different records (k, d), those with the fewest lit values first, and a confidence (k,).

    ``ends`` is the number of searches that ended within the value range, at any of these records.
    """

    records: FloatArray
    confidence: FloatArray
    ends: int


def proposed(
    span: RowSpan,
    value_range: tuple[float, float],
    draws: int,
    iterations: int,
    rng: np.random.Generator,
) -> Proposals:
    """Search a span for records with few lit values, from ``draws`` random linear forms."""
    import torch

    from exhume.attacks.weights_only.restarts import grouped

    cone = Cone(span, value_range)
    forms = torch.tensor(rng.standard_normal((draws, cone.rank)), dtype=torch.float32)
    with torch.no_grad():
        found = torch.cat(
            [cone.sparse(forms[i : i + 128], iterations) for i in range(0, draws, 128)]
        )
        lit, largest = cone.lit(found)
    # A real record reaches the upper half of the range, but hardly exceeds the range.
    fits = ((largest > 0.4) & (largest < 1.3) & lit.isfinite()).numpy()
    records = cone.records(found).numpy().astype(np.float64)[fits]
    counts = lit.numpy().astype(np.float64)[fits]
    if not len(records):
        return Proposals(records, counts, 0)
    # The best candidate leads its group, so the groups are in order.
    members = grouped(records - span.centre.numpy(), -counts, np.arange(len(records))).members
    confidence = 1.0 / (1.0 + counts[members] / records.shape[1])
    return Proposals(records[members], confidence, len(records))


def _read(release: Release, knowledge: Knowledge) -> Released | Refusal:
    """Return the network, or its change since initialisation if there is no weight decay."""
    network = read_any(release, knowledge, KnownWeights.entrance)
    if isinstance(network, Refusal):
        return network
    if network.first is None:
        return without_entrance(
            knowledge,
            "the first layer must be fully connected: then its rows lie in the records' span",
        )
    if not network.first[:, -1].any():
        return Refusal("the first layer has no bias, so the scale of a record is not determined")
    if decays(knowledge):
        return network
    if known_start(knowledge) is None:
        return Refusal(
            Lacking(
                "without weight decay the rows contain their initial values",
                "knowledge.initial, or knowledge.training.weight_decay where there was some",
            )
        )
    move = read_move(release, knowledge, KnownWeights.entrance)
    return move if isinstance(move, Refusal) else move.change


class Cone:
    """The vectors of a span, in coordinates y that are orthonormal in the space of the values."""

    def __init__(self, span: RowSpan, value_range: tuple[float, float]) -> None:
        import torch

        self.low, self.width = value_range[0], value_range[1] - value_range[0]
        pixels = (span.pixels - self.low * span.last[:, None]).double() / self.width
        left, right = torch.linalg.qr(pixels.T)
        self.basis = left.T.contiguous().float()
        self.constant = torch.linalg.solve(right.T, span.last.double()).float()
        # Values that are equal in every record carry no information and cost time.
        self.varying = self.basis[:, self.basis.abs().amax(dim=0) > 1e-4].contiguous()

    @property
    def rank(self) -> int:
        """The number of coordinates."""
        return len(self.basis)

    def records(self, y: Tensor) -> Tensor:
        """Return the records (k, d) at coordinates (k, r), each on its own scale."""
        records: Tensor = self.low + self.width * (y @ self.basis)
        return records

    def sparse(self, forms: Tensor, iterations: int) -> Tensor:
        """Return coordinates (k, r), scaled to records, with few lit values.

        The cost of a lit value is x² / (x² + ε²), with ε falling from .3 to ``SMALL``; the cost of
        a negative value is x².
        """
        import torch

        y = forms / forms.square().sum(dim=1, keepdim=True)
        ridge = 1e-5 * torch.eye(self.rank)
        for k in range(iterations):
            eps = 0.3 * (SMALL / 0.3) ** min(1.0, k / (0.75 * iterations))
            x = y @ self.varying
            x = x / x.amax(dim=1, keepdim=True).clamp_min(1e-9)
            weight = torch.where(x < 0, 1.0, eps**2 / (x.square() + eps**2))
            hessian = (self.varying * weight[:, None, :]) @ self.varying.T + ridge
            step = torch.linalg.solve(hessian, forms[..., None])[..., 0]
            y = step / (forms * step).sum(dim=1, keepdim=True)
        scaled: Tensor = y / (y @ self.constant)[:, None]
        return scaled

    def lit(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the number of lit values plus a penalty for negative ones, and the largest value.

        Both are (k,). The penalty is the square of the value, which is 1 at −``SMALL``.
        """
        import torch

        x = y @ self.varying
        largest = x.amax(dim=1)
        x = x / largest.clamp_min(1e-9)[:, None]
        square = x.square()
        charged = torch.where(x < 0, square / SMALL**2, square / (square + SMALL**2))
        return charged.sum(dim=1), largest
