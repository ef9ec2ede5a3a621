"""Robbing the Fed: a malicious server whose network separates the records into bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from exhume.attacks.gradients.analytic.read_gradient import FirstLayerAttack, FirstLayerGradient
from exhume.models.imprint import Imprinted
from exhume.protocol.arrays import FloatArray
from exhume.protocol.attack import ThreatModel, nothing
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.seeds import Seed, generator
from exhume.training.gradient import GradientStep, gradient_step

if TYPE_CHECKING:
    from exhume.attacks.gradients.analytic.imprint_bins import ImprintedImages


@dataclass(frozen=True)
class Imprint(FirstLayerAttack):
    """Crafts an imprint block, and reads records from the differences of its bins.

    A bin is active for records whose measurement lies above its threshold. The difference of
    neighbouring bins' gradients therefore contains the records between two thresholds (Fowl et al.
    2022). Two records in one bin can't be separated there. Several ``measurements`` share the
    ``bins``: a record that is alone under any of them is found. It is then subtracted from the
    other bins, which isolates more records. ``into`` is where the block leads: directly to the
    scores, or to the real network.
    """

    bins: int = 1024
    measurements: int = 2
    into: Literal["scores", "network"] = "scores"
    name: ClassVar[str] = "imprint"
    made_for: ClassVar[ThreatModel | None] = ThreatModel.GRADIENT

    def __post_init__(self) -> None:
        Imprinted((1,), 1, self.bins, self.measurements)

    def craft(self, knowledge: Knowledge, rng: Seed) -> GradientStep:
        """Return the step that the server makes its clients take, instead of the expected one.

        Thresholds are quantiles of the adversary's own records (``Knowledge.pool``). Measurements
        are their leading principal components, which are uncorrelated.
        """
        step = gradient_step(knowledge.training)
        if step is None:
            raise InputError("the training is not known to be a gradient step of a network")
        pool = knowledge.pool()
        if len(pool) < 2:
            raise InputError(
                "an imprint needs records like the targets to place its bins: give shadow_targets"
            )
        from exhume.attacks.gradients.analytic.imprint_bins import crafted

        behind = step.network if self.into == "network" else None
        shape, outputs = knowledge.record_shape, step.network.outputs
        network = Imprinted(shape, outputs, self.bins, self.measurements, behind)
        inner = {} if behind is None else step.parameters()
        state = crafted(network, pool.reshape(len(pool), -1), inner, generator(rng))
        return GradientStep(
            network, step.classes, state=state, precision=step.precision, device=step.device
        )

    def _objection(self, observed: FirstLayerGradient) -> str | None:
        if not isinstance(observed.step.network, Imprinted):
            return "the network has no imprint: the server must have sent one (craft)"
        return None

    def _solve(self, observed: FirstLayerGradient, rng: np.random.Generator) -> Reconstruction:
        from exhume.attacks.gradients.analytic.imprint_bins import Bins

        knowledge = observed.knowledge
        if not np.any(observed.weight):
            message = "the imprint's gradient is zero: no error reached it"
            return nothing(knowledge, Status.NO_INFORMATION, message)
        bins = Bins(observed, observed.backward())
        alone, mixed = bins.peeled(knowledge.value_range)
        every = [*alone, *mixed][: observed.count]
        if not every:
            message = "no difference of bins exceeds the noise"
            return nothing(knowledge, Status.NO_INFORMATION, message)
        confidence = np.array([one.confidence for one in every])
        order = np.argsort(-confidence, kind="stable")
        classes = observed.step.classes
        labels = None if classes is None else np.asarray(classes)[[one.label for one in every]]
        return Reconstruction(
            _samples(every, knowledge)[order],
            Status.CONVERGED if len(alone) == observed.count else Status.APPROXIMATE,
            labels=None if labels is None else labels[order],
            confidence=confidence[order],
            # The distance from a mixture to any one record is unknown.
            error_estimate=np.where(confidence > 0.5, [one.error for one in every], np.inf)[order],
            message=(
                f"{len(alone)} of {observed.count} records were alone in a bin; "
                f"{len(mixed)} bins hold several"
            ),
            stats={"alone": len(alone), "mixed": len(mixed), "noise": bins.noise},
        )


def _samples(found: list[ImprintedImages], knowledge: Knowledge) -> FloatArray:
    return np.array([one.record for one in found]).reshape(-1, *knowledge.record_shape)
