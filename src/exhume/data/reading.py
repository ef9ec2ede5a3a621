"""Every error while reading a file becomes one line that names the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from exhume.protocol.errors import InputError


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
        raise InputError(f"{path}: this user has no permission to read it") from None
    except MemoryError:
        raise InputError(f"{path}: does not fit into memory") from None
    except EOFError:
        raise InputError(f"{path}: is truncated, expected {kind}") from None
    # Parsers meet damaged bytes with errors of every kind (zlib's, the tokenizer's in a NumPy
    # header, an overflow); the user needs to know which file it was.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{path}: cannot be read as {kind}: {reason}") from None


def require_file(path: Path, kind: str) -> None:
    """Raise InputError unless ``path`` is a file with something in it."""
    with explained(path, kind):
        if path.is_dir():
            raise IsADirectoryError
        if path.stat().st_size == 0:
            raise InputError(f"{path}: is empty, expected {kind}")


def listed(names: Sequence[str], *, most: int = 20) -> str:
    """Return the names in a file, on one line: a file may contain any character.

    >>> listed(["x", "labels"])
    'x, labels'
    >>> listed([])
    'nothing'
    """
    shown = [name if name.isprintable() else ascii(name) for name in names[:most]]
    return ", ".join([*shown, *(["…"] if len(names) > most else [])]) or "nothing"
