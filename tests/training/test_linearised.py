"""Differences to first order: their error falls as the differences do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from exhume.models import MLP, Activation
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training import SGD, Adam, Batches, Training
from exhume.training.linearised import (
    Hessian,
    LinearisedSimulator,
    RecordByRecord,
    unlinearisable,
)
from exhume.training.many_mlps import FoldedSimulator, Moved

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 12))
LABELS, NUMBERS = RNG.integers(0, 3, 60), RNG.normal(size=60)


def training(classes=3, activation=Activation.ELU, **changes) -> Training:
    network = MLP((12,), classes or 1, (5,), activation)
    names = None if classes is None else tuple(range(classes))
    return Training(network, names, **{"optimiser": SGD(0.1, 0.9, 0.01), "epochs": 12, **changes})


def error(made: Training, repeats: int) -> float:
    """The median relative error on a fixed set that is so many copies of 50 records."""
    y = NUMBERS if made.classes is None else LABELS
    fixed_set = Records(np.tile(X[:50], (repeats, 1)), np.tile(y[:50], repeats))
    exact = FoldedSimulator(made, fixed_set, dtype=torch.float64).differences(X[50:], y[50:])
    found = LinearisedSimulator(made, fixed_set).differences(X[50:], y[50:])
    return float(np.median(np.linalg.norm(found - exact, axis=1) / np.linalg.norm(exact, axis=1)))


@pytest.mark.parametrize("activation", [Activation.ELU, Activation.TANH, Activation.SIGMOID])
@pytest.mark.parametrize("classes", [3, None])
def test_the_error_is_of_second_order(activation, classes):
    """Ten times the records, a tenth of the difference, a tenth of the relative error."""
    made = training(classes, activation)
    few, many = error(made, 4), error(made, 40)
    assert many < 0.15 * few
    assert many < 0.01


def test_known_mini_batches():
    """As many steps over ten times the records: again a tenth of the error, or so."""
    few = error(training(batches=Batches(150), epochs=6), 12)
    many = error(training(batches=Batches(1500), epochs=6), 120)
    assert many < 0.2 * few
    assert many < 0.01


def test_hessian_is_the_derivative_of_the_gradient():
    """Against finite differences of automatic gradients, along random directions."""
    made = training(optimiser=SGD(0.1))
    fixed_set = Records(X[:50], LABELS[:50])
    simulator = LinearisedSimulator(made, fixed_set)
    nominal = simulator.nominal
    step = list(nominal.steps())[5]
    moved, product = Moved.zero(nominal, 3), Moved.zero(nominal, 3)
    for part in (moved.first, moved.deeper[0]):
        part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(1)))
    Hessian.of(nominal, step).add_product(moved, product)
    blank = np.zeros((3, 13))
    found, directions = (each.unrotated(nominal, blank) for each in (product, moved))
    objective = made.objective("float64")
    theta = objective.tensor(nominal._trajectory[5])
    x, y = objective.tensor(X[:50]), objective.responses(LABELS[:50])
    for direction, column in zip(directions, found, strict=True):
        move = 1e-5 * objective.tensor(direction)
        ends = [objective.gradient(theta + s * move, x, y, count=51) for s in (1, -1)]
        np.testing.assert_allclose(column, ((ends[0] - ends[1]) / 2e-5).numpy(), atol=2e-5)


@pytest.mark.parametrize("classes", [3, None])
def test_products_need_no_hessian(classes):
    """The same differences from each record's curvature, and from Hessians that were stored."""
    made = training(classes)
    y = NUMBERS if classes is None else LABELS
    fixed_set = Records(X[:50], y[:50])

    def stored(nominal, step):
        arrays = Hessian.of(nominal, step).packed(nominal)
        return Hessian.unpacked(nominal, {name: array.copy() for name, array in arrays.items()})

    whole, without, again = (
        LinearisedSimulator(made, fixed_set, curvatures=way).differences(X[50:], y[50:])
        for way in (None, RecordByRecord, stored)
    )
    assert np.abs(whole).max() > 0.01
    np.testing.assert_allclose(without, whole, atol=1e-5)
    np.testing.assert_array_equal(again, whole)


def test_other_targets_do_not_matter():
    simulator = LinearisedSimulator(training(), Records(X[:50], LABELS[:50]))
    together = simulator.differences(X[50:], LABELS[50:])
    alone = simulator.differences(X[52:53], LABELS[52:53])
    np.testing.assert_allclose(alone[0], together[2], rtol=1e-3, atol=1e-6)
    assert simulator.differences(X[:0], LABELS[:0]).shape == (0, len(simulator.base))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (training(optimiser=Adam(0.01)), "gradient descent"),
        (Training(MLP((12,), 3, (4, 4)), (0, 1, 2)), "one hidden layer"),
        (Training(MLP((12,), 3, ()), (0, 1, 2)), "one hidden layer"),
    ],
)
def test_what_it_can_not_do_is_named(made, reason):
    assert reason in (unlinearisable(made) or "")
    with pytest.raises(InputError, match=reason):
        LinearisedSimulator(made, Records(X[:50], LABELS[:50]))
