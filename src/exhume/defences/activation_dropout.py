"""Dropping the inputs of fully connected layers at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from exhume.defences.step_defence import StepDefence
from exhume.protocol.arrays import FloatArray
from exhume.protocol.errors import InputError
from exhume.protocol.limits import Share
from exhume.protocol.records import Records
from exhume.training.gradient import Step

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.derivatives.objective import Objective
    from exhume.training.gradient import Forward, SimulatedStep
    from exhume.training.unknown_draws import UnknownDraws


@dataclass(frozen=True, eq=False)
class ActivationDropout(StepDefence):
    """Drops the inputs of fully connected layers at random, each with probability ``rate``.

    Kept inputs are scaled up by 1/(1−rate). A layer whose input is the record itself is not
    changed. With record clipping inside, all records of a step lose the same inputs.
    """

    inner: Step
    rate: Share
    name: ClassVar[str] = "activation-dropout"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not dropped_layers(self.plain().network.module(), self.plain().network.record_shape):
            raise InputError(
                "activation dropout needs a fully connected layer after another layer; "
                f"{self.plain().network.describe()} has none"
            )

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the gradient with some inputs dropped."""
        import torch

        layers = dropped_layers(objective.module, self.plain().network.record_shape)

        def dropped(values: torch.Tensor) -> torch.Tensor:
            kept = rng.random(tuple(values.shape)) >= self.rate
            mask = torch.tensor(kept, device=values.device)
            return values * mask / (1.0 - self.rate)

        with changed_inputs(objective.module, layers, dropped):
            return self.inner.gradient(objective, theta, data, rng)

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the inner event: what is dropped does not depend on the data."""
        return self.inner.event(records)

    def sensitivity(self, records: int) -> float | None:
        """Return the inner one, which does not depend on what is dropped."""
        return self.inner.sensitivity(records)

    def simulated_step(self, objective: Objective, draws: UnknownDraws) -> SimulatedStep:
        """Return the gradient with some inputs dropped; the masks are ``draws``.

        A mask is a share of each input of each record, and starts at the average share that is
        kept.
        """
        draws.expected = True
        inner = self.inner.simulated_step(objective, draws)
        module, shape = objective.module, objective.network.record_shape
        layers = dropped_layers(module, shape)
        kept = 1.0 - self.rate
        spread = min(kept, self.rate)

        def dropped(values: torch.Tensor) -> torch.Tensor:
            def draw(rng: np.random.Generator) -> FloatArray:
                return kept + 0.1 * spread * rng.standard_normal(tuple(values.shape))

            return values * draws.share(draw) / kept

        def step(
            forward: Forward, leaves: Sequence[torch.Tensor], x: torch.Tensor, y: torch.Tensor
        ) -> tuple[torch.Tensor, ...]:
            with changed_inputs(module, layers, dropped):
                return inner(forward, leaves, x, y)

        return step

    @property
    def hides_draws(self) -> bool:
        """Return True: the dropped inputs are secret."""
        return True

    def describe(self) -> str:
        """Return a short description."""
        return f"dropout of {self.rate:g} before fully connected layers"


def dropped_layers(module: torch.nn.Module, record_shape: tuple[int, ...]) -> list[str]:
    """Return the fully connected layers whose input is not a record, in the module's order."""
    import torch

    linear = [n for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)]
    seen: list[str] = []

    def note(name: str) -> Any:
        return module.get_submodule(name).register_forward_pre_hook(
            lambda _, inputs: seen.append(name) if not _is_record(inputs[0]) else None
        )

    # Distinguished by the input: a record is a leaf, also after a reshape.
    def _is_record(values: torch.Tensor) -> bool:
        return bool(torch.equal(values.detach().flatten(), probe.flatten()))

    weight = next(module.parameters())
    probe = torch.linspace(0.1, 0.9, int(np.prod(record_shape))).to(weight)
    handles = [note(name) for name in linear]
    modes = {layer: layer.training for layer in module.modules()}
    try:
        module.eval()
        with torch.no_grad():
            module(probe.reshape(1, *record_shape))
    finally:
        for layer, mode in modes.items():
            layer.training = mode
        for handle in handles:
            handle.remove()
    return seen


@contextmanager
def changed_inputs(
    module: torch.nn.Module,
    layers: Sequence[str],
    change: Callable[[torch.Tensor], torch.Tensor],
) -> Iterator[None]:
    """Apply ``change`` to the inputs of ``layers`` inside this context."""
    handles = [
        module.get_submodule(name).register_forward_pre_hook(
            lambda _, inputs: (change(inputs[0]), *inputs[1:])
        )
        for name in layers
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
