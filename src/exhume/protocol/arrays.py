"""Arrays of the protocol: NumPy, read-only, checked."""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from exhume.protocol.errors import InputError

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.floating[Any]]


def _rebuilt(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


# Python can't pickle read-only mappings by itself, and they are sent to other processes.
copyreg.pickle(MappingProxyType, lambda mapping: (_rebuilt, (dict(mapping),)))


def frozen(values: ArrayLike, dtype: Any = None) -> Array:
    """Return ``values`` as a read-only array, copied if needed, so that no caller can change it.

    A view is copied too: otherwise its base would expose the array that it was taken from.
    """
    array = np.asarray(values, dtype=dtype)
    if array.dtype.hasobject:
        raise InputError(f"expected an array of numbers, got objects (dtype {array.dtype})")
    if array.flags.writeable or array.base is not None:
        array = array.copy()
        array.flags.writeable = False
    return array


def frozen_mapping(arrays: Mapping[str, ArrayLike]) -> Mapping[str, Array]:
    """Return a read-only mapping of read-only arrays, in the given order."""
    return MappingProxyType({str(name): frozen(value) for name, value in arrays.items()})


def all_finite(array: Array) -> bool:
    """Whether no entry is NaN or infinite (integers are always finite)."""
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def require_finite(array: Array, what: str) -> None:
    """Raise InputError that names the first NaN or infinity of ``array``, if there is one."""
    if all_finite(array):
        return
    bad = np.argwhere(~np.isfinite(array))
    where = ", ".join(str(int(i)) for i in bad[0])
    raise InputError(
        f"{what} has {len(bad)} NaN or infinite value(s), the first at index ({where}); "
        "every value must be a finite number"
    )
