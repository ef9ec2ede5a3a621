"""Exhume: how much of a training record can be rebuilt from a release.

The names below are the public interface. Sub-packages load on first use, so that ``import exhume``
and ``exhume --help`` stay fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from exhume.protocol.version import __version__ as __version__

if TYPE_CHECKING:
    from exhume import (
        attacks,
        audit,
        bounds,
        data,
        defences,
        metrics,
        models,
        report,
        shadows,
        sklearn,
        torch,
        training,
    )
    from exhume.api import AuditedRun, audit_release, audit_training, open_run
    from exhume.attacks.informed import membership
    from exhume.protocol.errors import ExhumeError, InputError, StoreError
    from exhume.protocol.knowledge import Knowledge, KnownAttributes
    from exhume.protocol.mechanism import Mechanism
    from exhume.protocol.reconstruction import Reconstruction, Status
    from exhume.protocol.records import Records
    from exhume.protocol.release import Gradient, Outputs, Release, Update, Weights

__all__ = [
    "AuditedRun",
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
    "audit_release",
    "audit_training",
    "bounds",
    "data",
    "defences",
    "membership",
    "metrics",
    "models",
    "open_run",
    "report",
    "shadows",
    "sklearn",
    "torch",
    "training",
]

_ROOMS = {"membership": "attacks.informed.membership"}
_HOME = {
    "AuditedRun": "api",
    "audit_release": "api",
    "audit_training": "api",
    "open_run": "api",
    "ExhumeError": "protocol.errors",
    "InputError": "protocol.errors",
    "StoreError": "protocol.errors",
    "Records": "protocol.records",
    "Gradient": "protocol.release",
    "Outputs": "protocol.release",
    "Release": "protocol.release",
    "Update": "protocol.release",
    "Weights": "protocol.release",
    "Knowledge": "protocol.knowledge",
    "KnownAttributes": "protocol.knowledge",
    "Mechanism": "protocol.mechanism",
    "Reconstruction": "protocol.reconstruction",
    "Status": "protocol.reconstruction",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'exhume' has no attribute {name!r}")
    if name in _HOME:
        return getattr(importlib.import_module(f"exhume.{_HOME[name]}"), name)
    return importlib.import_module(f"exhume.{_ROOMS.get(name, name)}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
