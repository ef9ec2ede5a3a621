"""DP training by Opacus, recorded as it runs: one line in a user's own script.

    recorder = exhume.opacus.watch(privacy_engine, model, optimizer, data_loader)

and after training ``exhume audit exhume-recording`` gives the attack and the bound in one report.
"""

from __future__ import annotations

import atexit
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from exhume.data.array_files import write_arrays
from exhume.data.recordings import (
    END,
    MODEL,
    RecordingFacts,
    StepRecord,
    start_recording,
    write_facts,
)
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.durable import write_bytes

Loss = Literal["cross-entropy", "squared-error"]


def watch(
    privacy_engine: Any,
    model: Any,
    optimizer: Any,
    data_loader: Any,
    *,
    out: str | Path = "exhume-recording",
    candidates: Any = None,
    loss: Loss = "cross-entropy",
) -> Recorder:
    """Record the steps of a private training; call it after ``make_private``, before training.

    The four are what ``PrivacyEngine.make_private`` was called on and returned. ``out`` is a new
    folder, readable by its owner only; it gets the records, the model's architecture and every
    step. ``candidates`` is a data set like the training set that was not trained on: an audit
    draws its decoys there, and from the training set without one. What can't be recorded is said
    in one line, and training goes on.
    """
    recorder = Recorder(Path(out), privacy_engine, model, optimizer)
    recorder.attempt(lambda: recorder.start(data_loader, candidates, loss))
    return recorder


class Recorder:
    """Writes each step's file right before the optimiser takes the step; ``problem`` if it fails.

    It hangs on Opacus' own step hook, behind the accountant's, and on the sampler.
    """

    def __init__(self, folder: Path, engine: Any, model: Any, optimizer: Any) -> None:
        self.folder, self.engine, self.optimizer = folder, engine, optimizer
        self.module = getattr(model, "_module", model)
        self.problem = ""
        self.steps = 0
        self.rate = 0.0
        self.facts: RecordingFacts | None = None
        self._batches: deque[Array] = deque()

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something for the recording; where that fails, say so once and record no more."""
        if self.problem:
            return
        try:
            action()
        except Exception as error:  # whatever happens to the recording, training must go on
            self.problem = " ".join(str(error).split())[:300] or type(error).__name__
            kept = f"; the {self.steps} steps recorded so far are kept" if self.steps else ""
            self._say(f"not recorded any further, training goes on: {self.problem}{kept}")

    def start(self, data_loader: Any, candidates: Any, loss: Loss) -> None:
        """Write what is known before the first step, and hang on to the steps."""
        records = _records(data_loader.dataset)
        self.rate, sampling, refused = _sampling(data_loader, len(records))
        if not self.optimizer.noise_multiplier:
            refused = "the noise multiplier is 0"
        self.facts = RecordingFacts(
            "opacus",
            len(records),
            _outputs(self.module, records),
            loss,
            _clipping(self.optimizer),
            sampling,
            refused,
            obstacle=self._obstacle(),
        )
        others = None if candidates is None else _records(candidates)
        start_recording(self.folder, self.facts, records, others)
        if refused:
            self._say(f"recorded, but no guarantee can be claimed: {refused}")
        self._export(records)
        _listen(data_loader.batch_sampler, self._batches)
        before = self.optimizer.step_hook

        def hook(optimizer: Any) -> None:
            if before is not None:
                before(optimizer)
            self.attempt(self._step)

        self.optimizer.attach_step_hook(hook)
        atexit.register(self.close)

    def close(self) -> None:
        """Write where training ended, and the accountant's history. Safe to call twice."""
        atexit.unregister(self.close)
        if self.facts is not None and self.steps:
            self.attempt(self._end)

    def _end(self) -> None:
        assert self.facts is not None
        write_arrays(self.folder / END, self._named(lambda parameter: parameter))
        history = tuple((float(s), float(q), int(n)) for s, q, n in self.engine.accountant.history)
        write_facts(self.folder, replace(self.facts, history=history))

    def _step(self) -> None:
        optimizer = self.optimizer
        if optimizer.accumulated_iterations != 1:
            raise InputError(
                "gradients of several batches are accumulated into one step; use Opacus' "
                "BatchMemoryManager, which keeps a step's batch whole"
            )
        if not self._batches:
            raise InputError("a step was taken on a batch that is not from the watched data_loader")
        mean = optimizer.loss_reduction == "mean"
        norm = float(optimizer.max_grad_norm)
        norms = getattr(optimizer, "max_grad_norms", [norm])
        StepRecord(
            self.steps,
            self._named(lambda parameter: parameter),
            self._named(lambda parameter: parameter.grad),
            np.array([float(one) for one in norms]),
            norm * _multiplier(optimizer),
            float(optimizer.noise_multiplier),
            float(optimizer.expected_batch_size) if mean else 1.0,
            self.rate,
            self._batches.popleft(),
        ).write(self.folder)
        self.steps += 1

    def _named(self, part: Callable[[Any], Any]) -> dict[str, Array]:
        return {
            name: part(parameter).detach().cpu().numpy().copy()
            for name, parameter in self.module.named_parameters()
        }

    def _obstacle(self) -> str:
        """Say what keeps a step from being a sum of each record's own clipped gradient."""
        from torch import nn

        frozen = [n for n, p in self.module.named_parameters() if not p.requires_grad]
        if frozen:
            return f"{len(frozen)} parameters are not trained, such as {frozen[0]}"
        if any(isinstance(m, nn.Dropout) and m.p > 0 for m in self.module.modules()):
            return "dropout changes each record's gradient in a way that is not recorded"
        return ""

    def _export(self, records: Records) -> None:
        """Write the architecture as a program, so that an audit needs none of the user's code."""
        import copy

        import torch

        from exhume.models.exported import program_of

        assert self.facts is not None
        plain = copy.deepcopy(_without_hooks(self.module)).cpu()
        try:
            write_bytes(self.folder / MODEL, program_of(plain, torch.tensor(records.x[:2])))
        except InputError as error:
            reason = str(error)
            self.facts = replace(self.facts, unexported=reason)
            write_facts(self.folder, self.facts)
            self._say(f"recorded, but the model can't be exported, so not attacked: {reason}")

    def _say(self, text: str) -> None:
        print(f"exhume: {self.folder}: {text}", file=sys.stderr)


def _without_hooks(module: Any) -> Any:
    """Return a copy of a module without the hooks and the attributes that Opacus left on it."""
    import copy

    saved = []
    for part in module.modules():
        saved.append((part, dict(part._forward_hooks), dict(part._backward_hooks)))
        part._forward_hooks.clear()
        part._backward_hooks.clear()
    gradients = [(p, p.__dict__.copy()) for p in module.parameters()]
    for parameter, _ in gradients:
        parameter.__dict__.clear()
    try:
        return copy.deepcopy(module)
    finally:
        for part, forward, backward in saved:
            part._forward_hooks.update(forward)
            part._backward_hooks.update(backward)
        for parameter, own in gradients:
            parameter.__dict__.update(own)


def _records(dataset: Any) -> Records:
    """Read a data set of (x, y) once, in its order."""
    tensors = getattr(dataset, "tensors", None)
    if tensors is not None and len(tensors) == 2:
        x, y = (np.array(part.cpu().numpy()) for part in tensors)
    else:
        pairs = [dataset[index] for index in range(len(dataset))]
        x = np.stack([np.asarray(pair[0]) for pair in pairs])
        y = np.array([np.asarray(pair[1]).item() for pair in pairs])
    return Records(x, y)


def _outputs(module: Any, records: Records) -> int:
    import copy

    import torch

    plain = copy.deepcopy(_without_hooks(module)).cpu().eval()
    with torch.no_grad():
        return int(plain(torch.tensor(records.x[:2])).shape[1])


def _sampling(data_loader: Any, records: int) -> tuple[float, str, str]:
    """Return the sampling rate, the sampler's name, and why it gives no guarantee (or nothing)."""
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    sampler = data_loader.batch_sampler
    name = type(sampler).__name__
    if type(sampler) is UniformWithReplacementSampler:
        return float(sampler.sample_rate), name, ""
    size = getattr(sampler, "batch_size", None) or data_loader.batch_size or 1
    reason = (
        f"{name} does not sample by Poisson, which the accountant assumes: use the data_loader "
        "that make_private returns, with poisson_sampling=True"
    )
    if getattr(sampler, "drop_last", False):
        reason += "; it also drops the last batch, so that some records never take part"
    return min(1.0, size / records), name, reason


def _clipping(optimizer: Any) -> str:
    from opacus.optimizers import AdaClipDPOptimizer, DPPerLayerOptimizer

    if isinstance(optimizer, AdaClipDPOptimizer):
        return "adaptive"
    return "per layer" if isinstance(optimizer, DPPerLayerOptimizer) else "flat"


def _multiplier(optimizer: Any) -> float:
    """Return the noise on the gradients over the clipping norm; adaptive clipping adds more."""
    own = float(optimizer.noise_multiplier)
    if _clipping(optimizer) != "adaptive" or own == 0.0:
        return own
    return float((own**-2 - (2.0 * optimizer.unclipped_num_std) ** -2) ** -0.5)


def _listen(sampler: Any, batches: deque[Array]) -> None:
    """Have a sampler tell whom it draws: Opacus' own memory manager splits batches after that."""
    kind = type(sampler)

    def told(self: Any) -> Iterator[Sequence[int]]:
        batches.clear()
        for batch in kind.__iter__(self):
            batches.append(np.asarray(batch, dtype=np.int64))
            yield batch

    sampler.__class__ = type(kind.__name__, (kind,), {"__iter__": told})
