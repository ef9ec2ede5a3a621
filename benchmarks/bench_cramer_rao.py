"""The Cramér–Rao floor of an MLP's gradient: full Jacobian against matrix-free, in one run.

For each size both methods compute the same floor. The table shows the time ratio of the exact to
the matrix-free method, the memory of both, the error of the estimate, and its own error estimate.
The last rows release only the last layer's gradient, whose Jacobian is badly conditioned.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from exhume.bounds.floors import Floor, Probing, cramer_rao

# Inputs, hidden units, index of the first released parameter.
SIZES = ((64, 64, 0), (256, 64, 0), (784, 64, 0), (64, 72, 2), (256, 288, 2))
CLASSES = 10
PROBING = Probing(probes=16, steps=100)
NOISE = 0.01

Release = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def mlp_gradient(inputs: int, width: int, first: int) -> Release:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(inputs, width), torch.nn.ELU(), torch.nn.Linear(width, CLASSES)
    ).double()

    def release(record: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = torch.nn.functional.cross_entropy(network(record[None]), torch.tensor([3]))
        return torch.autograd.grad(loss, list(network.parameters())[first:], create_graph=True)

    return release


def timed(release: Release, record: torch.Tensor, memory: int) -> tuple[Floor, float]:
    start = time.perf_counter()
    floor = cramer_rao(release, record, NOISE, memory_limit=memory, probing=PROBING)
    return floor, time.perf_counter() - start


def compare(inputs: int, width: int, first: int) -> str:
    release = mlp_gradient(inputs, width, first)
    record = torch.rand(inputs, dtype=torch.float64)
    outputs = sum(part.numel() for part in release(record))
    whole = outputs * inputs * 8
    # Enough for every probe at once, but too little for the Jacobian.
    steps = min(PROBING.steps, inputs)
    room = PROBING.probes * 8 * (steps * inputs + steps**2 + 4 * (outputs + inputs))
    room = min(room, 3 * whole - 1)
    exact, exact_seconds = timed(release, record, 3 * whole)
    free, free_seconds = timed(release, record, room)
    assert exact.standard_error is None
    assert free.standard_error is not None
    assert free.shortfall is not None
    assert math.isfinite(exact.value)
    return (
        f"{inputs:6d} {outputs:7d} {exact_seconds:7.2f} {free_seconds:7.2f} "
        f"{exact_seconds / free_seconds:6.2f} {3 * whole / 1e6:6.0f} {room / 1e6:6.0f} "
        f"{100 * (free.value / exact.value - 1):+8.2f} "
        f"{100 * free.standard_error / exact.value:6.2f} {100 * free.shortfall:9.3f}"
    )


def main() -> None:
    torch.set_num_threads(1)
    compare(8, 64, 0)  # the first call pays for imports
    print(f"{PROBING.probes} probes of at most {PROBING.steps} steps; one thread, float64")
    print("              exact    free  exact/  exact   free     off      ±   expected")
    print("inputs outputs      s       s   free     MB     MB       %      %  too low %")
    for inputs, width, first in SIZES:
        print(compare(inputs, width, first), flush=True)


if __name__ == "__main__":
    main()
