"""Whatever goes wrong while a file is read becomes one line that names the file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exhume.errors import InputError


@contextmanager
def explained(path: Path, kind: str) -> Iterator[None]:
    """Turn an error met while reading ``path``, said to be ``kind``, into an InputError."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder, expected {kind}") from None
    except PermissionError:
        raise InputError(f"{path}: may not be read by this user") from None
    except MemoryError:
        raise InputError(f"{path}: does not fit into memory") from None
    except EOFError:
        raise InputError(f"{path}: is cut short, expected {kind}") from None
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: can't be read as {kind}: {reason}") from None


def require_file(path: Path, kind: str) -> None:
    """Raise InputError unless ``path`` is a file with something in it."""
    with explained(path, kind):
        if path.is_dir():
            raise IsADirectoryError
        if path.stat().st_size == 0:
            raise InputError(f"{path}: is empty, expected {kind}")
