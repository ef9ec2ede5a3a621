"""Write files atomically: a crash leaves the old file or the new one, never a part."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from exhume.protocol.errors import StoreError


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, readable by its owner only, and make sure it is on disk."""

    def settled(file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    try:
        _replace(path, content, settled)
    except OSError as error:
        raise StoreError(explained(path, error)) from None


def write_quickly(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` as a whole, without waiting for the disk; OSError if it fails.

    It survives the end of this process, not of the machine.
    """
    _replace(path, content, lambda file: None)


def _replace(path: Path, content: bytes, finish: Callable[[BinaryIO], None]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            finish(file)
        Path(name).chmod(0o600)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def make_folder(path: Path) -> None:
    """Create a folder that only its owner can read, or change an existing one so."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except FileExistsError:
        raise StoreError(
            f"{path} is a file, but a folder is needed; choose another --out"
        ) from None
    except OSError as error:
        raise StoreError(explained(path, error)) from None


def explained(path: Path, error: OSError) -> str:
    """Describe an error with a file, and how to resolve it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full: {path} could not be written; finished trials are kept: free some "
            "space and run the same command again"
        )
    return f"{path} can't be written: {error.strerror or error}"
