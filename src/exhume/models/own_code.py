"""Code of the user's own: a function by its name, and the files that it consists of."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from uuid import uuid4

from exhume.protocol.errors import InputError

_AT_HAND: dict[OwnCode, Callable[..., object]] = {}
_NAMED: dict[str, OwnCode] = {}


@dataclass(frozen=True)
class OwnCode:
    """A function as ``package.module:function``, and a digest of the code that it consists of.

    Importing runs the code: whoever makes this object has decided to. A function of a script or a
    notebook can't be imported; it is remembered in this process and found in no other one.
    """

    source: str
    digest: str

    @property
    def importable(self) -> bool:
        """Whether another process finds the function, too."""
        return self not in _AT_HAND

    def function(self) -> Callable[..., object]:
        """Return the function."""
        found = _AT_HAND.get(self)
        return function_named(self.source) if found is None else found


def function_named(source: str) -> Callable[..., object]:
    """Import ``package.module:function`` and return the function."""
    module, _, name = source.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"{source} can't be imported ({error}); write package.module:function"
        ) from None
    if not callable(found):
        raise InputError(f"{source} must be a function, got {type(found).__name__}")
    return found


def code_named(source: str) -> OwnCode:
    """Return the code of a function by its name: at hand already, or imported here."""
    if source in _NAMED:
        return _NAMED[source]
    function_named(source)
    return OwnCode(source, _digest(sys.modules[source.partition(":")[0]]))


def code_of(function: Callable[..., object]) -> OwnCode:
    """Return the code of a function that is at hand, by its name where it can be imported.

    The content of a function of a notebook is not known: nothing made by it is kept for later.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "train")
    source = f"{module}:{name}"
    home = sys.modules.get(module or "")
    named = isinstance(function, FunctionType) and "<" not in name
    if named and home is not None and module != "__main__" and function_named(source) is function:
        return code_named(source)
    script = named and module == "__main__" and getattr(home, "__file__", None) is not None
    code = OwnCode(source, _digest(home) if script and home is not None else uuid4().hex)
    _AT_HAND[code] = function
    _NAMED[source] = code
    return code


def _digest(module: ModuleType) -> str:
    """Return the SHA-256 of a module's file, and of those that it imports from its own folder."""
    digest = hashlib.sha256()
    for name, path in sorted(_files(module).items()):
        digest.update(f"{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _files(module: ModuleType) -> dict[str, Path]:
    top = sys.modules.get(module.__name__.partition(".")[0], module)
    start = getattr(top, "__file__", None) or getattr(module, "__file__", None)
    if start is None:
        return {}
    folder, todo = Path(start).resolve().parent, [module.__name__]
    # A project may hold its virtual environment: what is installed there is not its own code.
    others = [place for place in _installed() if not folder.is_relative_to(place)]
    found: dict[str, Path] = {}
    while todo:
        name = todo.pop()
        file = getattr(sys.modules.get(name), "__file__", None)
        if name in found or file is None:
            continue
        path = Path(file).resolve()
        if any(path.is_relative_to(place) for place in others):
            continue
        if path.suffix == ".py" and path.is_relative_to(folder) and path.is_file():
            found[name] = path
            todo += _imports(path, sys.modules[name])
    return found


def _installed() -> set[Path]:
    """Return where Python, what is installed, and this package are."""
    places = {sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return {*(Path(place).resolve() for place in places), Path(__file__).resolve().parents[1]}


def _imports(path: Path, module: Any) -> Iterator[str]:
    """Yield the names of all modules that a file may import."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            if node.level:
                package = module.__package__ or module.__name__.rpartition(".")[0]
                base = importlib.util.resolve_name(base, package) if package else node.module or ""
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
