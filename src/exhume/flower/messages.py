"""Flower's messages, records and parameters, read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError

_COUNT = "num-examples"


@dataclass(frozen=True, eq=False)
class Reply:
    """One client's part of a round, as the server has it."""

    node: str
    records: int
    arrays: dict[str, Array]


def reply_of(given: Any) -> list[Reply]:
    """Read a client's part of a round, if it has one: a message, or the legacy (client, result)."""
    if isinstance(given, tuple):
        client, result = given
        arrays = values(result.parameters)
        return [Reply(str(client.node_id), int(result.num_examples), arrays)]
    if given.has_error() or not (arrays := in_records(given.content)):
        return []
    count = records_in(given.content)
    if not count:
        raise InputError("a reply does not say num-examples: its update is left out")
    return [Reply(str(given.metadata.src_node_id), count, arrays)]


def in_records(content: Any) -> dict[str, Array]:
    """Return the first parameters in a message."""
    return next((values(one) for one in content.array_records.values() if len(one)), {})


def records_in(content: Any) -> int:
    """Return how many records a client says that it has; 0 where it does not."""
    said = (one for metrics in content.metric_records.values() for one in metrics.items())
    return next((int(value) for key, value in said if key.replace("_", "-") == _COUNT), 0)


def values(arrays: Any) -> dict[str, Array]:
    """Return Flower's arrays as they are now, by their keys; those of a list by number."""
    if hasattr(arrays, "tensors"):
        from flwr.common import parameters_to_ndarrays

        arrays = parameters_to_ndarrays(arrays)
    if isinstance(arrays, Sequence):
        return {str(number): np.array(array) for number, array in enumerate(arrays)}
    return {str(name): np.array(array.numpy()) for name, array in arrays.items()}
