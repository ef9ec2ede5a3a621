"""A Lightning training, recorded by a callback: its first steps, as a client's update.

    trainer = lightning.Trainer(callbacks=[exhume.lightning.LightningRecorder("exhume-update")])

and after training ``exhume audit exhume-update --trust-code`` attacks it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback

from exhume.client import ClientSteps
from exhume.protocol.errors import InputError


class LightningRecorder(Callback):  # type: ignore[misc]
    """Records the weights before and after the first ``steps`` optimiser steps, and their batches.

    A batch must be (records, labels), and the module's ``forward`` must give scores. ``out`` is a
    new folder, readable by its owner only. Later batches are kept, up to ``similar`` records: an
    audit compares what was rebuilt with them. ``value_range`` is that of a record's values.
    """

    def __init__(
        self,
        out: str | Path = "exhume-update",
        *,
        steps: int = 1,
        value_range: tuple[float, float] | None = None,
        similar: int = 200,
    ) -> None:
        super().__init__()
        self.recorder = ClientSteps(out, steps, value_range, similar)
        self._taken: int | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Note the weights; of several processes only the first records."""
        if trainer.is_global_zero:
            self._taken = int(trainer.global_step)
            by_value = str(trainer.gradient_clip_algorithm).lower().endswith("value")
            limit = None if by_value else trainer.gradient_clip_val or None
            self.recorder.attempt(lambda: self.recorder.begin(pl_module, limit))

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the batch."""
        if self._taken is not None:
            self.recorder.attempt(lambda: self.recorder.saw(*_pair(batch)))

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Note the rule of the step."""
        if self._taken is not None:
            self.recorder.attempt(lambda: self.recorder.stepping(optimizer))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note a step, where the batch ended one."""
        if self._taken is not None and trainer.global_step > self._taken:
            self._taken = int(trainer.global_step)
            self.recorder.attempt(self.recorder.stepped)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the files."""
        self.recorder.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write the files of a training that was stopped."""
        self.recorder.close()


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise InputError(f"a batch must be (records, labels), got {type(batch).__name__}")
    return batch[0], batch[1]
