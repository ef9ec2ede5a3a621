"""Versions of the packages that a result depends on."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for package in ("exhume", "numpy", "scipy", "scikit-learn", "dp-accounting", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
