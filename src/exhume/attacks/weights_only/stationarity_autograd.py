"""The stationarity condition of any network, with a gradient by automatic differentiation.

It is slower than the explicit gradient, but works for anything PyTorch can differentiate twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from exhume.attacks.weights_only.read_weights import GeneralNetwork, HiddenLayer, Released
from exhume.attacks.weights_only.row_span import Coordinates, RowSpan
from exhume.attacks.weights_only.stationarity import (
    Gradients,
    Stationarity,
    StationarityProblem,
    class_directions,
    direction_weights,
)
from exhume.derivatives.objective import Objective

_RECTIFIERS = (functional.relu, torch.relu, Tensor.relu)


class SmoothSlopes(TorchFunctionMode):
    """Context in which a ReLU keeps its value but has the derivative sigmoid(``slope``·z).

    Records can then cross a kink. It applies to modules and functions, in any network.
    """

    def __init__(self, slope: Tensor) -> None:
        super().__init__()
        self.slope = slope

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _RECTIFIERS:
            return _smoothed(args[0], self.slope, 0.0)
        if func is functional.leaky_relu:
            rest = dict(kwargs or {})
            return _smoothed(args[0], self.slope, rest.get("negative_slope", (*args, 0.01)[1]))
        return func(*args, **(kwargs or {}))


class _Rectified(torch.autograd.Function):
    """A (leaky) ReLU with derivative below + (1 − below)·sigmoid(slope·z), twice differentiable."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, slope: Tensor, below: float) -> Tensor:
        return torch.where(z > 0, z, below * z) if below else z.relu()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])
        ctx.below = inputs[2]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        z, slope = ctx.saved_tensors
        smooth = torch.sigmoid(slope * z)
        return (
            gradients[0] * (ctx.below + (1.0 - ctx.below) * smooth if ctx.below else smooth),
            None,
            None,
        )


def _smoothed(z: Tensor, slope: Tensor, below: float) -> Tensor:
    rectified: Tensor = _Rectified.apply(z, slope, below)  # type: ignore[no-untyped-call]
    return rectified


class _Given(nn.Module):
    """Replaces the first layer: returns a given value and ignores its input."""

    def __init__(self) -> None:
        super().__init__()
        self.value: Tensor | None = None

    def forward(self, _: Tensor) -> Tensor:
        assert self.value is not None
        return self.value


class _Listening:
    """Context that records the inputs and outputs of some layers."""

    def __init__(self, layers: Mapping[str, nn.Linear]) -> None:
        self.layers = layers
        self.inputs: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        self.calls = dict.fromkeys(layers, 0)

    def __enter__(self) -> _Listening:
        self.handles = [m.register_forward_hook(self._noting(n)) for n, m in self.layers.items()]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()

    def _noting(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            self.inputs[name], self.outputs[name] = inputs[0], output
            self.calls[name] += 1

        return note


class AnyStationarity:
    """‖θ − Σ C ∇f‖² of any network, for a batch of restarts at once; see ``Stationarity``.

    In the coordinates of a span, the first layer is never evaluated on pixels: its outputs are
    q · (W basisᵀ)ᵀ, its gradient is the backpropagated error times q, and its residual is weighted.
    """

    def __init__(
        self,
        network: GeneralNetwork,
        coordinates: Coordinates,
        *,
        level: float = 0.005,
        change: GeneralNetwork | None = None,
    ) -> None:
        self.map, self.record_shape = coordinates.map, network.network.record_shape
        objective = Objective(network.network, dtype=self.map.offset.dtype, batch_norm="eval")
        self.module, self.given = objective.module, _Given()
        self.theta = objective.unpack(objective.flat(network.parameters))
        wanted = network if change is None else change
        self.wanted = objective.unpack(objective.flat(wanted.parameters))
        self.subtracted = objective.tensor(network.subtracted)
        self.size, self.span = 0.0, coordinates if isinstance(coordinates, RowSpan) else None
        if self.span is not None:
            assert network.first is not None
            assert wanted.first is not None
            self.weight = direction_weights(self.span, level)
            self.first = objective.tensor(network.first) @ self.span.basis.T
            self.wanted_first = objective.tensor(wanted.first) @ self.span.basis.T
            self.size = float((self.wanted_first * self.weight).square().sum())
            self.module.set_submodule(network.first_name, self.given)
            for part in ("weight", "bias"):
                self.theta.pop(f"{network.first_name}.{part}", None)
                self.wanted.pop(f"{network.first_name}.{part}", None)
        self.size += sum(float(part.square().sum()) for part in self.wanted.values())
        self.layers = self._linear_layers(coordinates.rank)
        self.together = True
        self.together = self._takes_a_batch(coordinates.rank)

    def evaluate(self, q: Tensor, rho: Tensor, classes: Tensor, slope: Tensor) -> Gradients:
        """Return value and gradients at coordinates ``q`` (B, m, r), multipliers exp(``rho``)."""
        if self.layers is not None:
            return self._among_layers(q, rho, classes, slope)
        both = torch.func.grad_and_value(self._residual, argnums=(0, 1))
        if self.together:
            each = torch.func.vmap(both, in_dims=(0, 0, 0, None))
            (dq, drho), value = each(q, rho, slope, classes)
            return Gradients(value, dq, drho)
        ends = [both(*one, classes) for one in zip(q, rho, slope, strict=True)]
        gradients = [torch.stack([end[0][k] for end in ends]) for k in (0, 1)]
        return Gradients(torch.stack([end[1] for end in ends]), *gradients)

    def _residual(self, q: Tensor, rho: Tensor, slope: Tensor, classes: Tensor) -> Tensor:
        """Return the squared residual of one restart: ``q`` (m, r), ``rho`` (m,)."""
        entering = self._entering(q)

        def pull(theta: dict[str, Tensor], entering: Tensor) -> Tensor:
            with SmoothSlopes(slope):
                scores = self._scores(theta, entering)
            directions = class_directions(scores.detach(), classes)
            return (rho.exp()[:, None] * directions * scores).sum()

        if self.span is None:
            left, found = q.new_zeros(()), torch.func.grad(pull)(self.theta, entering)
        else:
            found, back = torch.func.grad(pull, argnums=(0, 1))(self.theta, entering)
            left = ((self.wanted_first - back.T @ q) * self.weight).square().sum()
        for name, wanted in self.wanted.items():
            left = left + (wanted - found[name]).square().sum()
        return left

    @torch.enable_grad()
    def _among_layers(self, q: Tensor, rho: Tensor, classes: Tensor, slope: Tensor) -> Gradients:
        """Return value and gradients if every parameter belongs to a linear layer.

        A layer's gradient is its backpropagated error times its input. All restarts therefore pass
        the network in one batch, and only these products are computed per restart.
        """
        assert self.layers is not None
        count, each = q.shape[:2]
        q, rho = q.detach().requires_grad_(), rho.detach().requires_grad_()
        entering = self._entering(q).flatten(0, 1)
        with SmoothSlopes(slope.repeat_interleave(each)[:, None]), _Listening(self.layers) as heard:
            scores = self._scores(self.theta, entering).view(count, each, -1)
        directions = class_directions(scores.detach(), classes)
        pull = (rho.exp()[..., None] * directions * scores).sum()
        outputs = [entering, *(heard.outputs[name] for name in self.layers)]
        backs = torch.autograd.grad(pull, outputs, create_graph=True)
        back, *others = (one.reshape(count, each, -1) for one in backs)
        left = self._first_gap(back, q)
        for name, one in zip(self.layers, others, strict=True):
            inputs = heard.inputs[name].reshape(count, each, -1)
            gap = self.wanted[f"{name}.weight"] - one.transpose(1, 2) @ inputs
            left = left + gap.square().sum((1, 2))
            if f"{name}.bias" in self.wanted:
                left = left + (self.wanted[f"{name}.bias"] - one.sum(1)).square().sum(1)
        dq, drho = torch.autograd.grad(left.sum(), (q, rho))
        return Gradients(left.detach(), dq, drho)

    def _first_gap(self, back: Tensor, q: Tensor) -> Tensor:
        """Return the first layer's squared residual (B,) in the span, or zeros without a span."""
        if self.span is None:
            return q.new_zeros(len(q))
        gap = (self.wanted_first - back.transpose(1, 2) @ q) * self.weight
        return gap.square().sum((1, 2))

    def _linear_layers(self, rank: int) -> dict[str, nn.Linear] | None:
        """Return the linear layers (in a span, those after the first) if they own all parameters.

        Returns None if there are other parameters, or if a layer or its weight is used twice.
        """
        found = {n: m for n, m in self.module.named_modules() if isinstance(m, nn.Linear)}
        own = {f"{n}.{part}" for n in found for part in ("weight", "bias")}
        each = all(f"{n}.weight" in self.theta for n in found)
        if not found or not each or not set(self.theta) <= own:
            return None
        with torch.no_grad(), _Listening(found) as heard:
            self._scores(self.theta, self._entering(self.subtracted.new_zeros(2, rank)))
        once = all(heard.calls[name] == 1 and heard.inputs[name].ndim == 2 for name in found)
        return found if once else None

    def _entering(self, q: Tensor) -> Tensor:
        """Return the module's input: the first layer's outputs, or the records."""
        if self.span is not None:
            return q @ self.first.T
        x = self.map.records(q) - self.subtracted
        return x.reshape(*x.shape[:-1], *self.record_shape)

    def _scores(self, theta: dict[str, Tensor], entering: Tensor) -> Tensor:
        x = entering
        if self.span is not None:
            self.given.value = entering
            x = entering.new_zeros(len(entering), *self.record_shape)
        scores: Tensor = functional_call(self.module, theta, (x,))
        return scores

    def _takes_a_batch(self, rank: int) -> bool:
        """Whether restarts can be evaluated in one batch; some modules can't be vectorised."""
        q = self.subtracted.new_zeros(2, 2, rank)
        try:
            self.evaluate(q, q[..., 0], torch.zeros(2, dtype=torch.long), q[:, 0, 0] + 50.0)
        except (RuntimeError, NotImplementedError):
            return False
        return True


def problem_of(
    network: Released, coordinates: Coordinates, *, change: Released | None = None
) -> StationarityProblem:
    """Return the stationarity condition, with an explicit gradient for one hidden layer."""
    if isinstance(network, HiddenLayer):
        assert isinstance(coordinates, RowSpan)
        assert change is None or isinstance(change, HiddenLayer)
        return Stationarity(network, coordinates, change=change)
    assert change is None or isinstance(change, GeneralNetwork)
    return AnyStationarity(network, coordinates, change=change)
