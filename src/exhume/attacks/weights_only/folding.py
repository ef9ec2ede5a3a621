"""Batch normalisation as the map that it is in evaluation mode: a gain and an offset."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from exhume.models.base import Network
from exhume.models.exported import normalising
from exhume.protocol.arrays import Array, FloatArray


def normalisations(network: Network) -> tuple[str, ...]:
    """Return the names of a network's batch normalisations, in modules or in a program."""
    from torch.nn.modules.batchnorm import _BatchNorm

    module = network.module()
    names = (name for name, layer in module.named_modules() if isinstance(layer, _BatchNorm))
    return (*names, *normalising(module))


def folded(
    network: Network, parameters: Mapping[str, FloatArray], arrays: Mapping[str, Array]
) -> dict[str, FloatArray]:
    """Return parameters with which the network as built, in evaluation mode, is the released one.

    Released running statistics among ``arrays`` are folded into the gain and the offset of their
    normalisation; where there are none, or nothing to fold them into, parameters stay as they are.
    """
    found = dict(parameters)
    layers = dict(network.module().named_modules())
    for name in normalisations(network):
        keys = [f"{name}.{part}" for part in ("running_mean", "running_var", "weight", "bias")]
        if any(key not in arrays for key in keys):
            continue
        own = layers[name]
        mean, variance, gain, offset = (np.asarray(arrays[key], np.float64) for key in keys)
        built = [np.asarray(b.double()) for b in (own.running_mean, own.running_var)]
        spread = np.sqrt(variance + own.eps)
        found[keys[2]] = gain * np.sqrt(built[1] + own.eps) / spread
        found[keys[3]] = offset + gain * (built[0] - mean) / spread
    return found


def forgets_shifts(network: Network, layer: str) -> bool:
    """Whether training does not see what is added to all outputs of ``layer``.

    So it is where a batch normalisation follows: the gradient of the layer's bias is then 0.
    """
    import torch

    from exhume.derivatives.objective import Objective

    objective = Objective(network, dtype=torch.float64)
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.random((4, *network.record_shape)))

    def shift(_: torch.nn.Module, __: object, output: torch.Tensor) -> torch.Tensor:
        return output + torch.tensor(rng.random(output.shape[-1]))

    with torch.no_grad():
        plain = objective.module(x)
        handle = objective.module.get_submodule(layer).register_forward_hook(shift)
        shifted = objective.module(x)
        handle.remove()
    return bool(torch.allclose(plain, shifted, rtol=1e-6, atol=1e-9))
