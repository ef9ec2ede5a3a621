"""RecoNN: a network that learns to map released models to records (Balle et al. 2022, §IV).

It can first learn from another fixed set and be fine-tuned (Balle et al. 2022, appendix B).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.attacks.informed.learned.held_out_errors import (
    Conditioner,
    HeldOutErrors,
    conditioner,
    spacing,
)
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import ParsedAttack, Refusal, ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.images import sides_of
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.shadows import Order, ShadowSet, order_for, shadows_of, user_cache
from exhume.shadows.order import disjoint

if TYPE_CHECKING:
    from exhume.attacks.informed.learned.phi import Phi
    from exhume.attacks.informed.learned.train_network import Fitting


Range = tuple[float, float]
_MANY = 1000
"""The paper's widths are better from this many shadow models on."""


@dataclass(frozen=True, eq=False)
class ReconstructorProblem:
    """A release, and the shadow models that φ learns from: those of ``earlier`` first."""

    release: Release
    order: Order
    earlier: Order | None
    knowledge: Knowledge


@dataclass(frozen=True)
class Reconstructor(ParsedAttack[ReconstructorProblem]):
    """Trains a network φ on shadow models to map a released model to the record (RecoNN).

    The settings are those of Balle et al. 2022, Table V: standardised weights, MAE + MSE, RMSProp
    at 0.001 with batches of 128; for colour images transposed convolutions, Adam at 1e-4, and LPIPS
    and a patch discriminator in the loss. Settings that are None depend on the number of shadow
    models: two hidden layers of 1,000 from 1,000 models on, else of 300; 100 epochs, with early
    stopping on held-out shadow models. With ``first``, φ first learns from that many shadow models
    of another fixed set, made of unused shadow targets (appendix B). Memory: 8 bytes × shadows ×
    parameters (2 GB at most; larger sets are read batch by batch), 16 × the weights of φ (beyond 20
    million its inputs are 4,096 principal components at most), and 8 bytes × shadows × entries.
    """

    name: ClassVar[str] = "reconstructor"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.NETWORK
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

    def parse(self, release: Release, knowledge: Knowledge) -> ReconstructorProblem | Refusal:
        """Return the shadow models to order, or why there can be none."""
        order, earlier = self.order(release, knowledge), None
        if isinstance(order, str):
            return Refusal(order)
        if self.first:
            assert knowledge.shadow_targets is not None
            earlier = earlier_order(order, knowledge.shadow_targets, self.first)
        if isinstance(earlier, str):
            return Refusal(earlier)
        return ReconstructorProblem(release, order, earlier, knowledge)

    def order(self, release: Release, knowledge: Knowledge) -> Order | str:
        """Return the order of shadow models to train, or why there can be none."""
        return order_for(release, knowledge, layers=self.layers, most=self.shadows)

    def memory(self, order: Order) -> int:
        """Return a bound on the bytes that learning from a large order takes."""
        from exhume.attacks.informed.learned.train_network import MOST_WEIGHTS
        from exhume.shadows.order import MOST_BYTES

        models, entries = len(order.targets), math.prod(order.targets.record_shape)
        rows = 4 * models * order.layout.whole
        held = 2 * rows if rows <= MOST_BYTES else 0
        return 16 * MOST_WEIGHTS + held + 8 * models * entries

    def fitting(self, shadows: ShadowSet, value_range: Range | None) -> Fitting:
        """Return the complete settings for these shadow models."""
        from exhume.attacks.informed.learned.train_network import Fitting
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

    def _solve(self, problem: ReconstructorProblem, rng: np.random.Generator) -> Reconstruction:
        knowledge = problem.knowledge
        try:
            taught = taught_by(problem.order, self, knowledge.value_range, problem.earlier)
        except InputError as error:
            return nothing(
                knowledge, Status.NOT_CONVERGED, f"no shadow models to learn from: {error}"
            )
        difference = taught.shadows.read(problem.release)
        x = taught.phi.read(difference, device=self.device)
        squared = float(taught.evidence.errors.mean())
        known = knowledge.known_attributes
        if known is not None:
            x, squared = _conditioner(taught, known.mask.tobytes())(x, squared, known)
        strange = taught.shadows.far_off(difference)
        return _answer(taught, x.reshape(1, *knowledge.record_shape), knowledge, squared, strange)


@dataclass(frozen=True, eq=False)
class Taught:
    """φ with the shadow models it was trained on, and its held-out errors."""

    shadows: ShadowSet
    phi: Phi
    evidence: HeldOutErrors
    note: str


@lru_cache(maxsize=2)
def taught_by(
    order: Order, attack: Reconstructor, value_range: Range | None, earlier: Order | None = None
) -> Taught:
    """Train φ on the shadow models of an order, or load both from the user's cache.

    With an ``earlier`` order, φ is fine-tuned from the result of that one.
    """
    from exhume.attacks.informed.learned.phi import from_arrays
    from exhume.attacks.informed.learned.train_network import fine_tune, network_for, trained
    from exhume.runtime.cache import Cache, shelf_name
    from exhume.runtime.fingerprint import fingerprint

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
    return Taught(shadows, phi, HeldOutErrors(errors, phi.blind, gap), _lacking(fitting))


@lru_cache(maxsize=2)
def _conditioner(taught: Taught, mask: bytes) -> Conditioner:
    return conditioner(taught.phi.held_out, np.frombuffer(mask, dtype=bool))


def _lacking(fitting: Fitting) -> str:
    if not fitting.convolutional or fitting.lpips is not None or fitting.perceptual == 0:
        return ""
    return "trained without LPIPS, whose weights are not available"


def _answer(
    taught: Taught, samples: FloatArray, knowledge: Knowledge, squared: float, strange: bool
) -> Reconstruction:
    evidence, error = taught.evidence, float(np.sqrt(squared))
    parts = [
        f"a reconstructor network trained on {len(taught.shadows)} shadow models, "
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
            **taught.shadows.stats(),
            "epochs": taught.phi.epochs,
            "held_out_error": evidence.error,
            "blind_error": evidence.blind_error,
            "weights": taught.phi.network.weights(),
        },
    )


def _is_colour(record_shape: tuple[int, ...]) -> bool:
    if len(record_shape) != 3:
        return False
    height, width, colours = sides_of(record_shape)
    return colours == 3 and min(height, width) >= 24


def earlier_order(order: Order, shadow_targets: Records, first: int) -> Order | str:
    """Return an order with another fixed set, both from shadow targets that ``order`` does not use.

    The last shadow targets become the other fixed set, of the same size; ``first`` more become its
    shadow targets. Returns the reason if there are too few.
    """
    pool, _ = disjoint(shadow_targets, order.fixed_set)
    used, known = len(order.targets), len(order.fixed_set)
    if len(pool) < used + first + known:
        return (
            f"learning from another fixed set first needs {used + first + known} shadow targets "
            f"({used} + first = {first} + {known} for the fixed set), got {len(pool)}"
        )
    other, targets = _parts(pool, used, first, known)
    return replace(order, fixed_set=other, targets=targets, left_out=0)


@lru_cache(maxsize=4)
def _parts(pool: Records, used: int, first: int, known: int) -> tuple[Records, Records]:
    """Return the same objects for the same arguments: equal orders are compared often."""
    return pool.take(slice(len(pool) - known, None)), pool.take(slice(used, used + first))
