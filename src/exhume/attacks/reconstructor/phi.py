"""φ, trained: what it makes of a release, and how to keep it in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from exhume.arrays import Array, FloatArray
from exhume.models.reconstructors import ReconstructorNetwork

_CLIP = 100.0
"""Standardised inputs beyond this come from no training like the shadow models'."""
_FLOOR = 1e-3
"""The least deviation of a coordinate that counts, in units of all coordinates' own."""


@dataclass(frozen=True, eq=False)
class Standard:
    """Differences as φ sees them: zero mean, unit variance over the shadow models.

    ``directions`` (inputs, P), where there are any, turn the standardised coordinates into
    principal components; None leaves them as they are.
    """

    mean: FloatArray
    scale: FloatArray
    directions: Array | None

    def __call__(self, differences: Array) -> Array:
        """Return inputs (n, inputs), float32, of differences (n, P)."""
        with np.errstate(over="ignore"):
            moved = (np.asarray(differences, dtype=np.float64) - self.mean) * self.scale
        rows = np.clip(moved, -_CLIP, _CLIP).astype(np.float32)
        return rows if self.directions is None else rows @ self.directions.T


@dataclass(frozen=True, eq=False)
class Phi:
    """A trained reconstructor network.

    ``held_out`` (h, d) are its errors on shadow targets kept from its training, ``blind`` (h,) the
    mean record's squared errors there; ``epochs`` how long it was trained before those grew.
    """

    network: ReconstructorNetwork
    state: Mapping[str, Array]
    standard: Standard
    held_out: FloatArray
    blind: FloatArray
    epochs: int

    def module(self, device: str = "cpu") -> torch.nn.Module:
        """Return the network with what it learned."""
        with torch.random.fork_rng(devices=[]):  # what is drawn here is overwritten
            module = self.network.build().to(device)
        # Copies: arrays out of a file may be read-only, which PyTorch can't express.
        module.load_state_dict({n: torch.tensor(np.array(a)) for n, a in self.state.items()})
        return module.eval()

    def read(self, difference: FloatArray, *, device: str = "cpu") -> FloatArray:
        """Return the record (d,) behind one difference (P,)."""
        inputs = torch.tensor(self.standard(difference[None]), device=device)
        with torch.no_grad():
            found = self.module(device)(inputs)
        return np.asarray(found.cpu().numpy(), dtype=np.float64).reshape(-1)

    def arrays(self) -> dict[str, Array]:
        """Return everything but the network's description, by name."""
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
    """Return the φ whose ``arrays()`` these are."""
    state = {n.removeprefix("state."): a for n, a in arrays.items() if n.startswith("state.")}
    standard = Standard(arrays["mean"], arrays["scale"], arrays.get("directions"))
    held_out = np.asarray(arrays["held_out"], dtype=np.float64)
    return Phi(network, state, standard, held_out, arrays["blind"], int(arrays["epochs"][0]))


def standardised(differences: Array, inputs: int) -> Standard:
    """Return the standardisation of shadow models (k, P), to ``inputs`` numbers if fewer than P.

    Rank k − 1 is all that the shadow models span, so k principal directions lose nothing of them.
    """
    mean = differences.mean(axis=0, dtype=np.float64)
    deviation = differences.std(axis=0, dtype=np.float64)
    # A parameter that records hardly move holds rounding errors, which must not be blown up.
    floor = _FLOOR * float(np.sqrt(np.square(deviation).mean()))
    scale = 1.0 / np.maximum(np.hypot(deviation, floor), 1e-300)
    plain = Standard(mean, scale, None)
    if inputs >= differences.shape[1]:
        return plain
    rows = plain(differences)
    values, vectors = np.linalg.eigh((rows @ rows.T).astype(np.float64))
    kept = np.argsort(values)[::-1][:inputs]
    # What is left of a direction that no shadow model has is rounding errors: it counts nothing.
    sizes = np.where(values[kept] > 1e-5 * values.max(), np.sqrt(np.abs(values[kept])), np.inf)
    directions = (vectors[:, kept] / sizes).T.astype(np.float32) @ rows
    # As large on average as the coordinates were.
    factor = np.sqrt(len(kept) * len(rows) / max(float(np.maximum(values, 0.0).sum()), 1e-300))
    return Standard(mean, scale, directions * np.float32(factor))
