"""Releases and an adversary's knowledge from PyTorch objects that are at hand.

>>> import torch
>>> _ = torch.manual_seed(0)
>>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
>>> x, y = torch.rand(1, 3), torch.tensor([1])
>>> release, knowledge = gradient(model, torch.nn.CrossEntropyLoss(), x, y)
>>> from exhume.attacks import FirstLayer
>>> found = FirstLayer().reconstruct(release, knowledge, rng=0)
>>> bool(torch.allclose(torch.tensor(found.samples[0]).float(), x[0], atol=1e-5))
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Union

import numpy as np

from exhume.models.base import misfits, under_own_names
from exhume.models.live import LiveNetwork
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Update
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps
from exhume.training.optimisers import SGD

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike
    from torch import nn

Range = tuple[float, float]
Given = Union[Records, "ArrayLike", "torch.Tensor", tuple["ArrayLike", "ArrayLike"]]
_TOLERANCE = 1e-3
"""Sums in another order differ by less; another loss, or another mean, by far more."""


def network(module: nn.Module, record_shape: tuple[int, ...] | None = None) -> LiveNetwork:
    """Return a module as it is, as a network that takes records of ``record_shape``.

    The shape may be left out where the module begins with a fully connected layer.
    """
    import torch

    shape = _first_shape(module) if record_shape is None else tuple(record_shape)
    parameter = next(module.parameters(), torch.zeros(1))
    blank = torch.zeros(2, *shape, dtype=parameter.dtype, device=parameter.device)
    was_training = module.training
    try:
        with torch.no_grad():
            scores = module.eval()(blank)
    except (RuntimeError, ValueError, TypeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"the module does not take records of shape {shape}: {first}") from None
    finally:
        module.train(was_training)
    if not torch.is_tensor(scores) or scores.ndim != 2 or len(scores) != 2:
        raise InputError("the module must give scores (n, outputs) for records (n, *record shape)")
    return LiveNetwork(shape, int(scores.shape[1]), module)


def gradient(
    module: nn.Module,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    x: ArrayLike | torch.Tensor,
    y: ArrayLike | torch.Tensor,
    *,
    value_range: Range | None = None,
    shadow_targets: Given | None = None,
) -> tuple[Gradient, Knowledge]:
    """Return the gradient of ``loss(module(x), y)``, and what a server knows that receives it.

    Records are tensors or arrays; ``shadow_targets`` may have labels: (x, y), or ``Records``.
    The module stays in the mode that it is in, and as it is. The attacks know the mean
    cross-entropy, and half of the mean squared error of one output; another loss is refused.
    """
    import torch

    x, y = _batch(module, x, y)
    step = _step(module, tuple(x.shape[1:]), _is_regression(y))
    leaves = {n: p for n, p in module.named_parameters() if p.requires_grad}
    if len(leaves) < len(list(module.parameters())):
        raise InputError("some parameters take no gradient (requires_grad): the attacks need all")
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    found = torch.autograd.grad(loss(module(x), y), list(leaves.values()))
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            buffer.copy_(kept[name])
    release = Gradient(
        {n: _array(g) for n, g in zip(leaves, found, strict=True)}, batch_size=len(x)
    )
    records = Records(_array(x), _array(y))
    own = step.publish(records, rng=np.random.default_rng(0))
    for name, expected in own.gradients.items():
        size = max(float(np.abs(expected).max()), 1e-12)
        if float(np.abs(release.gradients[name] - expected).max()) > _TOLERANCE * size:
            raise InputError(
                f"the gradient of {name!r} is not that of the mean cross-entropy (or of half the "
                "mean squared error): the attacks know no other loss, and no dropout"
            )
    return release, _knowledge(step, records.record_shape, value_range, shadow_targets)


def update(
    before: nn.Module,
    after: nn.Module | Mapping[str, torch.Tensor],
    *,
    records: int,
    learning_rate: float,
    steps: int = 1,
    momentum: float = 0.0,
    record_shape: tuple[int, ...] | None = None,
    classes: int | None = None,
    value_range: Range | None = None,
    shadow_targets: Given | None = None,
) -> tuple[Update, Knowledge]:
    """Return the change of a client's parameters, and what a server knows that receives it.

    The client took ``steps`` steps of gradient descent, each on all of its ``records``. ``after``
    is the module afterwards, or its state dict. ``classes`` is 0 for a regression; by default every
    output is a class.
    """
    shape = network(before, record_shape).record_shape
    step = _step(before, shape, classes == 0)
    state = after if isinstance(after, Mapping) else after.state_dict()
    names = list(before.state_dict())
    end = under_own_names(names, {name: _array(tensor) for name, tensor in state.items()})
    start = {name: _array(p) for name, p in before.named_parameters()}
    for reason in misfits({n: a.shape for n, a in start.items()}, end, more=True):
        raise InputError(f"after is not the module before, trained on: {reason}")
    release = Update({n: end[n] - a for n, a in start.items()}, batch_size=records, steps=steps)
    local = LocalSteps(step, SGD(learning_rate, momentum), steps)
    return release, _knowledge(local, shape, value_range, shadow_targets)


def _step(module: nn.Module, shape: tuple[int, ...], regression: bool) -> GradientStep:
    own = network(module, shape)
    return GradientStep(
        own,
        None if regression else tuple(range(own.outputs)),
        state={name: _array(p) for name, p in module.named_parameters()},
        buffers={name: _array(b) for name, b in module.named_buffers()} or None,
        batch_norm="train" if module.training else "eval",
    )


def _knowledge(
    training: GradientStep | LocalSteps,
    shape: tuple[int, ...],
    value_range: Range | None,
    shadow_targets: Given | None,
) -> Knowledge:
    return Knowledge(
        record_shape=shape,
        value_range=value_range,
        training=training,
        shadow_targets=None if shadow_targets is None else _records(shadow_targets),
    )


def _batch(
    module: nn.Module, x: ArrayLike | torch.Tensor, y: ArrayLike | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return records and labels as the module takes them; tensors stay what they are."""
    import torch

    like = next(module.parameters(), torch.zeros(1))
    if not torch.is_tensor(x):
        x = torch.tensor(np.asarray(x), dtype=like.dtype, device=like.device)
    if not torch.is_tensor(y):
        labels = np.asarray(y)
        whole = labels.dtype.kind in "iub"
        y = torch.tensor(labels, dtype=torch.int64 if whole else like.dtype, device=like.device)
    return x, y


def _records(given: Given) -> Records:
    """Return records of whatever holds them; a pair is records and labels."""
    if isinstance(given, Records):
        return given
    parts = given if isinstance(given, tuple) else (given,)
    return Records(*map(_array, parts))


def _is_regression(y: torch.Tensor) -> bool:
    return y.is_floating_point()


def _first_shape(module: nn.Module) -> tuple[int, ...]:
    from torch import nn

    first = next((m for m in module.modules() if list(m.parameters(recurse=False))), None)
    if not isinstance(first, nn.Linear):
        raise InputError("the shape of a record is unknown: give record_shape")
    return (first.in_features,)


def _array(values: ArrayLike | torch.Tensor) -> Array:
    import torch

    if not torch.is_tensor(values):
        return np.array(values)
    array: Array = values.detach().cpu().numpy().copy()
    return array
