"""Releases in files: checkpoints are read without running anything that is in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from exhume.arrays import Array
from exhume.data.npz import npz_array, npz_keys
from exhume.data.reading import explained, require_file
from exhume.errors import InputError
from exhume.release import Answer, Outputs, Release, Weights


def read_release(path: Path, kind: str, answer: str) -> Release:
    """Read weights (arrays by name) or outputs (arrays ``queries`` and ``values``) from a file."""
    arrays = read_arrays(path)
    if kind == "weights":
        return Weights(arrays)
    missing = sorted({"queries", "values"} - set(arrays))
    if missing:
        raise InputError(f"{path} lacks {missing[0]!r}; outputs need 'queries' and 'values'")
    return Outputs(arrays["queries"], arrays["values"], Answer(answer))


def read_arrays(path: Path) -> dict[str, Array]:
    """Read named arrays from .safetensors, .npz, or a .pt/.pth file of plain tensors."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    readers = {
        ".safetensors": _safetensors,
        ".npz": _npz,
        ".pt": _torch,
        ".pth": _torch,
        ".pickle": _refuse,
        ".pkl": _refuse,
        ".joblib": _refuse,
    }
    reader = readers.get(path.suffix)
    if reader is None:
        raise InputError(f"{path} must be a .safetensors, .npz or .pt file")
    arrays = reader(path)
    if not arrays:
        raise InputError(f"{path} holds no arrays")
    return arrays


def write_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """Write named arrays as safetensors, readable by their owner only, all or nothing."""
    from safetensors.numpy import save

    from exhume.audit.durable import write_bytes

    write_bytes(path, save({name: np.asarray(a, order="C") for name, a in arrays.items()}))


def _safetensors(path: Path) -> dict[str, Array]:
    from safetensors.numpy import load_file

    with explained(path, "a safetensors file"):
        return dict(load_file(path))


def _npz(path: Path) -> dict[str, Array]:
    return {name: npz_array(path, name) for name in npz_keys(path)}


def _torch(path: Path) -> dict[str, Array]:
    import pickle
    import warnings

    import torch

    require_file(path, "a PyTorch file")
    with explained(path, "a PyTorch file"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise InputError(
                f"{path} is refused: it wants more than plain tensors{_wanted(error)}, and loading "
                "it would run code; save a state dict of tensors, or safetensors"
            ) from None
    if not isinstance(loaded, dict) or not all(torch.is_tensor(v) for v in loaded.values()):
        raise InputError(f"{path} must hold a dictionary of tensors by name")
    with explained(path, "tensors that NumPy has a type for"):
        return {str(name): tensor.detach().numpy() for name, tensor in loaded.items()}


def _wanted(error: Exception) -> str:
    """What a pickle asks for; the rest of PyTorch's message tells how to let it."""
    import re

    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return "" if found is None else f" ({found[1]})"


def _refuse(path: Path) -> dict[str, Array]:
    raise InputError(
        f"{path} is refused: loading a pickle runs whatever code is in it; save the parameters as "
        "safetensors (exhume.sklearn.save does that for a fitted estimator)"
    )
