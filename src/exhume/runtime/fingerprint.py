"""A name for settings and data: equal content, equal name, in every process and on every day."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.runtime.pages import forget

if TYPE_CHECKING:
    from hashlib import _Hash

_KNOWN: WeakKeyDictionary[Records, str] = WeakKeyDictionary()
_PIECE = 1 << 26


def fingerprint(*parts: object) -> str:
    """Return the SHA-256 of plain values, arrays, records and frozen dataclasses, in hexadecimal.

    Arrays count by type, shape and bytes; dataclasses by their class and fields, estimators by
    their class and settings. Anything whose content has no fingerprint raises InputError.

    >>> fingerprint(1, "a") == fingerprint(1, "a") != fingerprint("1", "a")
    True
    """
    digest = hashlib.sha256()
    _feed(digest, parts)
    return digest.hexdigest()


def _feed(digest: _Hash, value: object) -> None:
    match value:
        case Records():
            _say(digest, "records", _records(value))
        case np.ndarray():
            _feed_array(digest, value)
        case Enum():
            _say(digest, "enum", f"{type(value).__qualname__}.{value.name}")
        case None | bool() | int() | float() | str() | bytes() | np.generic():
            _say(digest, type(value).__name__, repr(value))
        case PurePath():
            _say(digest, "path", str(value))
        case tuple() | list():
            _say(digest, "sequence", str(len(value)))
            for one in value:
                _feed(digest, one)
        case Mapping():
            _say(digest, "mapping", str(len(value)))
            for name in value:
                _feed(digest, (name, value[name]))
        case _ if is_dataclass(value) and not isinstance(value, type):
            _say(digest, "dataclass", f"{type(value).__module__}.{type(value).__qualname__}")
            for field in fields(value):
                _feed(digest, (field.name, getattr(value, field.name)))
        case _ if hasattr(value, "get_params") and not isinstance(value, type):
            # An estimator of scikit-learn's kind, which is not fitted: its settings are all it has.
            _say(digest, "estimator", f"{type(value).__module__}.{type(value).__qualname__}")
            _feed(digest, value.get_params(deep=False))
        case _:
            raise InputError(f"{type(value).__qualname__} has no content that can be fingerprinted")


def _feed_array(digest: _Hash, array: np.ndarray) -> None:
    _say(digest, "array", f"{array.dtype.str} {array.shape}")
    if array.dtype.hasobject:
        raise InputError("an array of objects has no content that can be fingerprinted")
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, len(content), _PIECE):
        digest.update(content[start : start + _PIECE].data)
        forget(array)


def _records(records: Records) -> str:
    """Return the records' fingerprint; they never change, so each set is read once."""
    if records not in _KNOWN:
        _KNOWN[records] = fingerprint(records.x, records.y, records.weight)
    return _KNOWN[records]


def _say(digest: _Hash, kind: str, text: str) -> None:
    content = text.encode()
    # Lengths separate neighbours: ("ab", "c") is not ("a", "bc").
    digest.update(f"{kind}:{len(content)}:".encode() + content)
