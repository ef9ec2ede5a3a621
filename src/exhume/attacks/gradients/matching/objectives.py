"""The objective: a distance between releases, and regularisers for images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.protocol.errors import InputError
from exhume.protocol.images import channels_are_first


@dataclass(frozen=True, eq=False)
class Released:
    """The observed release, divided by ``scale`` to have norm 1: one tensor per parameter.

    ``masks`` are 1 where an entry was really released, or None if all were. ``limits`` bound the
    entries that were not released, and ``deviations`` are the noise on those that were, both in the
    same units. Without ``limits`` nothing is known about missing entries; without ``deviations``
    the others are exact.
    """

    values: tuple[Tensor, ...]
    masks: tuple[Tensor | None, ...]
    scale: float
    deviations: tuple[float, ...] = ()
    limits: tuple[float | None, ...] = ()

    def seen(self, simulated: Sequence[Tensor]) -> list[Tensor]:
        """Return the released part of a simulated release, in the same units.

        An entry that was not released is replaced by its excess over its limit.
        """
        limits = self.limits or (None,) * len(self.masks)
        parts = zip(simulated, self.masks, limits, strict=True)
        return [_released_part(g / self.scale, mask, limit) for g, mask, limit in parts]

    @property
    def noise(self) -> float:
        """The share of noise in the release's square: 1 if there is nothing else."""
        pairs = zip(self.deviations, self.values, self.masks, strict=False)
        known = [s**2 * float(v.numel() if m is None else m.sum()) for s, v, m in pairs]
        return min(1.0, sum(known))

    def signal(self) -> Tensor:
        """Return the share of each parameter's square that is not noise, at least a hundredth."""
        own = torch.stack([v.square().sum() for v in self.values])
        if not any(self.deviations):
            return torch.ones_like(own)
        counts = own.new_tensor(
            [
                float(v.numel() if m is None else m.sum())
                for v, m in zip(self.values, self.masks, strict=True)
            ]
        )
        noise = counts * own.new_tensor(self.deviations).square()
        return (1.0 - noise / own.clamp_min(1e-30)).clamp(0.01, 1.0)


def _released_part(values: Tensor, mask: Tensor | None, limit: float | None) -> Tensor:
    if mask is None:
        return values
    if limit is None:
        return values * mask
    excess = values - values.clamp(-limit, limit)
    return torch.where(mask > 0, values, excess)


class Distance(ABC):
    """The distance of a simulated release from the observed one: 0 at the truth."""

    @abstractmethod
    def __call__(self, simulated: Sequence[Tensor], released: Released) -> Tensor:
        """Return the distance; ``simulated`` is in the units of ``released``."""


@dataclass(frozen=True)
class SquaredL2(Distance):
    """Σ(g − g*)² / Σg*² (Zhu et al. 2019), scaled so that a release of zeros has distance 1."""

    def __call__(self, simulated: Sequence[Tensor], released: Released) -> Tensor:
        """Return the squared relative residual."""
        pairs = zip(simulated, released.values, strict=True)
        return torch.stack([(g - t).square().sum() for g, t in pairs]).sum()


@dataclass(frozen=True)
class Cosine(Distance):
    """1 − cos of the whole release (Geiping et al. 2020)."""

    def __call__(self, simulated: Sequence[Tensor], released: Released) -> Tensor:
        """Return 1 − cos."""
        dots, squares = _products(simulated, released)
        return 1.0 - dots.sum() / squares.sum().clamp_min(1e-30).sqrt()


@dataclass(frozen=True)
class LayerCosine(Distance):
    """Σ_l w_l (1 − cos_l): one cosine per parameter, weighted by its share of the entries.

    Liu et al. 2024, appendix F, reweight by w = ‖θ‖₀, which is the number of entries if applied per
    layer. ``by_size=False`` gives every parameter the same weight. Both are multiplied by the share
    of a parameter's square that is not noise, if the noise is known.
    """

    by_size: bool = True

    def __call__(self, simulated: Sequence[Tensor], released: Released) -> Tensor:
        """Return the weighted mean of 1 − cos."""
        dots, squares = _products(simulated, released)
        own = torch.stack([t.square().sum() for t in released.values])
        cosines = dots / (squares * own).clamp_min(1e-30).sqrt()
        sizes = dots.new_tensor([float(t.numel()) if self.by_size else 1.0 for t in simulated])
        # A parameter with a zero gradient has no direction to compare; noise has none that counts.
        sizes = sizes * (own > 0) * released.signal()
        return (sizes * (1.0 - cosines)).sum() / sizes.sum()


def _products(simulated: Sequence[Tensor], released: Released) -> tuple[Tensor, Tensor]:
    """Return ⟨g, g*⟩ and ⟨g, g⟩ of each parameter."""
    dots = [(g * t).sum() for g, t in zip(simulated, released.values, strict=True)]
    return torch.stack(dots), torch.stack([g.square().sum() for g in simulated])


def total_variation(images: Tensor, spread: float) -> Tensor:
    """Return the mean absolute difference of neighbours in images, over ``spread``.

    Images are (n, h, w), (n, h, w, c) or (n, c, h, w).

    ``spread`` is a pixel's usual deviation. The result therefore has the scale of Geiping et al.'s
    standardised pixels for any value range.
    """
    if images.ndim not in (3, 4):
        raise InputError(f"total variation needs images (n, h, w[, c]), got {tuple(images.shape)}")
    rows = 2 if channels_are_first(tuple(images.shape[1:])) else 1
    down, across = images.diff(dim=rows).abs().mean(), images.diff(dim=rows + 1).abs().mean()
    return (down + across) / spread


def batch_norm_distance(
    seen: Sequence[tuple[Tensor, Tensor]], known: Sequence[tuple[Tensor, Tensor]]
) -> Tensor:
    """Return the mean over layers of [mean_c (μ − μ*)²/σ*² + mean_c (σ²/σ*² − 1)²].

    ``seen`` and ``known`` hold (mean, variance) per channel of each normalisation's input. Yin et
    al. 2021 use plain norms; relative ones give every channel the same weight.
    """
    terms = []
    for (mean, variance), (known_mean, known_variance) in zip(seen, known, strict=True):
        floor = known_variance.clamp_min(1e-8)
        shift = (mean - known_mean).square() / floor
        terms.append((shift + (variance / floor - 1.0).square()).mean())
    return torch.stack(terms).mean()


def feature_distance(features: Tensor, known: Tensor) -> Tensor:
    """Return the mean of 1 − cos² between ``features`` (n, d) and ``known`` (n, d), row by row.

    It is squared because recovered features may have the wrong sign (Liu et al. 2024, section 4.2).
    """
    cosines = torch.nn.functional.cosine_similarity(features, known, dim=1)
    return (1.0 - cosines.square()).mean()


def span_distance(features: Tensor, basis: Tensor) -> Tensor:
    """Return the mean share of ``features`` (n, d) outside the span of ``basis`` (k, d).

    For large batches, in which features of one class can't be separated but their span is known
    (Liu et al. 2024, section 4.2). ``basis`` is orthonormal.
    """
    outside = features - (features @ basis.T) @ basis
    return (outside.square().sum(dim=1) / features.square().sum(dim=1).clamp_min(1e-30)).mean()
