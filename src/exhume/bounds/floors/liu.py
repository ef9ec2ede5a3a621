"""Liu et al. 2024, Table 1: how the reconstruction error grows with a defence's strength.

Rates for the gradient of a two-layer network with random weights, up to constants and logarithms:
good for ratios between settings and between defences, not as errors. The error is the root of the
mean over the batch of ‖x - x̂‖², for records of norm 1. ``upper`` is what the tensor attack of Wang
et al. 2023 reaches; ``lower`` is a Cramér–Rao bound, so it binds unbiased attacks only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from exhume.bounds.checks import require_count, require_not_negative, require_probability
from exhume.bounds.floors.base import FloorBinds, checked_jacobian
from exhume.protocol.errors import InputError

_UPPER = (
    "records of norm 1, labels ±1, weights w ~ N(0, I) and a ~ N(0, 1/m²), batch⁴ ≤ dimension, "
    "width ≥ batch² · dimension (up to constants, logarithms and the records' conditioning)"
)
_LOWER = "an activation with bounded first and second derivative, the same data and weights"


@dataclass(frozen=True, kw_only=True)
class TwoLayerBatch:
    """The two-layer network and the batch: d, m, B and σ of the paper.

    ``observation_noise`` is the standard deviation σ of Gaussian noise on the released gradient
    before any defence; lower rates are proportional to it, and 0 without noise. The gradient is the
    sum over the batch: for a mean, noise counts ``batch`` times.
    """

    dimension: int
    width: int
    batch: int = 1
    observation_noise: float = 1.0

    def __post_init__(self) -> None:
        for name in ("dimension", "width", "batch"):
            require_count(name, getattr(self, name), at_least=1)
        require_not_negative("observation_noise", self.observation_noise)

    def violated(self, effective_width: float | None = None) -> tuple[str, ...]:
        """The assumptions of the upper rate that fail with all hidden constants taken as 1."""
        width = self.width if effective_width is None else effective_width
        needed = self.batch**2 * self.dimension
        failed = []
        if self.batch**4 > self.dimension:
            failed.append(f"batch⁴ ≤ dimension ({self.batch**4} > {self.dimension})")
        if width < needed:
            failed.append(f"width ≥ batch² · dimension ({width:g} < {needed})")
        return tuple(failed)


@dataclass(frozen=True, kw_only=True)
class Strengths:
    """How strong each defence is; the defaults are no defence at all.

    ``noise`` is σ₀, the standard deviation of the noise a defence adds. ``clip_ratio`` is the
    gradient's norm over the clipping threshold (‖G‖/C; up to 1, nothing is clipped). ``drop`` is
    dropout's drop probability, in [0, 1). ``pruned_share`` in [0, 1) is p̂, the share of the
    Jacobian's squared norm in the pruned coordinates (``pruned_share``), which is far below the
    share of coordinates pruned. ``clients`` join in secure aggregation, with a batch each.
    """

    noise: float = 0.0
    clip_ratio: float = 1.0
    drop: float = 0.0
    pruned_share: float = 0.0
    clients: int = 1

    def __post_init__(self) -> None:
        require_not_negative("noise", self.noise)
        require_not_negative("clip_ratio", self.clip_ratio)
        for name in ("drop", "pruned_share"):
            if require_probability(name, getattr(self, name)) == 1.0:
                raise InputError(f"{name} must be below 1: at 1 nothing is released")
        require_count("clients", self.clients, at_least=1)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Upper and lower rate of one defence, each up to a constant, and their source.

    ``upper`` is None if no rate is known. ``violated`` lists assumptions of the upper rate that do
    not hold here, with hidden constants taken as 1.
    """

    defence: str
    upper: float | None
    lower: float
    upper_source: str
    lower_source: str
    assumptions: str = f"upper: {_UPPER}; lower: {_LOWER}"
    violated: tuple[str, ...] = ()
    binds: FloorBinds = FloorBinds.UNBIASED
    """The attacks that the lower rate binds."""


def no_defence(network: TwoLayerBatch) -> Rates:
    """B √(d/m) and σ √(d/m) (Theorems 3.1 and D.7; Theorem B.6 prints the first without its B).

    >>> rates = no_defence(TwoLayerBatch(dimension=64, width=4096, batch=4))
    >>> rates.upper, rates.lower
    (0.5, 0.125)
    """
    return _rates("none", network, sources=("Thm 3.1", "Thm D.7"))


def local_aggregation(network: TwoLayerBatch) -> Rates:
    """Two local steps: the rates of no defence (Propositions C.1, C.2 and E.2).

    Assumes learning rates small enough that the weights hardly move between the steps.
    """
    rates = _rates("local aggregation", network, sources=("Prop. C.1", "Prop. E.2"))
    if network.width > network.batch:
        return rates
    failed = f"width > batch ({network.width} ≤ {network.batch})"
    return replace(rates, violated=(*rates.violated, failed))


def gradient_noise(network: TwoLayerBatch, noise: float) -> Rates:
    """(B + σ₀) √(d/m) and √(σ² + σ₀²) √(d/m) (Proposition C.12, Theorem D.7).

    The table writes σ for all the noise on what is observed; a defence that adds σ₀ is part of it.
    """
    require_not_negative("noise", noise)
    sources = ("Prop. C.12", "Thm D.7")
    return _rates("gradient noise", network, noise=noise, sources=sources)


def gradient_clipping(network: TwoLayerBatch, clip_ratio: float) -> Rates:
    """B √(d/m) and σ max{1, ‖G‖/C} √(d/m) (Proposition C.11, Lemma E.1)."""
    require_not_negative("clip_ratio", clip_ratio)
    sources = ("Prop. C.11", "Lemma E.1")
    return _rates("gradient clipping", network, clip_ratio=clip_ratio, sources=sources)


def dp_sgd(network: TwoLayerBatch, noise: float, clip_ratio: float) -> Rates:
    """(B + σ₀ max{1, ‖G‖/C}) √(d/m) and √(σ² + σ₀²) max{1, ‖G‖/C} √(d/m) (C.13, E.1)."""
    require_not_negative("noise", noise)
    require_not_negative("clip_ratio", clip_ratio)
    sources = ("Prop. C.13", "Lemma E.1")
    return _rates("DP-SGD", network, noise=noise, clip_ratio=clip_ratio, sources=sources)


def secure_aggregation(network: TwoLayerBatch, clients: int) -> Rates:
    """No defence, with the batches of all clients as one: their records are mixed (section 3.3)."""
    require_count("clients", clients, at_least=1)
    joined = replace(network, batch=network.batch * clients)
    return _rates("secure aggregation", joined, sources=("§3.3", "§3.3"))


def dropout(network: TwoLayerBatch, drop: float) -> Rates:
    """B √(d/((1-p)m)) and σ √(d/((1-p)m)), p the drop probability (section 3.4, E.1)."""
    kept = 1.0 - Strengths(drop=drop).drop
    return _rates("dropout", network, kept=kept, sources=("§3.4", "§E.1"))


def gradient_pruning(network: TwoLayerBatch, pruned_share: float) -> Rates:
    """Unknown, and σ √(d/((1-p̂)m)), p̂ the pruned share of the Jacobian (Lemma E.3)."""
    kept = 1.0 - Strengths(pruned_share=pruned_share).pruned_share
    rates = _rates("gradient pruning", network, kept=kept, sources=("–", "Lemma E.3"))
    return replace(rates, upper=None, violated=(), assumptions=f"lower: {_LOWER}")


def all_rates(network: TwoLayerBatch, strengths: Strengths) -> tuple[Rates, ...]:
    """The rates without a defence, then with each of the seven, in the paper's order."""
    return (
        no_defence(network),
        local_aggregation(network),
        gradient_noise(network, strengths.noise),
        gradient_clipping(network, strengths.clip_ratio),
        dp_sgd(network, strengths.noise, strengths.clip_ratio),
        secure_aggregation(network, strengths.clients),
        dropout(network, strengths.drop),
        gradient_pruning(network, strengths.pruned_share),
    )


def pruned_share(jacobian: ArrayLike, pruned: Iterable[bool]) -> float:
    """p̂ = ‖rows of J that were pruned‖² / ‖J‖² (Lemma E.3), for ``jacobian`` (outputs, inputs).

    ``pruned`` says for each output whether it was set to 0. (Proposition 3.4 defines p̂ with the
    rows that remain, which contradicts its own rate.)

    >>> pruned_share([[3.0], [1.0]], [False, True])
    0.1
    """
    array = checked_jacobian(jacobian)
    mask = np.asarray(list(pruned), dtype=bool)
    if mask.shape != (len(array),):
        raise InputError(f"pruned must have one entry per output ({len(array)}), got {mask.shape}")
    whole = float((array**2).sum())
    if whole == 0.0:
        raise InputError("the jacobian is all zeros: its pruned share is undefined")
    return float((array[mask] ** 2).sum() / whole)


def _rates(
    defence: str,
    network: TwoLayerBatch,
    *,
    sources: tuple[str, str],
    noise: float = 0.0,
    clip_ratio: float = 1.0,
    kept: float = 1.0,
) -> Rates:
    width = kept * network.width
    scale = math.sqrt(network.dimension / width)
    clipping = max(1.0, clip_ratio)
    observed = math.hypot(network.observation_noise, noise)
    return Rates(
        defence=defence,
        upper=(network.batch + noise * clipping) * scale,
        lower=observed * clipping * scale,
        upper_source=sources[0],
        lower_source=sources[1],
        violated=network.violated(width),
    )
