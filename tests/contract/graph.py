"""Objects reachable from another object: all arrays, and whether one contains a record."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterable, Iterator

import numpy as np

# These types reach the whole interpreter: nothing is passed to an attack through them.
_INTERPRETER = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType)


def reachable(*roots: object) -> Iterator[object]:
    """Yield every object reachable from the roots once, except classes and modules."""
    seen: set[int] = set()
    waiting = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _INTERPRETER):
            continue
        seen.add(id(one))
        yield one
        waiting.extend(_referents(one))


def reachable_arrays(*roots: object) -> list[np.ndarray]:
    """Return every NumPy array reachable from the roots."""
    return [one for one in reachable(*roots) if isinstance(one, np.ndarray)]


def holds_record(roots: Iterable[object], record: np.ndarray) -> str | None:
    """Return where a row equal to ``record`` (in single precision) is reachable, or None."""
    for one in reachable(*roots):
        if isinstance(one, np.ndarray) and _contains(one, record):
            return f"an array of shape {one.shape} holds the record"
        if isinstance(one, bytes | bytearray | memoryview) and record.tobytes() in bytes(one):
            return "a byte string holds the record"
    return None


def _referents(one: object) -> list[object]:
    if isinstance(one, types.FunctionType):
        # A function's globals are its module; data passed to it is in its cells and defaults.
        return [one.__closure__, one.__defaults__, one.__kwdefaults__, one.__dict__]
    if isinstance(one, np.ndarray):
        # The garbage collector does not see the referents of arrays, nor the base of a view.
        return [one.base, *(one.ravel().tolist() if one.dtype.hasobject else ())]
    return gc.get_referents(one)


def _contains(array: np.ndarray, record: np.ndarray) -> bool:
    if array.dtype.kind not in "fiub" or array.size < record.size:
        return False
    wanted = record.reshape(-1).astype(np.float64)
    return any(
        _has_run(array.ravel(order=order).astype(np.float64), wanted) for order in ("C", "F")
    )


def _has_run(values: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether ``values`` contains ``wanted`` as a contiguous run, up to float32 precision."""
    starts = np.flatnonzero(_close(values[: len(values) - len(wanted) + 1], wanted[0]))
    return any(_close(values[i : i + len(wanted)], wanted).all() for i in starts)


def _close(a: np.ndarray, b: np.ndarray | float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(a - b) <= 1e-6 * np.abs(b))
