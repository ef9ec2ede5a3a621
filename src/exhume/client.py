"""The first optimiser steps of a training, recorded as the update that a federated client sends.

What the callbacks of Lightning (``exhume.lightning``) and of Hugging Face's Trainer
(``exhume.huggingface``) share. A folder holds the weights before and after the steps, the records
of their batches, later records to compare with, the model as a program, and ``audit.toml``.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exhume.data.updates import AUDIT, BEFORE, UpdateFacts, write_named, write_update
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.durable import make_folder, write_bytes

if TYPE_CHECKING:
    from torch import Tensor, nn

MODEL, SIMILAR = "model.pt2", "similar.safetensors"
_SAME = 1e-3
"""Sums in another order differ by less of the largest change; another rule by far more."""


class ClientSteps:
    """Records the first ``steps`` optimiser steps; what can't be recorded is said in one line.

    The audit describes plain gradient descent on the mean cross-entropy. So the steps are taken
    again on the recorded batches: if they do not end at the recorded weights, the files stay, and
    the audit's file leaves out how the client trained.
    """

    def __init__(
        self,
        out: str | Path,
        steps: int = 1,
        value_range: tuple[float, float] | None = None,
        similar: int = 200,
    ) -> None:
        if steps < 1 or similar < 0:
            raise InputError(f"steps must be at least 1, similar at least 0: {steps}, {similar}")
        self.folder, self.steps, self.value_range = Path(out), steps, value_range
        self.similar, self.problem = similar, ""
        self._module: Any = None
        self._limit: float | None = None
        self._begun: dict[str, Array] = {}
        self._ended: dict[str, Array] = {}
        self._batches: list[list[Records]] = [[]]
        self._later: list[Records] = []
        self._rules: list[tuple[str, float, float]] = []

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something for the recording; where that fails, say so once and record no more."""
        if self.problem:
            return
        try:
            action()
        except Exception as error:  # whatever happens to the recording, training must go on
            self.problem = " ".join(str(error).split())[:300] or type(error).__name__
            self._say(f"not recorded, training goes on: {self.problem}")

    def begin(self, module: nn.Module, limit: float | None = None) -> None:
        """Note the weights before the first step; ``module`` maps records to scores.

        ``limit`` is the length that gradients are clipped to, if they are (``clip_grad_norm_``).
        """
        if any((self.folder / name).exists() for name in (AUDIT, BEFORE)):
            raise InputError("it holds a recording already: choose another folder for this run")
        self._module, self._begun, self._limit = module, _named(module), limit
        atexit.register(self.close)

    def saw(self, x: Tensor, y: Tensor) -> None:
        """Note a batch that a gradient is computed on."""
        if self._ended and sum(map(len, self._later)) >= self.similar:
            return
        if not x.is_floating_point():
            raise InputError(f"the records are {x.dtype}: only records of numbers are attacked")
        records = Records(_array(x), _array(y))
        if self._ended:
            self._later.append(records)
        else:
            self._batches[-1].append(records)

    def stepping(self, optimizer: Any) -> None:
        """Note by which rule the optimiser is about to step."""
        if not self._ended:
            inner = getattr(optimizer, "optimizer", optimizer)
            groups = inner.param_groups
            rate, momentum = float(groups[0]["lr"]), float(groups[0].get("momentum") or 0.0)
            self._rules.append((type(inner).__name__, rate, momentum))

    def stepped(self) -> None:
        """Note that the optimiser has stepped."""
        if self._ended:
            return
        if len(self._batches) < self.steps:
            self._batches.append([])
        else:
            self._ended = _named(self._module)

    def close(self) -> None:
        """Write what was recorded. Safe to call twice."""
        atexit.unregister(self.close)
        if self._begun and not self.problem:
            self.attempt(self._write)
        self._begun, self._module = {}, None

    def _write(self) -> None:
        if not self._ended:
            raise InputError(f"training took fewer than {self.steps} optimiser steps")
        steps = [_joined(parts) for parts in self._batches]
        truth = _joined(steps)
        make_folder(self.folder)
        write_named(self.folder / BEFORE, self._begun)
        outputs = self._exported(truth)
        write_update(
            self.folder,
            self._facts(steps, outputs),
            self._ended,
            self.folder / BEFORE,
            self.folder / MODEL,
            self._compared(truth),
            truth=truth,
        )

    def _facts(self, steps: list[Records], outputs: int) -> UpdateFacts:
        name, rate, momentum = self._rules[0]
        records, size = sum(map(len, steps)), len(steps[0])
        told = self._repeated(steps, rate, momentum)
        count = f"{self.steps} step{'s' if self.steps > 1 else ''}"
        if not told:
            self._say(
                f"recorded, but it can't be attacked: the weights after {count} of {name} "
                "are not those of plain gradient descent on the mean cross-entropy (SGD, "
                "one rate, whole batches, no weight decay, no dropout, clipping in one step alone)"
            )
        return UpdateFacts(
            records,
            outputs,
            steps[0].record_shape,
            self.value_range,
            rate if told else None,
            batch_size=size if len(steps) > 1 else None,
            momentum=momentum,
            defences=self._clipped(rate) if told and len(steps) == 1 else (),
        )

    def _clipped(self, rate: float) -> tuple[str, ...]:
        """Return what clipping does to the change of one step, as tables of the audit's file."""
        if self._limit is None:
            return ()
        return (f'{{ name = "clipping", norm = {rate * self._limit} }}',)

    def _repeated(self, steps: list[Records], rate: float, momentum: float) -> bool:
        """Whether the steps, taken again as the audit describes them, end at the same weights."""
        import torch

        if len({len(step) for step in steps}) > 1 or steps[0].labels.dtype.kind == "f":
            return False
        held = {name: torch.tensor(array) for name, array in self._begun.items()}
        places = dict(self._module.named_parameters())
        device = next(iter(places.values())).device
        state = {name: tensor.to(device) for name, tensor in held.items()}
        speed = {name: torch.zeros_like(state[name]) for name in places}
        for step in steps:
            at = {name: state[name].detach().requires_grad_(True) for name in places}
            x, y = torch.tensor(step.x, device=device), torch.tensor(step.labels, device=device)
            scores = torch.func.functional_call(self._module, {**state, **at}, (x,))
            loss = torch.nn.functional.cross_entropy(scores, y.long())
            slopes = torch.autograd.grad(loss, list(at.values()))
            length = float(torch.stack([slope.square().sum() for slope in slopes]).sum().sqrt())
            share = 1.0 if self._limit is None else min(1.0, self._limit / max(length, 1e-30))
            if share < 1.0 and len(steps) > 1:
                return False  # of several steps, only what is sent at the end can be clipped
            for name, slope in zip(at, slopes, strict=True):
                speed[name] = momentum * speed[name] + share * slope
                state[name] = at[name].detach() - rate * speed[name]
        moved = {n: self._ended[n] - self._begun[n] for n in places}
        largest = max(float(np.abs(change).max(initial=0.0)) for change in moved.values())
        gaps = (np.abs(_array(state[name]) - self._ended[name]).max(initial=0.0) for name in places)
        return largest > 0.0 and max(map(float, gaps)) <= _SAME * largest

    def _exported(self, truth: Records) -> int:
        """Write the model as a program, and return how many scores it gives."""
        import copy

        import torch

        from exhume.models.exported import program_of

        plain = copy.deepcopy(self._module).cpu().eval()
        x = torch.tensor(np.repeat(truth.x[:1], 2, axis=0))
        with torch.no_grad():
            outputs = int(plain(x).shape[1])
        write_bytes(self.folder / MODEL, program_of(plain, x))
        return outputs

    def _compared(self, truth: Records) -> Path | None:
        """Write records that are like those of the update and not among them."""
        from exhume.data import without_copies

        found = without_copies(_joined(self._later), truth) if self._later else truth.take([])
        if not len(found):
            self._say("no later batch has other records: name some in audit.toml as shadow_targets")
            return None
        found = found.take(slice(0, self.similar))
        write_named(self.folder / SIMILAR, {"x": found.x, "y": found.labels})
        return self.folder / SIMILAR

    def _say(self, text: str) -> None:
        print(f"exhume: {self.folder}: {text}", file=sys.stderr)


def _joined(parts: list[Records]) -> Records:
    if not parts:
        raise InputError("no batch was seen before an optimiser step")
    x, y = ([getattr(part, name) for part in parts] for name in ("x", "labels"))
    return Records(np.concatenate(x), np.concatenate(y))


def _named(module: nn.Module) -> dict[str, Array]:
    return {name: _array(tensor) for name, tensor in module.state_dict().items()}


def _array(tensor: Tensor) -> Array:
    found: Array = tensor.detach().cpu().numpy().copy()
    return found
