"""Named arrays in files: safetensors, NumPy archives and checkpoints of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from exhume.data.estimator_files import refuse_pickle
from exhume.data.npz import npz_array, npz_keys
from exhume.data.reading import explained, require_file
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import torch


def read_arrays(path: Path) -> dict[str, Array]:
    """Read named arrays from .safetensors, .npz, or plain tensors in .pt, .pth, .ckpt or .bin."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    refuse_pickle(path)
    readers = {
        ".safetensors": _safetensors,
        ".npz": _npz,
        ".pt": _torch,
        ".pth": _torch,
        ".ckpt": _torch,
        ".bin": _torch,
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

    from exhume.runtime.durable import write_bytes

    write_bytes(path, save({name: np.asarray(a, order="C") for name, a in arrays.items()}))


def _safetensors(path: Path) -> dict[str, Array]:
    from safetensors import safe_open

    with explained(path, "a safetensors file"), safe_open(path, framework="numpy") as file:
        kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        if "BF16" not in kinds.values():
            return {name: file.get_tensor(name) for name in kinds}
    # NumPy has no such type; PyTorch is loaded for it alone.
    with explained(path, "a safetensors file"), safe_open(path, framework="pt") as file:
        return {name: _numbers(file.get_tensor(name)) for name in kinds}


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
                f"{path} is refused: it needs more than plain tensors{_wanted(error)}, and "
                "loading it would run code; save the state dict alone, "
                "torch.save(model.state_dict(), …), or safetensors"
            ) from None
    state = _state_dict(loaded)
    if state is None:
        raise InputError(
            f"{path} must hold a dictionary of tensors by name, or just one, or one in a "
            f"checkpoint's {', '.join(_STATES)}"
        )
    with explained(path, "tensors of a type that NumPy supports"):
        return {str(name): _numbers(tensor) for name, tensor in state.items()}


_STATES = ("model_state_dict", "state_dict", "model")
"""Where a checkpoint has its model, beside optimiser, epoch and what else there is."""


def _state_dict(loaded: object) -> Mapping[object, torch.Tensor] | None:
    """Return the tensors of a state dict, or of the one inside a checkpoint."""
    if not isinstance(loaded, Mapping):
        return None
    if (plain := _tensors(loaded)) is not None:
        return plain
    inside = (_state_dict(loaded[key]) for key in _STATES if key in loaded)
    named = next((found for found in inside if found is not None), None)
    if named is not None:
        return named
    others = [found for value in loaded.values() if (found := _tensors(value)) is not None]
    return others[0] if len(others) == 1 else None


def _tensors(value: object) -> Mapping[object, torch.Tensor] | None:
    """Return a value that is a dictionary of tensors and nothing else."""
    import torch

    if not isinstance(value, Mapping) or not value:
        return None
    return value if all(map(torch.is_tensor, value.values())) else None


def _numbers(tensor: torch.Tensor) -> Array:
    import torch

    # NumPy has no such type, and float32 holds all of its numbers.
    plain = tensor.float() if tensor.dtype is torch.bfloat16 else tensor
    array: Array = plain.detach().numpy()
    return array


def _wanted(error: Exception) -> str:
    """The objects that a pickle requests, without PyTorch's advice on how to allow them."""
    import re

    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    return "" if found is None else f" ({found[1]})"
