"""A briefly trained network: the state of a federated model when its first gradients are sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from exhume.models.base import Network
from exhume.models.initialise import Initialisation, Scheme
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.protocol.seeds import stream


@dataclass(frozen=True, eq=False)
class State:
    """Parameters and buffers (running statistics) of a network, each by name."""

    parameters: dict[str, Array] = field(repr=False)
    buffers: dict[str, Array] = field(repr=False)
    accuracy: float
    """The share of the last 500 training records that it classified correctly when it saw them."""


def train_a_little(
    network: Network,
    records: Records,
    steps: int,
    *,
    batch_size: int = 64,
    learning_rate: float = 0.05,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    seed: int = 0,
) -> State:
    """Return the state after ``steps`` steps of SGD on cross-entropy; labels are class indices.

    It depends only on the seed: He initialisation, batches drawn with replacement, no augmentation.
    ``steps=0`` gives the initialisation. Gradient matching depends on this state more than on the
    attack (Geiping et al. 2020; Huang et al. 2021).
    """
    import torch

    if steps < 0 or batch_size < 1 or not len(records):
        raise InputError(f"steps >= 0, batch_size >= 1 and records are needed, got {steps}")
    rng = stream(seed, "train-a-little")
    # Modules draw from the global random stream, so its state is restored.
    with torch.random.fork_rng(devices=[]):
        module = network.module().train()
        drawn = Initialisation(Scheme.HE, seed).draw(network, rng)
    with torch.no_grad():
        for name, values in module.named_parameters():
            values.copy_(torch.tensor(drawn[name]))
    optimiser = torch.optim.SGD(
        module.parameters(), learning_rate, momentum=momentum, weight_decay=weight_decay
    )
    right: list[bool] = []
    for _ in range(steps):
        chosen = rng.integers(0, len(records), batch_size)
        x = torch.tensor(np.asarray(records.x[chosen], dtype=np.float32))
        y = torch.tensor(np.asarray(records.labels[chosen], dtype=np.int64))
        scores = module(x)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(scores, y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        right += (scores.argmax(dim=1) == y).tolist()
    if not all(bool(p.isfinite().all()) for p in module.parameters()):
        raise InputError(f"training diverged; use a learning rate below {learning_rate}")
    return State(
        {n: p.detach().numpy().copy() for n, p in module.named_parameters()},
        {n: b.detach().numpy().copy() for n, b in module.named_buffers()},
        float(np.mean(right[-500:])) if right else 0.0,
    )
