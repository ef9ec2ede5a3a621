"""A training by Hugging Face's Trainer, recorded by a callback: its first steps, as an update.

    trainer = Trainer(..., callbacks=[exhume.huggingface.TrainerRecorder("exhume-update")])

and after training ``exhume audit exhume-update --trust-code`` attacks it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import TrainerCallback

from exhume.client import ClientSteps
from exhume.protocol.errors import InputError


class TrainerRecorder(TrainerCallback):  # type: ignore[misc]
    """Records the weights before and after the first ``steps`` optimiser steps, and their batches.

    The model takes records of numbers, such as ``pixel_values``, with ``labels``, and gives
    ``logits``. ``out`` is a new folder, readable by its owner only. Later batches are kept, up to
    ``similar`` records: an audit compares what was rebuilt with them. ``value_range`` is that of a
    record's values.
    """

    def __init__(
        self,
        out: str | Path = "exhume-update",
        *,
        steps: int = 1,
        value_range: tuple[float, float] | None = None,
        similar: int = 200,
    ) -> None:
        self.recorder = ClientSteps(out, steps, value_range, similar)
        self._listening: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Note the weights, and listen to the model; of several processes only the first does."""
        model = given["model"]
        if state.is_world_process_zero:
            key = getattr(model, "main_input_name", "pixel_values")
            limit = args.max_grad_norm or None  # 0 switches clipping off
            self.recorder.attempt(lambda: self.recorder.begin(_Scores(model, key), limit))
            self._listening = model.register_forward_pre_hook(self._hears, with_kwargs=True)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Note the rule of the step."""
        if self._listening is not None:
            self.recorder.attempt(lambda: self.recorder.stepping(given["optimizer"]))

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Note the step."""
        if self._listening is not None:
            self.recorder.attempt(self.recorder.stepped)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Write the files."""
        if self._listening is not None:
            self._listening.remove()
            self._listening = None
        self.recorder.close()

    def _hears(self, model: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        if model.training:
            key = getattr(model, "main_input_name", "pixel_values")
            self.recorder.attempt(lambda: self.recorder.saw(*_pair(named, key)))


class _Scores(nn.Module):
    """A model of the Trainer as a map from records to scores."""

    def __init__(self, model: nn.Module, key: str) -> None:
        super().__init__()
        self.module, self.key = model, key  # names in files are without the prefix "module."

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        given = self.module(**{self.key: x})
        scores: Tensor = given if isinstance(given, Tensor) else given["logits"]
        return scores


def _pair(named: dict[str, Any], key: str) -> tuple[Tensor, Tensor]:
    missing = [name for name in (key, "labels") if not isinstance(named.get(name), Tensor)]
    if missing:
        raise InputError(f"the model was called without {missing[0]}: it got {', '.join(named)}")
    return named[key], named["labels"]
