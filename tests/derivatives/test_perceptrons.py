"""Passes through a perceptron by hand, in both libraries, beside automatic differentiation.

The batch has four known records with weights, and one more with share 2 of 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from exhume.derivatives.activations import CURVED, torch_library, with_curvature
from exhume.derivatives.objective import Loss, Objective
from exhume.derivatives.perceptron_numpy import Members, NarrowLayers, Signals
from exhume.derivatives.perceptron_torch import Layer, PerceptronFamily, forward_backward
from exhume.derivatives.step_products import Known, StepRecords, record_losses
from exhume.models import MLP, Activation

INPUTS, HIDDEN, OUTPUTS, COUNT, SHARE = 4, (5, 3), 2, 5, 2.0
WIDTHS = (INPUTS, *HIDDEN, OUTPUTS)
CASES = [
    pytest.param(activation, loss, id=f"{activation.value}-{loss.value}")
    for activation in sorted(CURVED, key=lambda a: a.value)
    for loss in Loss
]
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


@dataclass(frozen=True, eq=False)
class Problem:
    """A batch, parameters θ (P,), and moves of θ and of the record."""

    objective: Objective
    known: Known
    record: Tensor
    theta: Tensor
    moves: Tensor
    record_moves: Tensor

    @property
    def shares(self) -> Tensor:
        return torch.cat([self.known.weight, self.known.weight.new_tensor([SHARE])]) / COUNT

    def loss(self, theta: Tensor, record: Tensor) -> Tensor:
        """Return the batch's mean loss; its gradients are the oracle."""
        everyone = self.known.with_record(record)
        scores = self.objective.scores(theta, everyone.x)
        losses = record_losses(self.objective.loss, scores, everyone.labels)
        return losses @ self.shares

    def gradient(self, theta: Tensor, record: Tensor) -> Tensor:
        found: Tensor = torch.func.grad(self.loss)(theta, record)
        return found

    def whole(self) -> Tensor:
        """Return the second derivative (P + R, P + R) in θ and record."""
        size = len(self.theta)

        def loss(at: Tensor) -> Tensor:
            return self.loss(at[:size], at[size:])

        found: Tensor = torch.func.hessian(loss)(torch.cat([self.theta, self.record]))
        return found


def problem(activation: Activation, loss: Loss) -> Problem:
    draws = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draws, dtype=torch.float64)

    objective = Objective(MLP((INPUTS,), OUTPUTS, HIDDEN, activation), loss, dtype=torch.float64)
    labels = torch.rand((4, OUTPUTS), generator=draws, dtype=torch.float64)
    weight = torch.tensor([1.0, 0.0, 2.0, 1.0], dtype=torch.float64)
    size = INPUTS + OUTPUTS
    return Problem(
        objective,
        Known(normal(4, INPUTS), labels, weight),
        normal(size),
        normal(objective.size),
        normal(objective.size),
        normal(size),
    )


def unknown(case: Problem) -> tuple[Members, NarrowLayers, np.ndarray]:
    """Return the batch, layers and z₁ (width, n) as the NumPy passes take them."""
    everyone = case.known.with_record(case.record)
    entropic = case.objective.loss is Loss.CROSS_ENTROPY
    whole = Members.of(everyone.labels.numpy(), entropic)
    members = whole.take(slice(None), case.shares.numpy(), SHARE / COUNT)
    layers = NarrowLayers(WIDTHS, case.objective.network.activation, entropic)
    first = case.objective.unpack(case.theta)["1.weight"]
    return members, layers, (first @ everyone.x.T).numpy()


@pytest.mark.parametrize(("activation", "loss"), CASES)
class TestAgainstAutograd:
    def test_the_torch_gradient(self, activation, loss):
        case = problem(activation, loss)
        family = PerceptronFamily(WIDTHS, activation, loss, case.known)
        batch = StepRecords(None, SHARE, COUNT)
        found = family.with_record(case.record).gradient(case.theta, batch)
        torch.testing.assert_close(found, case.gradient(case.theta, case.record), **CLOSE)

    def test_the_torch_products(self, activation, loss):
        case = problem(activation, loss)
        family = PerceptronFamily(WIDTHS, activation, loss, case.known)
        here = family.with_record(case.record).expand(case.theta, StepRecords(None, SHARE, COUNT))
        second, size = case.whole(), len(case.theta)
        wanted = second @ torch.cat([case.moves, case.record_moves])
        found = here.times(case.moves, case.record_moves)
        torch.testing.assert_close(found, wanted[:size], **CLOSE)
        parameters, record = here.transposed_times(case.moves)
        torch.testing.assert_close(parameters, second[:size, :size] @ case.moves, **CLOSE)
        torch.testing.assert_close(record, second[size:, :size] @ case.moves, **CLOSE)

    def test_the_numpy_gradient(self, activation, loss):
        case = problem(activation, loss)
        members, layers, z = unknown(case)
        size = INPUTS * HIDDEN[0]
        here = Signals(layers, case.theta[size:].numpy(), z, members)
        wanted = case.gradient(case.theta, case.record)
        x = case.known.with_record(case.record).x.numpy()
        np.testing.assert_allclose((here.first @ x).ravel(), wanted[:size], **CLOSE)
        np.testing.assert_allclose(here.gradient, wanted[size:], **CLOSE)

    def test_the_numpy_products(self, activation, loss):
        """The first layer stands still but for its records: z₁ moves by W₁ times their moves."""
        case = problem(activation, loss)
        members, layers, z = unknown(case)
        size, parameters = INPUTS * HIDDEN[0], len(case.theta)
        rest, moves = case.theta[size:].numpy(), case.moves.clone()
        moves[:size] = 0.0
        first = case.theta[:size].reshape(HIDDEN[0], INPUTS)
        moved = np.zeros_like(z)
        moved[:, -1] = first @ case.record_moves[:INPUTS]
        here = Signals(layers, rest, z, members)
        second = case.whole()
        label = case.record_moves[INPUTS:]
        found = here.product(rest, moved.copy(), moves[size:].numpy(), label.numpy())
        wanted = second @ torch.cat([moves, case.record_moves])
        np.testing.assert_allclose(found.gradient, wanted[size:parameters], **CLOSE)
        entries = first.T.numpy() @ found.first[:, -1]
        np.testing.assert_allclose(entries, wanted[parameters : parameters + INPUTS], **CLOSE)
        still = torch.cat([case.record_moves[:INPUTS], torch.zeros(OUTPUTS, dtype=torch.float64)])
        found = here.product(rest, moved.copy(), moves[size:].numpy(), None)
        wanted = second @ torch.cat([moves, still])
        np.testing.assert_allclose(found.label, wanted[parameters + INPUTS :], **CLOSE)


def test_a_pass_keeps_the_slopes_in_the_values():
    """Autograd finds ``back`` in each hidden layer's values, and ``signals`` in its scores."""
    draws = torch.Generator().manual_seed(0)
    layers = [
        Layer(
            torch.randn((out, into), generator=draws, dtype=torch.float64),
            torch.randn((out, 1), generator=draws, dtype=torch.float64),
        )
        for into, out in ((3, 4), (4, 2))
    ]
    z = torch.randn((3, 6), generator=draws, dtype=torch.float64, requires_grad=True)
    activation = with_curvature(Activation.TANH, torch_library())

    def cubed(scores: Tensor) -> tuple[Tensor, Tensor]:
        return scores**2, scores

    found = forward_backward(z, layers, activation.second, cubed)
    total = (found.shares**3).sum() / 3.0
    ends = [*found.values, *found.z]
    wanted = torch.autograd.grad(total, ends)
    for own, one in zip([*found.back, *found.signals[:-1]], wanted, strict=True):
        torch.testing.assert_close(own, one)
    for bend, value, slope in zip(found.bends, found.values, found.slopes, strict=True):
        torch.testing.assert_close(bend, -2.0 * value * slope)
