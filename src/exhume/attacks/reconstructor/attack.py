"""RecoNN: a network that learns to turn released models into records (Balle et al. 2022, §IV)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.base import Attack, nothing
from exhume.attacks.reconstructor.conditioning import Conditioner, conditioner
from exhume.attacks.reconstructor.evidence import Evidence, spacing
from exhume.attacks.reconstructor.transfer import earlier_order
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release
from exhume.shadows import Order, ShadowSet, order_for, shadows_of, user_cache

if TYPE_CHECKING:
    from exhume.attacks.reconstructor.fitting import Fitting
    from exhume.attacks.reconstructor.phi import Phi

Range = tuple[float, float]
_MANY = 1000
"""From this many shadow models on, the paper's widths pay."""


@dataclass(frozen=True)
class Reconstructor(Attack):
    """Trains a network φ on shadow models to turn a released model into the record (RecoNN).

    The settings of Balle et al. 2022, Table V: standardised weights, MAE + MSE, RMSProp at 0.001
    with batches of 128; for colour images transposed convolutions, Adam at 1e-4, and LPIPS and a
    patch discriminator in the loss. What is None is chosen by the shadow models there are: two
    hidden layers of 1,000 from 1,000 of them on, else of 300; 100 epochs, stopped early when
    shadow models kept apart get worse. With ``first``, φ learns from that many shadow models of
    another fixed set before, made of shadow targets that are left over (appendix B). Memory: 4
    bytes × shadows × parameters (1 GB at most), and 16 × the weights of φ, of which there are at
    most 20 million beyond 4,096 × shadows.
    """

    name: ClassVar[str] = "reconstructor"
    layers: tuple[str, ...] | None = None
    shadows: int = 3000
    first: int = 0
    hidden: tuple[int, ...] | None = None
    epochs: int = 100
    batch: int = 128
    learning_rate: float | None = None
    perceptual: float = 1.0
    adversarial: float = 0.01
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        for field in ("shadows", "epochs", "batch"):
            least = 8 if field == "shadows" else 1
            if getattr(self, field) < least:
                raise InputError(f"{field} must be at least {least}, got {getattr(self, field)}")
        if self.first and self.first < 8:
            raise InputError(f"first must be 0 or at least 8, got {self.first}")
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise InputError(f"learning_rate must be a positive number, got {self.learning_rate}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Say what is missing to train shadow models, or what doesn't fit."""
        found = self.order(release, knowledge)
        if not isinstance(found, str) and self.first:
            assert knowledge.shadow_targets is not None
            found = earlier_order(found, knowledge.shadow_targets, self.first)
        return found if isinstance(found, str) else None

    def order(self, release: Release, knowledge: Knowledge) -> Order | str:
        """Return which shadow models to train, or the reason why there can be none."""
        return order_for(release, knowledge, layers=self.layers, most=self.shadows)

    def fitting(self, shadows: ShadowSet, value_range: Range | None) -> Fitting:
        """Return the settings in full, as they are for these shadow models."""
        from exhume.attacks.reconstructor.fitting import Fitting
        from exhume.metrics.perceptual import lpips_unavailable, lpips_weights

        colour = _is_colour(shadows.targets.record_shape) and value_range is not None
        lpips = lpips_weights() if colour and lpips_unavailable() is None else None
        width = 1000 if len(shadows) >= _MANY else 300
        return Fitting(
            hidden=(width, width) if self.hidden is None else self.hidden,
            epochs=self.epochs,
            batch=self.batch,
            learning_rate=self.learning_rate or (1e-4 if colour else 1e-3),
            convolutional=colour,
            lpips=lpips if self.perceptual > 0 else None,
            perceptual=self.perceptual,
            adversarial=self.adversarial,
            value_range=value_range,
            seed=self.seed,
            device=self.device,
        )

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        order, earlier = self.order(release, knowledge), None
        assert not isinstance(order, str)
        if self.first:
            assert knowledge.shadow_targets is not None
            earlier = earlier_order(order, knowledge.shadow_targets, self.first)
            assert not isinstance(earlier, str)
        try:
            taught = taught_by(order, self, knowledge.value_range, earlier)
        except InputError as error:
            return nothing(knowledge, Status.NOT_CONVERGED, f"nothing to learn from: {error}")
        difference = taught.shadows.read(release)
        x = taught.phi.read(difference, device=self.device)
        squared = float(taught.evidence.errors.mean())
        known = knowledge.known_attributes
        if known is not None:
            x, squared = _conditioner(taught, known.mask.tobytes())(x, squared, known)
        strange = taught.shadows.far_off(difference)
        return _answer(taught, x.reshape(1, *knowledge.record_shape), knowledge, squared, strange)


@dataclass(frozen=True, eq=False)
class Taught:
    """φ with the shadow models that taught it, and what it may claim."""

    shadows: ShadowSet
    phi: Phi
    evidence: Evidence
    note: str


@lru_cache(maxsize=2)
def taught_by(
    order: Order, attack: Reconstructor, value_range: Range | None, earlier: Order | None = None
) -> Taught:
    """Train φ on an order's shadow models, or fetch both from the user's cache.

    Where there is an ``earlier`` order, φ goes on from what that one taught it.
    """
    from exhume.attacks.reconstructor.fitting import fine_tune, network_for, trained
    from exhume.attacks.reconstructor.phi import from_arrays
    from exhume.shadows.cache import Cache, shelf_name
    from exhume.shadows.fingerprint import fingerprint

    before = None
    if earlier is not None:
        before = taught_by(earlier, replace(attack, first=0), value_range)
    shadows = shadows_of(order)
    fitting = attack.fitting(shadows if before is None else before.shadows, value_range)
    cache = user_cache() if order.source else Cache(None)
    keys = (order.key,) if earlier is None else (order.key, earlier.key)
    shelf = shelf_name("reconstructor", fingerprint(*keys, fitting))
    kept = cache.computed(
        shelf,
        "phi",
        lambda: (
            trained(shadows, fitting) if before is None else fine_tune(before.phi, shadows, fitting)
        ).arrays(),
        about=f"from {len(shadows)} shadow models",
        wait=True,
    )
    assert kept is not None
    network = network_for(shadows, fitting) if before is None else before.phi.network
    phi = from_arrays(kept, network)
    errors = np.asarray(np.square(phi.held_out).mean(axis=1))
    gap = spacing(shadows.targets, order.fixed_set)
    return Taught(shadows, phi, Evidence(errors, phi.blind, gap), _lacking(fitting))


@lru_cache(maxsize=2)
def _conditioner(taught: Taught, mask: bytes) -> Conditioner:
    return conditioner(taught.phi.held_out, np.frombuffer(mask, dtype=bool))


def _lacking(fitting: Fitting) -> str:
    if not fitting.convolutional or fitting.lpips is not None or fitting.perceptual == 0:
        return ""
    return "trained without LPIPS, whose weights are not at hand"


def _answer(
    taught: Taught, samples: FloatArray, knowledge: Knowledge, squared: float, strange: bool
) -> Reconstruction:
    evidence, error = taught.evidence, float(np.sqrt(squared))
    parts = [
        f"a reconstructor network taught by {len(taught.shadows)} shadow models, "
        f"own error estimate {error:.2g}",
        "the release differs far more than any shadow model does" if strange else "",
        taught.note,
        taught.shadows.note(),
    ]
    return Reconstruction(
        samples,
        Status.WRONG_ASSUMPTION if strange else evidence.status(error),
        labels=None if knowledge.labels is None else knowledge.labels[:1],
        confidence=np.array([0.0 if strange else evidence.confidence(error)]),
        error_estimate=np.array([error]),
        message="; ".join(part for part in parts if part),
        stats={
            "shadows": len(taught.shadows),
            "epochs": taught.phi.epochs,
            "held_out_error": evidence.error,
            "blind_error": evidence.blind_error,
            "weights": taught.phi.network.weights(),
        },
    )


def _is_colour(record_shape: tuple[int, ...]) -> bool:
    return len(record_shape) == 3 and record_shape[2] == 3 and min(record_shape[:2]) >= 24
