"""DP-SGD: every record's gradient clipped, and noise on their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from exhume.defences.record_clipping import RecordClipping, require_records_apart
from exhume.defences.step_defence import StepDefence
from exhume.protocol.defence import Blurring
from exhume.protocol.limits import Positive
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.training.gradient import Step

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.derivatives.objective import Objective
    from exhume.training.gradient import SimulatedStep
    from exhume.training.unknown_draws import UnknownDraws


@dataclass(frozen=True, eq=False)
class DPSGD(StepDefence, Blurring):
    """Clips every record's gradient to ``norm``, adds noise of norm · ``noise_multiplier``.

    The noise is on the sum, as in Abadi et al. 2016; the mean of n records has 1/n of it.
    """

    inner: Step
    norm: Positive
    noise_multiplier: Positive
    name: ClassVar[str] = "dp-sgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_records_apart(self.name, self.inner)

    @property
    def clipped(self) -> RecordClipping:
        """The step with its clipping and without its noise."""
        return RecordClipping(self.inner, self.norm)

    @property
    def record_clipping(self) -> tuple[float, float]:
        """The norm and the noise multiplier."""
        return self.norm, self.noise_multiplier

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the mean of the clipped gradients with noise on it."""
        mean = self.clipped.gradient(objective, theta, data, rng)
        noise = rng.normal(0.0, self.deviation(len(data)), tuple(theta.shape))
        return mean + objective.tensor(noise)

    def simulated_step(self, objective: Objective, draws: UnknownDraws) -> SimulatedStep:
        """Return the step with its clipping; noise is left out."""
        return self.clipped.simulated_step(objective, draws)

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return one Gaussian mechanism: the noise is in units of the sensitivity."""
        import dp_accounting

        return dp_accounting.GaussianDpEvent(self.noise_multiplier)

    def sampled_event(self, records: int, rate: float) -> dp_accounting.DpEvent:
        """Return the Gaussian mechanism under Poisson sampling, which amplifies it."""
        import dp_accounting

        return dp_accounting.PoissonSampledDpEvent(rate, self.event(records))

    def noise_alone(self, records: int) -> float:
        """Return the deviation of the noise, which is also added if there are no records."""
        return self.deviation(records)

    def deviation(self, records: int) -> float:
        """Return the deviation of the noise on each number of a mean over ``records``."""
        return self.noise_multiplier * self.norm / records

    @property
    def hides_draws(self) -> bool:
        """Return True: the noise is secret."""
        return True

    def under_noise(self, records: int) -> tuple[Mechanism, float]:
        """Return the clipped step, and the deviation of the noise on it."""
        return self.clipped, self.deviation(records)

    def describe(self) -> str:
        """Return a short description."""
        return f"DP-SGD with clipping to {self.norm:g} and noise {self.noise_multiplier:g}"
