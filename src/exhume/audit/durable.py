"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from exhume.errors import StoreError


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path``, readable by its owner only, and make sure it is on disk."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".tmp-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o600)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(explained(path, error)) from None


def make_folder(path: Path) -> None:
    """Create a folder that only its owner can read, or make one that is there such a folder."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
    except FileExistsError:
        raise StoreError(f"{path} is a file, a folder is needed; choose another --out") from None
    except OSError as error:
        raise StoreError(explained(path, error)) from None


def explained(path: Path, error: OSError) -> str:
    """Say what went wrong with a file in a way that tells what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"the disk is full: {path} could not be written; what was finished before is kept: "
            "free some space and run the same command again"
        )
    return f"{path} can't be written: {error.strerror or error}"
