"""The trained reconstructor φ: its prediction for a release, and its storage in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from exhume.models.reconstructors import ReconstructorNetwork
from exhume.protocol.arrays import Array, FloatArray
from exhume.runtime.cache_rows import blocks_of

_CLIP = 100.0
"""No training like that of the shadow models gives standardised inputs beyond this."""
MOST_INPUTS = 4096
"""The most principal components that are the inputs of φ, where memory holds as many models."""
_FLOOR = 1e-3
"""The smallest deviation of a coordinate that counts, relative to that of all coordinates."""


@dataclass(frozen=True, eq=False)
class Standard:
    """Standardises the inputs of φ: zero mean, unit variance over the shadow models.

    ``directions`` (inputs, P) project the standardised coordinates to principal components; None
    leaves them unchanged.
    """

    mean: FloatArray
    scale: FloatArray
    directions: Array | None

    def __call__(self, differences: Array) -> Array:
        """Return the inputs (n, inputs), float32, for differences (n, P)."""
        with np.errstate(over="ignore"):
            moved = (np.asarray(differences, dtype=np.float64) - self.mean) * self.scale
        rows = np.clip(moved, -_CLIP, _CLIP).astype(np.float32)
        return rows if self.directions is None else rows @ self.directions.T


@dataclass(frozen=True, eq=False)
class Phi:
    """A trained reconstructor network.

    ``held_out`` (h, d) are its errors on shadow targets held out of its training, and ``blind``
    (h,) the mean record's squared errors there. ``epochs`` is the epoch of the smallest error.
    """

    network: ReconstructorNetwork
    state: Mapping[str, Array]
    standard: Standard
    held_out: FloatArray
    blind: FloatArray
    epochs: int

    def module(self, device: str = "cpu") -> torch.nn.Module:
        """Return the network with its trained parameters."""
        with torch.random.fork_rng(devices=[]):  # the random parameters are overwritten
            module = self.network.build().to(device)
        # Copies: arrays from a file may be read-only, which PyTorch can't express.
        module.load_state_dict({n: torch.tensor(np.array(a)) for n, a in self.state.items()})
        return module.eval()

    def read(self, difference: FloatArray, *, device: str = "cpu") -> FloatArray:
        """Return the record (d,) that φ predicts from one difference (P,)."""
        inputs = torch.tensor(self.standard(difference[None]), device=device)
        with torch.no_grad():
            found = self.module(device)(inputs)
        return np.asarray(found.cpu().numpy(), dtype=np.float64).reshape(-1)

    def arrays(self) -> dict[str, Array]:
        """Return all arrays by name, without the network's description."""
        arrays = {f"state.{name}": np.asarray(array) for name, array in self.state.items()}
        arrays |= {"mean": self.standard.mean, "scale": self.standard.scale}
        if self.standard.directions is not None:
            arrays["directions"] = self.standard.directions
        return arrays | {
            "held_out": self.held_out.astype(np.float32),
            "blind": self.blind,
            "epochs": np.array([self.epochs]),
        }


def from_arrays(arrays: Mapping[str, Array], network: ReconstructorNetwork) -> Phi:
    """Return the φ that ``arrays()`` describes."""
    state = {n.removeprefix("state."): a for n, a in arrays.items() if n.startswith("state.")}
    standard = Standard(arrays["mean"], arrays["scale"], arrays.get("directions"))
    held_out = np.asarray(arrays["held_out"], dtype=np.float64)
    return Phi(network, state, standard, held_out, arrays["blind"], int(arrays["epochs"][0]))


def standardised(differences: Array, inputs: int) -> Standard:
    """Return the standardisation of shadow models (k, P), to ``inputs`` numbers if fewer than P.

    The shadow models span only k − 1 dimensions, so k principal directions lose nothing. They are
    those of the first ``inputs`` shadow models.
    """
    mean, deviation = _moments(differences)
    # A parameter that records hardly change contains rounding errors, which must not be amplified.
    floor = _FLOOR * float(np.sqrt(np.square(deviation).mean()))
    scale = 1.0 / np.maximum(np.hypot(deviation, floor), 1e-300)
    plain = Standard(mean, scale, None)
    if inputs >= differences.shape[1]:
        return plain
    rows = plain(differences[: max(inputs, 1)])
    values, vectors = np.linalg.eigh((rows @ rows.T).astype(np.float64))
    kept = np.argsort(values)[::-1][:inputs]
    # A direction that no shadow model has contains only rounding errors: it is dropped.
    sizes = np.where(values[kept] > 1e-5 * values.max(), np.sqrt(np.abs(values[kept])), np.inf)
    directions = (vectors[:, kept] / sizes).T.astype(np.float32) @ rows
    # The components get the mean size of the coordinates.
    factor = np.sqrt(len(kept) * len(rows) / max(float(np.maximum(values, 0.0).sum()), 1e-300))
    return Standard(mean, scale, directions * np.float32(factor))


def _moments(differences: Array) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation per coordinate, in two passes over blocks of rows."""
    count, width = differences.shape
    mean, square = np.zeros(width), np.zeros(width)
    for _, rows in blocks_of(differences):
        mean += rows.sum(axis=0, dtype=np.float64)
    mean /= count
    for _, rows in blocks_of(differences):
        square += np.square(rows - mean).sum(axis=0)
    return mean, np.sqrt(square / count)
