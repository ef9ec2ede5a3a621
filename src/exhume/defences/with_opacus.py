"""DP-SGD through Opacus: the same private training by an independent implementation.

Opacus is an extra (``pip install 'exhume[opacus]'``). Its guarantee must agree with Exhume's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.defences.dp_sgd import DPSGD
from exhume.protocol.arrays import Array
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.training.federated import Federated

if TYPE_CHECKING:
    import torch

    from exhume.derivatives.objective import Objective

_INSTALL = "pip install 'exhume[opacus]'"


@dataclass(frozen=True, eq=False)
class Session:
    """Opacus's module, optimiser and accountant, ready for the first round."""

    objective: Objective
    module: Any
    optimiser: Any
    accountant: Any

    def gradient(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Compute the per-record gradients of ``x`` (n, *record shape) in the module."""
        import torch

        self.optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.module(x), y, reduction="mean")
        loss.backward()  # type: ignore[no-untyped-call]

    def parameters(self) -> dict[str, Array]:
        """Return the current parameters by name."""
        inner = self.module._module.named_parameters()
        return {name: value.detach().cpu().numpy().copy() for name, value in inner}


def applies(mechanism: Mechanism) -> bool:
    """Tell whether Opacus does the same as a mechanism: DP-SGD alone."""
    return isinstance(mechanism, DPSGD)


def train_with_opacus(
    settings: Federated,
    private: DPSGD,
    data: Records,
    order: np.random.Generator,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Return the parameters after all rounds of DP-SGD by Opacus, as ``Federated.train`` does.

    Opacus draws the batches (Poisson sampling) and the noise from its own generators, seeded from
    ``order`` and ``rng``. The initial parameters are drawn from ``order``, as in
    ``Federated.train``.
    """
    _require_opacus()
    import torch
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    with quiet():
        session = opacus_session(settings, private, len(data), order, rng)
        rate = settings.records / len(data)
        # In Opacus, the probability of a record per round is the sampler's rate.
        sampler = UniformWithReplacementSampler(
            num_samples=len(data),
            sample_rate=rate,
            generator=_generator(order),
            steps=settings.rounds,
        )
        objective, step = session.objective, private.plain()
        x = objective.tensor(data.x)
        y = objective.responses(step.responses(data.labels))
        for chosen in sampler:
            index = torch.tensor(chosen, dtype=torch.long)
            session.gradient(x[index], y[index])
            session.optimiser.step()
            session.accountant.step(noise_multiplier=private.noise_multiplier, sample_rate=rate)
    found = session.parameters()
    if not all(np.isfinite(values).all() for values in found.values()):
        raise DivergedError(f"the parameters went to infinity: {settings.optimiser.describe()}")
    return found


def opacus_session(
    settings: Federated,
    private: DPSGD,
    records: int,
    order: np.random.Generator,
    rng: np.random.Generator,
) -> Session:
    """Return Opacus's part of a training on ``records`` records."""
    _require_opacus()
    import torch
    from opacus.accountants import RDPAccountant
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    step = private.plain()
    if step.classes is None:
        raise InputError("training with Opacus needs classes; train a regression without it")
    if not settings.poisson:
        raise InputError("training with Opacus needs Poisson sampling: set poisson = true")
    if records < settings.records:
        raise InputError(f"a round needs {settings.records} records, but there are {records}")
    objective = step.objective()
    start = objective.unpack(step.theta(objective, order))
    inner = objective.module
    for layer in inner.modules():
        # Opacus reads layers in training mode; dropout stays off.
        if next(layer.parameters(recurse=False), None) is not None:
            layer.train()
    with torch.no_grad():
        for name, values in inner.named_parameters():
            values.copy_(start[name])
    module = GradSampleModule(inner)
    optimiser = DPOptimizer(
        torch.optim.SGD(
            module.parameters(),
            settings.optimiser.learning_rate,
            momentum=settings.optimiser.momentum,
            weight_decay=settings.optimiser.weight_decay,
        ),
        noise_multiplier=private.noise_multiplier,
        max_grad_norm=private.norm,
        expected_batch_size=settings.records,
        generator=_generator(rng),
    )
    return Session(objective, module, optimiser, RDPAccountant())


def _require_opacus() -> None:
    if find_spec("opacus") is None:
        raise InputError(f"path = 'opacus' needs Opacus, which is not installed: {_INSTALL}")


def _generator(rng: np.random.Generator) -> torch.Generator:
    import torch

    return torch.Generator().manual_seed(int(rng.integers(2**63)))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of Opacus and its hooks: they concern features that are not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
