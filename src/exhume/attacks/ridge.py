"""Ridge regression from the difference a record makes to the record itself, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exhume.arrays import Array, FloatArray
from exhume.attacks.base import Attack, nothing
from exhume.attacks.reconstructor.informed import informed
from exhume.attacks.reconstructor.reading import Learned, learned
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release
from exhume.shadows import Order, order_for


@dataclass(frozen=True)
class Ridge(Attack):
    """Learns from shadow models to read a record off the difference it makes, by kernel ridge.

    The general attack of Balle et al. 2022 (§IV) with regression in place of a network: differences
    of length one, the label read first and the record then among shadow models of that label;
    kernel and penalty chosen by cross-validation on the shadow models alone. ``layers`` restricts
    it to parameters by name, ``shadows`` bounds how many models are trained. Memory: 8 bytes ×
    shadows × parameters (2 GB at most) and 100 bytes × shadows².
    """

    name: ClassVar[str] = "ridge"
    layers: tuple[str, ...] | None = None
    shadows: int = 3000

    def __post_init__(self) -> None:
        if self.shadows < 8:
            raise InputError(f"shadows must be at least 8, got {self.shadows}")

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Say what is missing to train shadow models, or what doesn't fit."""
        found = self.order(release, knowledge)
        return found if isinstance(found, str) else None

    def order(self, release: Release, knowledge: Knowledge) -> Order | str:
        """Return which shadow models to train, or the reason why there can be none."""
        return order_for(release, knowledge, layers=self.layers, most=self.shadows)

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        order = self.order(release, knowledge)
        assert not isinstance(order, str)
        label_known = knowledge.labels is not None and order.training.classes is not None
        try:
            taught = learned(order, label_known, knowledge.value_range)
        except InputError as error:
            return nothing(knowledge, Status.NOT_CONVERGED, f"nothing to learn from: {error}")
        difference = taught.shadows.read(release)
        if not difference.any():
            message = "the release is what training without the record gives"
            return nothing(knowledge, Status.NO_INFORMATION, message)
        label = knowledge.labels if knowledge.labels is not None else taught.label(difference)
        x, scores, squared = taught.read(difference, label)
        known = knowledge.known_attributes
        if known is not None:
            reading = informed(taught, known.mask.tobytes(), knowledge.value_range)
            x, squared = reading.read(difference, label, known)
        strange = taught.shadows.far_off(difference)
        label = taught.named(scores) if label is None else np.asarray(label[:1])
        return _answer(taught, x.reshape(1, *knowledge.record_shape), label, squared, strange)


def _answer(
    taught: Learned, samples: FloatArray, label: Array, squared: float, strange: bool
) -> Reconstruction:
    evidence, error = taught.evidence, float(np.sqrt(squared))
    status = Status.WRONG_ASSUMPTION if strange else evidence.status(error)
    how = f"{taught.reading.kernel.value}{', by label' if taught.reading.by_label else ''}"
    parts = [
        f"kernel ridge ({how}) on {len(taught.shadows)} shadow models, "
        f"own error estimate {error:.2g}"
    ]
    if strange:
        parts.append("the release differs far more than any shadow model does")
    return Reconstruction(
        samples,
        status,
        labels=label,
        confidence=np.array([0.0 if strange else evidence.confidence(error)]),
        error_estimate=np.array([error]),
        message="; ".join(part for part in [*parts, taught.shadows.note()] if part),
        stats={
            "shadows": len(taught.shadows),
            "kernel": taught.reading.kernel.value,
            "by_label": taught.reading.by_label,
            "label_accuracy": taught.accuracy,
            "penalty": taught.reading.regression.penalty,
            "left_out_error": evidence.error,
            "blind_error": evidence.blind_error,
        },
    )
