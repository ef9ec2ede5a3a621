"""Defences inside a gradient step: they change what the gradient is taken of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from exhume.defences.base import Defence, require_positive
from exhume.errors import InputError
from exhume.records import Records
from exhume.training.gradient import Step

if TYPE_CHECKING:
    import dp_accounting
    import torch

    from exhume.training.objective import Objective


class StepDefence(Defence, Step):
    """A defence around a step that is a step itself: local steps may be taken with it."""

    inner: Step


@dataclass(frozen=True, eq=False)
class MixUp(StepDefence):
    """Takes the gradient on λx + (1−λ)x′ with the labels in the same shares (Zhang et al. 2017).

    x′ is the next record of the batch; λ is drawn from Beta(``alpha``, ``alpha``) once a step and
    not told.
    """

    inner: Step
    alpha: float = 1.0
    name: ClassVar[str] = "mixup"

    def __post_init__(self) -> None:
        require_positive("alpha", self.alpha)

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the gradient on the mixtures."""
        if data.weight is not None:
            raise InputError("MixUp takes records that count alike in the loss")
        share = float(rng.beta(self.alpha, self.alpha))
        x = np.asarray(data.x)
        mixed = share * x + (1.0 - share) * np.roll(x, -1, axis=0)
        own, other = Records(mixed, data.labels), Records(mixed, np.roll(data.labels, -1))
        parts = [(share, own), (1.0 - share, other)]
        found = [s * self.inner.gradient(objective, theta, part, rng) for s, part in parts]
        return found[0] + found[1]

    def describe(self) -> str:
        """Say what is done."""
        return f"MixUp with alpha {self.alpha:g}"


@dataclass(frozen=True, eq=False)
class ActivationDropout(StepDefence):
    """Drops the inputs of fully connected layers at random, each with probability ``rate``.

    What is kept is scaled up by 1/(1−rate). A layer that the record itself goes into is left alone.
    Around clipped records, those of a step lose the same inputs.
    """

    inner: Step
    rate: float
    name: ClassVar[str] = "activation-dropout"

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise InputError(f"rate must be between 0 and 1, got {self.rate}")
        if not dropped_layers(self.plain().network.module(), self.plain().network.record_shape):
            raise InputError(
                "activation dropout needs a fully connected layer behind another one; "
                f"{self.plain().network.describe()} has none"
            )

    def gradient(
        self, objective: Objective, theta: torch.Tensor, data: Records, rng: np.random.Generator
    ) -> torch.Tensor:
        """Return the gradient with some inputs dropped."""
        import torch

        shape = self.plain().network.record_shape

        def dropped(values: torch.Tensor) -> torch.Tensor:
            kept = rng.random(tuple(values.shape)) >= self.rate
            mask = torch.tensor(kept, device=values.device)
            return values * mask / (1.0 - self.rate)

        with changed_inputs(objective.module, shape, dropped):
            return self.inner.gradient(objective, theta, data, rng)

    def event(self, records: int) -> dp_accounting.DpEvent:
        """Return the inner event: what is dropped does not depend on the data."""
        return self.inner.event(records)

    def sensitivity(self, records: int) -> float | None:
        """Return the inner one, which holds whatever is dropped."""
        return self.inner.sensitivity(records)

    def describe(self) -> str:
        """Say what is done."""
        return f"dropout of {self.rate:g} before fully connected layers"


def dropped_layers(module: torch.nn.Module, record_shape: tuple[int, ...]) -> list[str]:
    """Return the fully connected layers whose input is no record, in the order of the module."""
    import torch

    linear = [n for n, m in module.named_modules() if isinstance(m, torch.nn.Linear)]
    seen: list[str] = []

    def note(name: str) -> Any:
        return module.get_submodule(name).register_forward_pre_hook(
            lambda _, inputs: seen.append(name) if not _is_record(inputs[0]) else None
        )

    # Told apart by what goes in: a record is a leaf, whatever reshapes it.
    def _is_record(values: torch.Tensor) -> bool:
        return bool(torch.equal(values.detach().flatten(), probe.flatten()))

    weight = next(module.parameters())
    probe = torch.linspace(0.1, 0.9, int(np.prod(record_shape))).to(weight)
    handles = [note(name) for name in linear]
    training = module.training
    try:
        module.eval()
        with torch.no_grad():
            module(probe.reshape(1, *record_shape))
    finally:
        module.train(training)
        for handle in handles:
            handle.remove()
    return seen


@contextmanager
def changed_inputs(
    module: torch.nn.Module, record_shape: tuple[int, ...], change: Any
) -> Iterator[None]:
    """Have ``change`` made to the inputs of the layers that are dropped, while it lasts."""
    handles = [
        module.get_submodule(name).register_forward_pre_hook(
            lambda _, inputs: (change(inputs[0]), *inputs[1:])
        )
        for name in dropped_layers(module, record_shape)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
