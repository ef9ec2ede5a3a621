"""Updates of federated learning on disk: what a loop leaves, and ``exhume audit FOLDER`` reads.

A folder per update: ``before.safetensors`` (or one that the clients of a round share),
``after.safetensors``, ``truth.safetensors`` where the records are known, and ``audit.toml``. It
holds private records: only its owner can read it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.durable import make_folder, write_quickly

BEFORE, AFTER, TRUTH, AUDIT = (
    *("before.safetensors", "after.safetensors", "truth.safetensors"),
    "audit.toml",
)


@dataclass(frozen=True)
class UpdateFacts:
    """What is known of an update: how the client trained, and what protects it.

    ``learning_rate`` is None where nobody told it: then the update can't be attacked. ``defences``
    are tables of the audit's file, the first one innermost.
    """

    records: int
    classes: int
    record_shape: tuple[int, ...]
    value_range: tuple[float, float] | None
    learning_rate: float | None
    epochs: int = 1
    batch_size: int | None = None
    momentum: float = 0.0
    defences: tuple[str, ...] = ()


def write_update(
    folder: Path,
    facts: UpdateFacts,
    after: Mapping[str, Array],
    before: Path,
    model: Path,
    similar: Path | None,
    *,
    truth: Records | None,
) -> None:
    """Write one update, its ``audit.toml`` last; OSError or InputError, and nothing overwritten.

    ``before``, ``model`` and ``similar`` are files that are there already.
    """
    if (folder / AFTER).exists():
        raise InputError(f"{folder} holds an update already: choose another folder for this run")
    make_folder(folder)
    write_named(folder / AFTER, after)
    if truth is not None:
        write_named(folder / TRUTH, {"x": truth.x, "y": truth.labels})
    near = {"before": before, "model": model, "similar": similar}
    places = {key: os.path.relpath(path, folder) for key, path in near.items() if path is not None}
    write_quickly(folder / AUDIT, _audit(facts, places, truth is not None).encode())


def write_named(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write named arrays as safetensors, all or nothing; OSError if it fails."""
    from safetensors.numpy import save

    write_quickly(path, save({name: np.asarray(a, order="C") for name, a in arrays.items()}))


def _audit(facts: UpdateFacts, places: Mapping[str, str], known: bool) -> str:
    """Return the audit of an update as TOML."""
    training = {"learning_rate": facts.learning_rate, "epochs": facts.epochs}
    training |= {"batch_size": facts.batch_size, "momentum": facts.momentum or None}
    told = ", ".join(f"{key} = {json.dumps(v)}" for key, v in training.items() if v is not None)
    lines = [
        "[release]",
        'kind = "update"',
        f"before = {json.dumps(places['before'])}",
        f'file = "{AFTER}"',
        f"model = {json.dumps(places['model'])}",
        f"batch_size = {facts.records}",
        f"classes = {facts.classes}",
        f"defences = [{', '.join(facts.defences)}]" if facts.defences else "",
        "\n[knowledge]",
        f"record_shape = {list(facts.record_shape)}",
        "" if facts.value_range is None else f"value_range = {list(map(float, facts.value_range))}",
        f"shadow_targets = {json.dumps(places['similar'])}" if "similar" in places else "",
        "order = false" if facts.batch_size is not None else "",
        f"training = {{ {told} }}" if facts.learning_rate is not None else _UNTOLD,
        "\n[audit]",
        f'truth = "{TRUTH}"' if known else "",
        f"similar = {json.dumps(places['similar'])}" if known and "similar" in places else "",
    ]
    return "\n".join(line for line in lines if line) + "\n"


_UNTOLD = "# training = { learning_rate = …, epochs = … }  # nobody told it: fill it in"
