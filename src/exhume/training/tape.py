"""The random numbers of training steps: dropout in the network, augmentation of the records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Tape:
    """PyTorch's random stream as a training's steps draw from it, in their order.

    It begins at ``torch.manual_seed(seed)``. If a step is repeated, it draws the same numbers
    again. A new step can be taken only after the one before it.
    """

    def __init__(self, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._states = [torch.get_rng_state()]

    @contextmanager
    def at(self, step: int) -> Iterator[None]:
        """Let the code inside draw the numbers of ``step``; the caller's stream is restored."""
        if step >= len(self._states):
            raise ValueError(f"step {step} draws after step {len(self._states) - 1}, which is open")
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._states[step])
            yield
            if step + 1 == len(self._states):
                self._states.append(torch.get_rng_state())
