"""Training by a loop of the user's own: ``train(x, y, *, seed)`` returns a model."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from exhume.models.base import Network, misfits, unwrapped
from exhume.models.own_code import OwnCode
from exhume.protocol.arrays import Array, FloatArray
from exhume.protocol.errors import DivergedError, InputError
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.model import Label, Model

if TYPE_CHECKING:
    import torch
    from torch import nn

_MODULES: dict[OwnCode, nn.Module] = {}
"""One module for each loop that has run in this process; released weights are loaded into it."""
_BARE: set[OwnCode] = set()
"""Loops that have returned a state dict."""
_AT_ONCE = 1000
"""The number of records in one evaluation of a model."""


@dataclass(frozen=True)
class Loop(Model):
    """Calls ``train(x, y, seed=...)`` and releases the parameters and buffers of the result.

    ``code`` is the function. ``x`` (n, *record shape) and ``y`` (n,) are NumPy arrays in the data's
    own form, ``seed`` an int below 2³¹. It returns a torch module or a state dict. ``classes``
    lists the labels in the order of the model's outputs, None for a regression. ``network`` is the
    architecture, which only state dicts need. Everybody knows the loop. ``seed`` is the seed of
    every training if everybody knows it, too; None draws a secret one for each training.
    """

    code: OwnCode
    classes: tuple[Label, ...] | None
    network: Network | None = None
    seed: int | None = None

    def publish(self, data: Records, *, rng: np.random.Generator) -> Weights:
        """Train on ``data`` with a seed drawn from ``rng``, or with the known one.

        If the loop draws numbers that do not come from its seed, they come from ``rng``, and are
        secret.
        """
        drawn, ambient = (int(one) for one in rng.integers(2**31, size=2))
        seed = drawn if self.seed is None else self.seed
        return Weights(self.trained(data, seed, ambient=ambient))

    def trained(self, data: Records, seed: int, *, ambient: int = 0) -> dict[str, Array]:
        """Return the parts of the loop's model after training on ``data``, by name.

        The global random streams start at ``(seed, ambient)``: a loop that seeds its own draws does
        not depend on ``ambient``.
        """
        import torch

        if data.weight is not None:
            raise InputError(f"{self.code.source} takes no weights of records")
        train: Callable[..., object] = self.code.function()
        x, y = np.array(data.x), np.array(data.labels)
        with _streams(seed, ambient):
            try:
                found = train(x, y, seed=seed)
            except InputError:
                raise
            except Exception as error:
                raise InputError(f"{self.code.source} stopped with {_told(error)}") from error
        if isinstance(found, torch.nn.Module):
            _MODULES[self.code] = found.eval()
            found = found.state_dict()
        else:
            _BARE.add(self.code)
        arrays = _arrays(found, self.code.source)
        arrays = dict(zip(unwrapped(arrays), arrays.values(), strict=True))
        bad = next((n for n, a in arrays.items() if not np.isfinite(a).all()), None)
        if bad is not None:
            raise DivergedError(f"{self.code.source} diverged: {bad!r} is not finite")
        return arrays

    @property
    def answers(self) -> bool:
        """Whether a release gives scores; true until the loop returns a state dict."""
        return self.network is not None or self.code not in _BARE

    @property
    def awake(self) -> bool:
        """Whether a run in this process has shown if weights can be loaded into a model."""
        return self.network is not None or self.code in _MODULES or self.code in _BARE

    def scores(self, release: Weights, x: Array) -> FloatArray:
        """Return the model's raw scores (n, outputs); probabilities become their logarithms."""
        import torch

        module = self._alive(release)
        parts = [np.asarray(x[i : i + _AT_ONCE]) for i in range(0, len(x), _AT_ONCE)]
        with torch.no_grad():
            found = [_asked(module, part, self.code.source) for part in parts]
        scores = np.concatenate(found) if found else np.empty((0, len(self.classes or "1")))
        return _of_classes(scores, self.classes, self.code.source)

    def means(self, scores: FloatArray) -> FloatArray:
        """Return class probabilities, or the predicted responses of a regression."""
        from scipy.special import expit, softmax

        if self.classes is None:
            return scores
        if scores.shape[1] == 1:
            return np.asarray(np.hstack([expit(-scores), expit(scores)]))
        return np.asarray(softmax(scores, axis=1))

    def describe(self) -> str:
        """Return the function's name, and whether the adversary has its seed."""
        known = "a secret seed" if self.seed is None else f"the known seed {self.seed}"
        return f"a model trained by {self.code.source} with {known}"

    def misfit(self, release: Weights) -> str | None:
        """Return why weights can't be those of a model of this loop, or None."""
        if not self.answers:
            return None
        own = self._module().state_dict()
        shapes = [tuple(tensor.shape) for tensor in own.values()]
        reasons = misfits(dict(zip(unwrapped(own), shapes, strict=True)), release.parameters)
        reason = next(iter(reasons), None)
        return None if reason is None else f"the model of {self.code.source}: {reason}"

    def _module(self) -> nn.Module:
        module = _MODULES.get(self.code)
        if self.network is not None:
            module = self.network.module().eval()
        if module is None:
            raise InputError(
                f"{self.code.source} returns a state dict: give its architecture as "
                "release.model = 'package.module:function'"
            )
        return module

    def _alive(self, release: Weights) -> nn.Module:
        """Return a module with the released parameters."""
        import torch

        module, reason = self._module(), self.misfit(release)
        if reason is not None:
            raise InputError(reason)
        state = module.state_dict()
        with torch.no_grad():
            for name, tensor in zip(unwrapped(state), state.values(), strict=True):
                tensor.copy_(torch.as_tensor(np.array(release.parameters[name])))
        return module


@contextmanager
def _streams(seed: int, ambient: int) -> Iterator[None]:
    """Start the global random streams for one training, and restore them afterwards."""
    import torch

    before = random.getstate(), np.random.get_state()  # noqa: NPY002 (a loop may draw from it)
    start = int(np.random.SeedSequence([seed, ambient]).generate_state(1)[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(start)
        random.seed(start)
        np.random.seed(start)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002


def _told(error: Exception) -> str:
    """Return the error in one line, with the line of code that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return f"{message} ({frame.filename}, line {frame.lineno})"


def _arrays(state: object, source: str) -> dict[str, Array]:
    """Return a state dict as arrays; a loop may train in a precision that NumPy lacks."""
    import torch

    if not isinstance(state, Mapping) or not state:
        raise InputError(f"{source} must return a torch module or a state dict, got {type(state)}")
    found: dict[str, Array] = {}
    for name, value in state.items():
        if torch.is_tensor(value):
            value = value.detach().cpu()
            value = (value.float() if value.dtype is torch.bfloat16 else value).numpy()
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
            raise InputError(f"{source}: {name!r} of the state dict is no tensor of numbers")
        found[str(name)] = np.array(value)
    return found


def _asked(module: nn.Module, x: Array, source: str) -> FloatArray:
    """Return scores (n, outputs), with the records in the layout that the module takes.

    A loop may move the channels of images to the front, add them, or flatten the records.
    """
    import torch

    parameter = next(module.parameters(), None)
    dtype = torch.float32 if parameter is None else parameter.dtype
    device = None if parameter is None else parameter.device
    plain = torch.as_tensor(np.array(x), dtype=dtype, device=device)
    problem = ""
    for view in _views(plain):
        try:
            found = module(view)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            problem = problem or str(error).splitlines()[0]
            continue
        if torch.is_tensor(found) and found.ndim in (1, 2) and len(found) == len(x):
            scores = found.reshape(len(x), -1).double().cpu().numpy()
            return np.asarray(scores)
        problem = problem or "it does not give one row of scores per record"
    raise InputError(f"the model of {source} can't be asked about records {x.shape[1:]}: {problem}")


def _views(x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield x
    if x.ndim == 4:
        yield x.permute(0, 3, 1, 2)
    if x.ndim == 3:
        yield x.unsqueeze(1)
    if x.ndim > 2:
        yield x.flatten(1)


def _of_classes(scores: FloatArray, classes: tuple[Label, ...] | None, source: str) -> FloatArray:
    """Return the scores of the existing classes, in their order."""
    if classes is None:
        if scores.shape[1] != 1:
            raise InputError(
                f"labels that are no classes need one output, the model of {source} has "
                f"{scores.shape[1]}"
            )
        return scores
    if scores.shape[1] == 1 and len(classes) == 2:
        return scores
    if scores.shape[1] != len(classes):
        places = [c for c in classes if isinstance(c, int) and 0 <= c < scores.shape[1]]
        if len(places) < len(classes):
            raise InputError(
                f"the model of {source} has {scores.shape[1]} outputs for {len(classes)} classes"
            )
        scores = scores[:, places]
    if len(scores) and scores.min() >= 0 and np.allclose(scores.sum(axis=1), 1.0, atol=1e-4):
        return np.asarray(np.log(np.maximum(scores, np.finfo(np.float64).tiny)))
    return scores


@dataclass(frozen=True)
class Repetition:
    """The result of training twice with one seed: the largest difference of a number."""

    source: str
    difference: float

    @property
    def exact(self) -> bool:
        """Whether both models were equal, bit for bit."""
        return self.difference == 0.0

    def describe(self) -> str:
        """Return the result as a sentence."""
        if self.exact:
            return f"{self.source}, run twice with one seed, gave the same model, bit for bit."
        return (
            f"{self.source}, run twice with one seed, gave different models (by up to "
            f"{self.difference:.2g}): something that it draws does not come from the seed."
        )


def repetition(loop: Loop, data: Records, seed: int = 0) -> Repetition:
    """Train twice on ``data`` with one seed, from different global random streams."""
    one, two = (loop.trained(data, seed, ambient=ambient) for ambient in (0, 1))
    reason = next(iter(misfits({n: a.shape for n, a in one.items()}, two)), None)
    if reason is not None:
        raise InputError(f"{loop.code.source} gives models of different shapes: {reason}")
    apart = [
        float(np.abs(one[n].astype(np.float64) - two[n].astype(np.float64)).max(initial=0.0))
        for n in one
    ]
    return Repetition(loop.code.source, max(apart))
