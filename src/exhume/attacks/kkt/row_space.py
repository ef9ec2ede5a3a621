"""Training records from the span of the first layer's rows and the records' value range alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.base import Attack, nothing
from exhume.attacks.kkt.counts import record_count
from exhume.attacks.kkt.general import Released, read_any, read_move
from exhume.attacks.kkt.network import decays, known_start
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release

if TYPE_CHECKING:
    from torch import Tensor

    from exhume.attacks.kkt.span import Span

SMALL = 0.03
"""A value this close to the low end, as a share of the range, counts as being there."""


@dataclass(frozen=True)
class RowSpace(Attack):
    """Looks in the span of the first layer's rows for records with many values at the range's end.

    Weight decay leaves the rows of W in the span of the training records (the KKT conditions). In
    that span, non-negative vectors with many zeros are rare, and dark backgrounds make pictures
    such vectors: each of ``draws`` random linear forms is held at 1 while the number of lit values
    is brought down by reweighted least squares. The fewer lit values, the earlier an end comes.
    Without weight decay W minus its known start is read instead of W: its rows lie in the span
    exactly, since nothing but gradients moved them.
    """

    records: int | None = None
    draws: int = 1600
    iterations: int = 40
    excess: int = 2
    name: ClassVar[str] = "row-space"

    def __post_init__(self) -> None:
        for what in ("draws", "iterations", "excess"):
            if getattr(self, what) < 1:
                raise InputError(f"{what} must be at least 1, got {getattr(self, what)}")
        if self.records is not None and self.records < 1:
            raise InputError(f"records must be at least 1, got {self.records}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Ask for a fully connected first layer with a bias, and a known value range."""
        network = _read(release, knowledge)
        if isinstance(network, str):
            return network
        if knowledge.value_range is None:
            return "the records' value range must be known: it is all that the search goes by"
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.kkt.span import span_of

        network = _read(release, knowledge)
        assert not isinstance(network, str)
        assert knowledge.value_range is not None
        count = record_count(self.records, network, knowledge)
        assert count is not None
        span = span_of(network, count)
        if not span.rank:
            return nothing(knowledge, Status.NO_INFORMATION, "the first layer's rows span nothing")
        found = proposed(span, knowledge.value_range, self.draws, self.iterations, rng)
        if not len(found.records):
            message = f"none of {self.draws} searches ended within the value range"
            return nothing(knowledge, Status.NO_INFORMATION, message)
        kept = slice(0, self.excess * count)
        return Reconstruction(
            found.records[kept].reshape(-1, *knowledge.record_shape),
            Status.APPROXIMATE,
            confidence=found.confidence[kept],
            message=f"{len(found.records)} different ends of {self.draws} searches",
            stats={"rank": span.rank, "ends": len(found.records), "within_range": found.ends},
        )


@dataclass(frozen=True, eq=False)
class Proposals:
    """Different records (k, d), those with the fewest lit values first, and a confidence (k,).

    ``ends`` is how many searches ended within the value range, on whichever of them.
    """

    records: FloatArray
    confidence: FloatArray
    ends: int


def proposed(
    span: Span,
    value_range: tuple[float, float],
    draws: int,
    iterations: int,
    rng: np.random.Generator,
) -> Proposals:
    """Search a span for records with few lit values, from ``draws`` random forms."""
    import torch

    from exhume.attacks.kkt.merging import grouped

    cone = Cone(span, value_range)
    forms = torch.tensor(rng.standard_normal((draws, cone.rank)), dtype=torch.float32)
    with torch.no_grad():
        found = torch.cat(
            [cone.sparse(forms[i : i + 128], iterations) for i in range(0, draws, 128)]
        )
        lit, largest = cone.lit(found)
    # A real record reaches into the upper half of the range, but hardly beyond it.
    fits = ((largest > 0.4) & (largest < 1.3) & lit.isfinite()).numpy()
    records = cone.records(found).numpy().astype(np.float64)[fits]
    counts = lit.numpy().astype(np.float64)[fits]
    if not len(records):
        return Proposals(records, counts, 0)
    # The best of a group leads it, so that the groups come out in order.
    members = grouped(records - span.centre.numpy(), -counts, np.arange(len(records))).members
    confidence = 1.0 / (1.0 + counts[members] / records.shape[1])
    return Proposals(records[members], confidence, len(records))


def _read(release: Release, knowledge: Knowledge) -> Released | str:
    """Return the network, or its change since the initial parameters where nothing decays."""
    network = read_any(release, knowledge)
    if isinstance(network, str):
        return network
    if network.first is None:
        return "the first layer must be fully connected: then its rows lie in the records' span"
    if not network.first[:, -1].any():
        return "the first layer has no bias, and that is what fixes a record's scale"
    if decays(knowledge):
        return network
    if known_start(knowledge) is None:
        return "without weight decay the rows keep their start in them, and it is not known"
    move = read_move(release, knowledge)
    return move if isinstance(move, str) else move.change


class Cone:
    """The vectors of a span, in coordinates y that are orthonormal among the values themselves."""

    def __init__(self, span: Span, value_range: tuple[float, float]) -> None:
        import torch

        self.low, self.width = value_range[0], value_range[1] - value_range[0]
        pixels = (span.pixels - self.low * span.last[:, None]).double() / self.width
        left, right = torch.linalg.qr(pixels.T)
        self.basis = left.T.contiguous().float()
        self.constant = torch.linalg.solve(right.T, span.last.double()).float()
        # Values that are the same in every record tell nothing and cost time.
        self.varying = self.basis[:, self.basis.abs().amax(dim=0) > 1e-4].contiguous()

    @property
    def rank(self) -> int:
        """How many coordinates there are."""
        return len(self.basis)

    def records(self, y: Tensor) -> Tensor:
        """Return the records (k, d) at coordinates (k, r), on their own scale."""
        records: Tensor = self.low + self.width * (y @ self.basis)
        return records

    def sparse(self, forms: Tensor, iterations: int) -> Tensor:
        """Return coordinates (k, r), scaled to stand for records, that are few in lit values.

        Lit values are charged x² / (x² + ε²), ε falling from .3 to ``SMALL``, negative ones x².
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
        """Return how many values are lit, negative ones counting by their square, and the largest.

        Both (k,); a value below zero by ``SMALL`` counts 1.
        """
        import torch

        x = y @ self.varying
        largest = x.amax(dim=1)
        x = x / largest.clamp_min(1e-9)[:, None]
        square = x.square()
        charged = torch.where(x < 0, square / SMALL**2, square / (square + SMALL**2))
        return charged.sum(dim=1), largest
