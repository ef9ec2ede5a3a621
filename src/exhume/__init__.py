"""Exhume: how much of a training record can be rebuilt from a release.

The names below are the public interface. Sub-packages load on first use, so that ``import exhume``
and ``exhume --help`` stay fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exhume import (
        attacks,
        audit,
        bounds,
        data,
        defences,
        membership,
        metrics,
        models,
        report,
        shadows,
        sklearn,
        training,
    )
    from exhume.errors import ExhumeError, InputError, StoreError
    from exhume.knowledge import Knowledge, KnownAttributes
    from exhume.mechanism import Mechanism
    from exhume.reconstruction import Reconstruction, Status
    from exhume.records import Records
    from exhume.release import Gradient, Outputs, Release, Update, Weights

__version__ = "0.1.0"

__all__ = [
    "ExhumeError",
    "Gradient",
    "InputError",
    "Knowledge",
    "KnownAttributes",
    "Mechanism",
    "Outputs",
    "Reconstruction",
    "Records",
    "Release",
    "Status",
    "StoreError",
    "Update",
    "Weights",
    "attacks",
    "audit",
    "bounds",
    "data",
    "defences",
    "membership",
    "metrics",
    "models",
    "report",
    "shadows",
    "sklearn",
    "training",
]

_HOME = {
    "ExhumeError": "errors",
    "InputError": "errors",
    "StoreError": "errors",
    "Records": "records",
    "Gradient": "release",
    "Outputs": "release",
    "Release": "release",
    "Update": "release",
    "Weights": "release",
    "Knowledge": "knowledge",
    "KnownAttributes": "knowledge",
    "Mechanism": "mechanism",
    "Reconstruction": "reconstruction",
    "Status": "reconstruction",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'exhume' has no attribute {name!r}")
    if name in _HOME:
        return getattr(importlib.import_module(f"exhume.{_HOME[name]}"), name)
    return importlib.import_module(f"exhume.{name}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
