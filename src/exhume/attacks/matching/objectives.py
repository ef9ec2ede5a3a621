"""What is minimised: a distance between releases, and what an image is expected to be like."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from exhume.errors import InputError


@dataclass(frozen=True, eq=False)
class Released:
    """What was seen, divided by ``scale`` so that its length is 1: one tensor a parameter.

    ``masks`` holds 1 where an entry was really released, None where all were. ``limits`` are what
    entries that were not can't exceed, ``deviations`` the noise on those that were, both in the
    same units; left out, nothing is known of the ones and the others are exact.
    """

    values: tuple[Tensor, ...]
    masks: tuple[Tensor | None, ...]
    scale: float
    deviations: tuple[float, ...] = ()
    limits: tuple[float | None, ...] = ()

    def seen(self, simulated: Sequence[Tensor]) -> list[Tensor]:
        """Return a simulated release in the same units, as far as it was released.

        Of an entry that was not, what is left is what it exceeds its limit by.
        """
        limits = self.limits or (None,) * len(self.masks)
        parts = zip(simulated, self.masks, limits, strict=True)
        return [_released_part(g / self.scale, mask, limit) for g, mask, limit in parts]

    @property
    def noise(self) -> float:
        """The share of noise in the release's square: 1 where there is nothing else."""
        pairs = zip(self.deviations, self.values, self.masks, strict=False)
        known = [s**2 * float(v.numel() if m is None else m.sum()) for s, v, m in pairs]
        return min(1.0, sum(known))

    def signal(self) -> Tensor:
        """Return each parameter's part of its square that is not noise, at least a hundredth."""
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
    """How far a simulated release is from the one that was seen: 0 at the truth."""

    @abstractmethod
    def __call__(self, simulated: Sequence[Tensor], released: Released) -> Tensor:
        """Return the distance; ``simulated`` is in the units of ``released``."""


@dataclass(frozen=True)
class SquaredL2(Distance):
    """Σ(g − g*)² / Σg*² (Zhu et al. 2019), scaled so that a release of zeros is 1 away."""

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
    """Σ_l w_l (1 − cos_l): a cosine a parameter, by its share of the entries.

    Liu et al. 2024, appendix F, reweight by w = ‖θ‖₀; read a layer at a time that is its number of
    entries. ``by_size`` False gives every parameter the same weight. Either is multiplied by the
    part of a parameter's square that is not noise, as far as the noise is known.
    """

    by_size: bool = True

    def __call__(self, simulated: Sequence[Tensor], released: Released) -> Tensor:
        """Return the weighted mean of 1 − cos."""
        dots, squares = _products(simulated, released)
        own = torch.stack([t.square().sum() for t in released.values])
        cosines = dots / (squares * own).clamp_min(1e-30).sqrt()
        sizes = dots.new_tensor([float(t.numel()) if self.by_size else 1.0 for t in simulated])
        # A parameter whose gradient is 0 has no direction to compare; noise has none that counts.
        sizes = sizes * (own > 0) * released.signal()
        return (sizes * (1.0 - cosines)).sum() / sizes.sum()


def _products(simulated: Sequence[Tensor], released: Released) -> tuple[Tensor, Tensor]:
    """Return ⟨g, g*⟩ and ⟨g, g⟩ of each parameter."""
    dots = [(g * t).sum() for g, t in zip(simulated, released.values, strict=True)]
    return torch.stack(dots), torch.stack([g.square().sum() for g in simulated])


def total_variation(images: Tensor, spread: float) -> Tensor:
    """Return the mean absolute difference of neighbours, images (n, h, w[, c]), over ``spread``.

    ``spread`` is a pixel's usual deviation, so that the figure has the scale of Geiping et al.'s
    standardised pixels whatever the value range.
    """
    if images.ndim not in (3, 4):
        raise InputError(f"total variation is of images (n, h, w[, c]), got {tuple(images.shape)}")
    down = (images[:, 1:] - images[:, :-1]).abs().mean()
    across = (images[:, :, 1:] - images[:, :, :-1]).abs().mean()
    return (down + across) / spread


def batch_norm_distance(
    seen: Sequence[tuple[Tensor, Tensor]], known: Sequence[tuple[Tensor, Tensor]]
) -> Tensor:
    """Return the mean over layers of [mean_c (μ − μ*)²/σ*² + mean_c (σ²/σ*² − 1)²].

    ``seen`` and ``known`` hold (mean, variance) a channel of each normalisation's input (Yin et al.
    2021 have plain norms; relative ones weigh every channel alike).
    """
    terms = []
    for (mean, variance), (known_mean, known_variance) in zip(seen, known, strict=True):
        floor = known_variance.clamp_min(1e-8)
        shift = (mean - known_mean).square() / floor
        terms.append((shift + (variance / floor - 1.0).square()).mean())
    return torch.stack(terms).mean()


def feature_distance(features: Tensor, known: Tensor) -> Tensor:
    """Return the mean of 1 − cos² between ``features`` (n, d) and ``known`` (n, d), row by row.

    Squared, since recovered features may have the wrong sign (Liu et al. 2024, section 4.2).
    """
    cosines = torch.nn.functional.cosine_similarity(features, known, dim=1)
    return (1.0 - cosines.square()).mean()


def span_distance(features: Tensor, basis: Tensor) -> Tensor:
    """Return the mean share of ``features`` (n, d) outside the span of ``basis`` (k, d).

    For large batches, where features of one class can't be told apart but their span can (Liu et
    al. 2024, section 4.2). ``basis`` is orthonormal.
    """
    outside = features - (features @ basis.T) @ basis
    return (outside.square().sum(dim=1) / features.square().sum(dim=1).clamp_min(1e-30)).mean()
