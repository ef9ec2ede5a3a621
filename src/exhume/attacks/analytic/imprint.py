"""Robbing the Fed: a server whose network writes each record into a bin of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from exhume.arrays import FloatArray
from exhume.attacks.analytic.observed import observe
from exhume.attacks.base import Attack, nothing
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.models.imprint import Imprinted
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Release
from exhume.seeds import Seed, generator
from exhume.training.gradient import GradientStep, gradient_step

if TYPE_CHECKING:
    from exhume.attacks.analytic.bins import Found


@dataclass(frozen=True)
class Imprint(Attack):
    """Crafts an imprint block, and reads records off the differences of its bins.

    A bin is active for records whose measurement lies above its threshold, so that the difference
    of neighbouring bins' gradients holds the records between two thresholds (Fowl et al. 2022). Two
    records in one bin can't be told apart there. Several ``measurements`` share the ``bins``: a
    record that is alone by any of them comes out, and is then taken out of the others, which frees
    more. ``into`` says where the block leads: straight to the scores, or to the real network.
    """

    bins: int = 1024
    measurements: int = 2
    into: Literal["scores", "network"] = "scores"
    name: ClassVar[str] = "imprint"

    def __post_init__(self) -> None:
        Imprinted((1,), 1, self.bins, self.measurements)

    def craft(self, knowledge: Knowledge, rng: Seed) -> GradientStep:
        """Return the step that the server has its clients take, in place of the one they expect.

        Thresholds are quantiles of the adversary's own records (``Knowledge.pool``); measurements
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
        from exhume.attacks.analytic.bins import crafted

        behind = step.network if self.into == "network" else None
        shape, outputs = knowledge.record_shape, step.network.outputs
        network = Imprinted(shape, outputs, self.bins, self.measurements, behind)
        inner = {} if behind is None else step.parameters()
        state = crafted(network, pool.reshape(len(pool), -1), inner, generator(rng))
        return GradientStep(
            network, step.classes, state=state, precision=step.precision, device=step.device
        )

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        """Say why there are no bins to read."""
        observed = observe(release, knowledge)
        if isinstance(observed, str):
            return observed
        if not isinstance(observed.step.network, Imprinted):
            return "the network has no imprint: the server would have had to send one (craft)"
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        from exhume.attacks.analytic.bins import Bins
        from exhume.attacks.analytic.layer import Backward

        observed = observe(release, knowledge)
        assert not isinstance(observed, str)
        network = observed.step.network
        assert isinstance(network, Imprinted)
        if not np.any(observed.weight):
            message = "the imprint's gradient is zero: nothing came back to it"
            return nothing(knowledge, Status.NO_INFORMATION, message)
        bins = Bins(observed, Backward(observed.step, observed.layer, observed.parameters))
        alone, mixed = bins.peeled(knowledge.value_range)
        every = [*alone, *mixed][: observed.count]
        if not every:
            message = "no bin's difference rises above the noise"
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
            # How far a mixture is from any one record can't be known.
            error_estimate=np.where(confidence > 0.5, [one.error for one in every], np.inf)[order],
            message=(
                f"{len(alone)} of {observed.count} records were alone in a bin; "
                f"{len(mixed)} bins hold several"
            ),
            stats={"alone": len(alone), "mixed": len(mixed), "noise": bins.noise},
        )


def _samples(found: list[Found], knowledge: Knowledge) -> FloatArray:
    return np.array([one.record for one in found]).reshape(-1, *knowledge.record_shape)
