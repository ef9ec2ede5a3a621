"""What is known of the clients' training, and how an audit's file describes it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from exhume.data.updates import UpdateFacts
from exhume.models.base import misfits, under_own_names
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.runtime.durable import write_quickly

_HARMLESS = ("KeepUpdates", "arrays_size_mod", "message_size_mod", "secagg_mod", "secaggplus_mod")


@dataclass(frozen=True, eq=False)
class LocalTraining:
    """What is known of the clients' training: the model, how they train, what protects them.

    ``learning_rate`` is a number, or the key of the round's config that has it. Clients take
    ``epochs`` of gradient descent on batches of ``batch_size``, or on all of their records at once.
    ``mods`` are those of the client's app. ``LocalDpMod`` and ``fixedclipping_mod`` are understood
    as defences; another one that changes what is sent is refused.
    """

    model: Any
    record_shape: tuple[int, ...]
    learning_rate: float | str | None = None
    epochs: int = 1
    batch_size: int | None = None
    momentum: float = 0.0
    value_range: tuple[float, float] | None = None
    mods: Sequence[Any] = ()

    def named(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return arrays under the names of the model's state dict; InputError if they don't fit.

        Flower's records have those names, or numbers where an app sends a list.
        """
        shapes = {name: tuple(p.shape) for name, p in self.model.named_parameters()}
        own = list(self.model.state_dict())
        if all(name.isdigit() for name in arrays):
            names = next((n for n in (own, list(shapes)) if len(n) == len(arrays)), None)
            if names is None:
                raise InputError(
                    f"{len(arrays)} arrays without names can't be those of the model's state dict, "
                    f"which has {len(own)}"
                )
            arrays = dict(zip(names, arrays.values(), strict=True))
        found = under_own_names(own, arrays)
        if reasons := misfits(shapes, found, more=True):
            raise InputError(f"what was sent is not the model's state dict: {reasons[0]}")
        return {name: found[name] for name in own if name in found}

    def facts(self, records: int, config: Mapping[str, Any]) -> UpdateFacts:
        """Return what is known of one client's update, in a round with this config."""
        rate = self.learning_rate
        if isinstance(rate, str):
            if rate not in config:
                raise InputError(f"the round's config has no {rate!r}, the learning rate")
            rate = float(config[rate])
        return UpdateFacts(
            *(records, self._outputs, self.record_shape, self.value_range, rate, self.epochs),
            *(self.batch_size, self.momentum),
            tuple(table for mod in self.mods for table in _defences(mod, config)),
        )

    @cached_property
    def _outputs(self) -> int:
        import torch

        with torch.no_grad():
            plain = copy.deepcopy(self.model).cpu().eval()
            return int(plain(torch.zeros(2, *self.record_shape)).shape[1])

    def save(self, path: Path) -> None:
        """Write the model as a program, so that an audit needs none of the user's code."""
        import torch

        from exhume.models.exported import program_of

        if not path.exists():
            plain = copy.deepcopy(self.model).cpu()
            write_quickly(path, program_of(plain, torch.zeros(2, *self.record_shape)))


def _defences(mod: Any, config: Mapping[str, Any]) -> list[str]:
    """Return what a mod does to an update, as tables of an audit's file."""
    name = getattr(mod, "__name__", type(mod).__name__)
    if name == "LocalDpMod":
        noise = mod.sensitivity * math.sqrt(2 * math.log(1.25 / mod.delta)) / mod.epsilon
        clipping = f'{{ name = "clipping", norm = {float(mod.clipping_norm)} }}'
        return [clipping, f'{{ name = "noise", size = {float(noise)} }}']
    if name == "fixedclipping_mod" and "clipping_norm" in config:
        return [f'{{ name = "clipping", norm = {float(config["clipping_norm"])} }}']
    if name not in _HARMLESS:
        raise InputError(f"the mod {name} is not understood: what it does to updates is not known")
    return []
