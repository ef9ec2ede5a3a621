"""Training of φ on shadow models, with early stopping on held-out shadow models.

The loss is MAE + MSE, plus perceptual terms for colour images (Balle et al. 2022, §V-A).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from exhume.attacks.informed.learned.phi import MOST_INPUTS, Phi, Standard, standardised
from exhume.models.reconstructors import (
    ConvolutionalReconstructor,
    DenseReconstructor,
    PatchDiscriminator,
    ReconstructorNetwork,
)
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.images import channels_are_first
from exhume.protocol.seeds import stream
from exhume.runtime.pages import forget
from exhume.shadows import ShadowSet
from exhume.shadows.order import FEWEST, MOST_BYTES

Range = tuple[float, float]
MOST_WEIGHTS = 20_000_000
"""If the first layer had more weights than this, its inputs are principal components instead."""


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """Training settings of φ (Balle et al. 2022, Table V); ``lpips`` is the file of its weights."""

    hidden: tuple[int, ...]
    epochs: int
    batch: int
    learning_rate: float
    convolutional: bool
    lpips: Path | None
    perceptual: float
    adversarial: float
    value_range: Range | None
    seed: int
    device: str


def network_for(shadows: ShadowSet, fitting: Fitting) -> ReconstructorNetwork:
    """Return the network that the settings describe, made narrower if memory requires it."""
    width = shadows.differences.shape[1]
    shape = shadows.targets.record_shape
    whole: ReconstructorNetwork
    if fitting.convolutional:
        whole = ConvolutionalReconstructor(width, shape, value_range=fitting.value_range)
    else:
        whole = DenseReconstructor(width, shape, fitting.hidden, fitting.value_range)
    if whole.weights() <= MOST_WEIGHTS:
        return whole
    most = min(MOST_INPUTS, max(FEWEST, MOST_BYTES // (4 * width)))
    return replace(whole, inputs=min(width, len(shadows), most))


def trained(shadows: ShadowSet, fitting: Fitting) -> Phi:
    """Train φ from scratch, from standardised shadow differences (k, P) to shadow targets."""
    network = network_for(shadows, fitting)
    standard = standardised(shadows.differences, network.inputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fitting.seed)
        module = network.build().to(fitting.device)
        return _fitted(module, network, standard, shadows, fitting)


def fine_tune(phi: Phi, shadows: ShadowSet, fitting: Fitting) -> Phi:
    """Fine-tune φ on the shadow models of another fixed set (Balle et al. 2022, appendix B).

    The new shadow models are standardised by their own mean and variance per coordinate. Few of
    them suffice where φ from scratch would need many.
    """
    own = standardised(shadows.differences, shadows.differences.shape[1])
    standard = Standard(own.mean, own.scale, phi.standard.directions)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fitting.seed)
        return _fitted(phi.module(fitting.device), phi.network, standard, shadows, fitting)


def _fitted(
    module: nn.Module,
    network: ReconstructorNetwork,
    standard: Standard,
    shadows: ShadowSet,
    fitting: Fitting,
) -> Phi:
    rng = stream(fitting.seed, "reconstructor")
    order = rng.permutation(len(shadows))
    apart = min(max(len(order) // 10, 2), 500)
    kept, used = np.sort(order[:apart]), np.sort(order[apart:])
    truth = torch.tensor(np.asarray(shadows.targets.x, dtype=np.float32), device=fitting.device)
    if isinstance(shadows.differences, np.memmap):
        examples: Examples = StreamedExamples(standard, shadows.differences, truth)
    else:
        inputs = torch.tensor(standard(shadows.differences), device=fitting.device)
        examples = Examples(inputs, truth)
    loop = _Loop(module, fitting, examples)
    held_out = examples.batch(kept)
    best, epochs = loop.run(used, held_out, rng)
    module.load_state_dict(best)
    errors = _numpy(_predicted(module, held_out[0]) - held_out[1]).reshape(apart, -1)
    blind = _numpy(truth[used].mean(dim=0) - truth[kept]).reshape(apart, -1)
    state = {name: _numpy32(value) for name, value in best.items()}
    return Phi(network, state, standard, -errors, np.square(blind).mean(axis=1), epochs)


class Examples:
    """Standardised shadow differences (k, inputs) in memory, and shadow targets."""

    def __init__(self, inputs: Tensor, truth: Tensor) -> None:
        self.inputs, self.truth = inputs, truth

    def batch(self, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the inputs and the targets at some places."""
        chosen = torch.as_tensor(places)
        return self.inputs[chosen], self.truth[chosen]


class StreamedExamples(Examples):
    """The same from a mapped file: every batch is read and standardised when it is needed."""

    def __init__(self, standard: Standard, differences: Array, truth: Tensor) -> None:
        self.standard, self.differences, self.truth = standard, differences, truth

    def batch(self, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return the inputs and the targets at some places."""
        inputs = torch.tensor(self.standard(self.differences[places]), device=self.truth.device)
        forget(self.differences)
        return inputs, self.truth[torch.as_tensor(places)]


class _Loop:
    """Runs epochs of mini-batches; stores the parameters with the smallest held-out loss."""

    def __init__(self, module: nn.Module, fitting: Fitting, examples: Examples) -> None:
        self._module, self._fitting, self._examples = module, fitting, examples
        rate, device, shape = fitting.learning_rate, fitting.device, fitting.value_range
        self._perceptual: Perceptual | None = None
        self._adversary: Adversary | None = None
        if fitting.convolutional:
            self._optimiser: torch.optim.Optimizer = torch.optim.Adam(
                module.parameters(), lr=rate, weight_decay=1e-4
            )
            if fitting.lpips is not None and shape is not None:
                self._perceptual = Perceptual(fitting.lpips, shape, device)
        else:
            self._optimiser = torch.optim.RMSprop(module.parameters(), lr=rate, alpha=0.9)

    def run(
        self,
        used: NDArray[np.int64],
        kept: tuple[Tensor, Tensor],
        rng: np.random.Generator,
    ) -> tuple[dict[str, Tensor], int]:
        """Return the best parameters and their epoch."""
        if self._fitting.convolutional and self._fitting.adversarial > 0:
            self._adversary = Adversary(tuple(kept[1].shape[1:]), self._fitting.device)
        best, least, at = _copy(self._module), self._held_out(kept), 0
        patience = max(10, self._fitting.epochs // 5)
        for epoch in range(1, self._fitting.epochs + 1):
            self._epoch(used, rng)
            loss = self._held_out(kept)
            if loss < least:
                best, least, at = _copy(self._module), loss, epoch
            elif epoch - at >= patience:
                break
        return best, at

    def _epoch(self, used: NDArray[np.int64], rng: np.random.Generator) -> None:
        self._module.train()
        order = used[rng.permutation(len(used))]
        for start in range(0, len(order), self._fitting.batch):
            self._step(*self._examples.batch(order[start : start + self._fitting.batch]))

    def _step(self, inputs: Tensor, truth: Tensor) -> None:
        self._optimiser.zero_grad()
        found = self._module(inputs)
        if self._adversary is not None:
            self._adversary.learn(found, truth)
        loss = closeness(found, truth)
        if self._perceptual is not None:
            loss = loss + self._fitting.perceptual * self._perceptual(found, truth)
        if self._adversary is not None:
            loss = loss + self._fitting.adversarial * self._adversary(found)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()

    def _held_out(self, kept: tuple[Tensor, Tensor]) -> float:
        return float(closeness(_predicted(self._module, kept[0]), kept[1]))


def _predicted(module: nn.Module, inputs: Tensor) -> Tensor:
    module.eval()
    with torch.no_grad():
        return torch.cat([module(part) for part in torch.split(inputs, 256)])


def _copy(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _numpy(values: Tensor) -> FloatArray:
    return np.asarray(values.cpu().numpy(), dtype=np.float64)


def _numpy32(values: Tensor) -> Array:
    return np.asarray(values.cpu().numpy(), dtype=np.float32)


_DISCRIMINATOR_RATE = 1e-5


def closeness(found: Tensor, truth: Tensor) -> Tensor:
    """Return mean absolute error + mean squared error."""
    gap = found - truth
    return gap.abs().mean() + gap.square().mean()


class Perceptual:
    """LPIPS with AlexNet, differentiable: colour images in ``value_range``, of either layout."""

    def __init__(self, weights: Path, value_range: Range, device: str) -> None:
        from exhume.metrics.alexnet import _load

        loaded = _load(weights, weights.stat().st_mtime_ns)
        self._stages = tuple(type(stage)(*(part.to(device) for part in stage)) for stage in loaded)
        self._range = value_range

    def __call__(self, found: Tensor, truth: Tensor) -> Tensor:
        """Return the mean LPIPS distance of pairs of images."""
        from exhume.metrics.alexnet import _embed_batch

        with torch.no_grad():
            wanted = _embed_batch(self._unit(truth), self._stages)
        made = _embed_batch(self._unit(found), self._stages)
        return (made - wanted).square().sum(dim=1).mean()

    def _unit(self, images: Tensor) -> Tensor:
        low, high = self._range
        planes = images if channels_are_first(tuple(images.shape[1:])) else images.movedim(-1, 1)
        return (planes - low) / (high - low)


class Adversary:
    """A patch discriminator trained together with φ by least squares (Mao et al. 2017)."""

    def __init__(self, record_shape: tuple[int, ...], device: str) -> None:
        self._network: nn.Module = PatchDiscriminator(record_shape).build().to(device)
        parameters = self._network.parameters()
        self._optimiser = torch.optim.Adam(parameters, lr=_DISCRIMINATOR_RATE, betas=(0.5, 0.999))

    def learn(self, found: Tensor, truth: Tensor) -> None:
        """Take one step towards 1 on real images and 0 on generated ones."""
        self._optimiser.zero_grad()
        real = (self._network(truth) - 1.0).square().mean()
        made = self._network(found.detach()).square().mean()
        (0.5 * (real + made)).backward()
        self._optimiser.step()

    def __call__(self, found: Tensor) -> Tensor:
        """Return the distance of generated images from being classified as real."""
        loss: Tensor = (self._network(found) - 1.0).square().mean()
        return loss
