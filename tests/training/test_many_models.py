"""The folded engine against one training after the other in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.models import CNN, MLP, Activation, Convolution
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training import SGD, Adam, Batches, DPClipping, Training
from exhume.training.fixed_set_run import span
from exhume.training.many_mlps import FoldedSimulator, unfoldable
from exhume.training.simulator import PlainSimulator, simulator_for

SMOOTH = (Activation.ELU, Activation.TANH, Activation.SIGMOID)


def problem(seed: int, *, shape=(3, 4), count=30, classes=3, weighted=False):
    """Records in which three features are combinations of others: the rank is not full."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count + 5, *shape))
    x[:, 0, :] = x[:, 1, :] - x[:, 2, :]
    x[count:, 0, :] = rng.normal(size=(5, shape[1]))
    y = rng.normal(size=count + 5) if classes is None else rng.integers(0, classes, count + 5)
    weight = rng.uniform(0.2, 2.0, count) if weighted else None
    return Records(x[:count], y[:count], weight), Records(x[count:], y[count:])


def training(classes=3, **changes) -> Training:
    hidden, activation = changes.pop("hidden", (5,)), changes.pop("activation", Activation.ELU)
    outputs = 1 if classes is None else classes
    network = MLP((3, 4), outputs, hidden=hidden, activation=activation)
    names = None if classes is None else tuple(range(classes))
    settings_ = {"optimiser": SGD(0.1, 0.9), "epochs": 15, **changes}
    return Training(network, names, **settings_)


def relative(found: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """‖error‖ / ‖θᵢ − θ₋‖ of every model."""
    return np.linalg.norm(found - reference, axis=1) / np.linalg.norm(reference, axis=1)


class TestAgainstPlain:
    @settings(deadline=None, max_examples=25)
    @given(
        hidden=st.sampled_from([(), (5,), (6, 4), (3, 3, 3)]),
        activation=st.sampled_from(SMOOTH),
        momentum=st.sampled_from([0.0, 0.9]),
        decay=st.sampled_from([0.0, 0.05]),
        batches=st.sampled_from([None, Batches(7, seed=2), Batches(9, seed=1, poisson=True)]),
        classes=st.sampled_from([None, 3]),
        weighted=st.booleans(),
        seed=st.integers(0, 999),
    )
    def test_any_setting(
        self, hidden, activation, momentum, decay, batches, classes, weighted, seed
    ):
        fixed_set, targets = problem(seed, classes=classes, weighted=weighted)
        made = training(
            classes,
            hidden=hidden,
            activation=activation,
            optimiser=SGD(0.05, momentum, decay),
            batches=batches,
            epochs=6,
        )
        y = made.responses(targets.labels)
        plain = PlainSimulator(made, fixed_set)
        double = FoldedSimulator(made, fixed_set, dtype=torch.float64, chunk=2, tile=8)
        np.testing.assert_allclose(double.base, plain.base, rtol=1e-9, atol=1e-12)
        reference = plain.differences(targets.x, y)
        assert relative(double.differences(targets.x, y), reference).max() < 1e-8
        single = FoldedSimulator(made, fixed_set).differences(targets.x, y)
        assert relative(single, reference).max() < 1e-4

    @pytest.mark.parametrize("activation", [Activation.RELU, Activation.LEAKY_RELU])
    def test_kinks(self, activation):
        """The same in float64; float32 may land on another side of a kink."""
        fixed_set, targets = problem(3)
        made = training(activation=activation, hidden=(8, 4))
        y = made.responses(targets.labels)
        reference = PlainSimulator(made, fixed_set).differences(targets.x, y)
        double = FoldedSimulator(made, fixed_set, dtype=torch.float64).differences(targets.x, y)
        assert relative(double, reference).max() < 1e-8

    def test_target_within_the_span(self):
        """A copy of a known record has nothing outside it."""
        fixed_set, _ = problem(4)
        made = training()
        y = made.responses(fixed_set.labels[:3])
        reference = PlainSimulator(made, fixed_set).differences(fixed_set.x[:3], y)
        found = FoldedSimulator(made, fixed_set).differences(fixed_set.x[:3], y)
        assert relative(found, reference).max() < 1e-5


def test_errors_stay_relative_to_a_small_difference():
    """A hundred times the records, a hundredth of the difference: no digit is lost.

    The plain loop in float32 loses them, and shows that the comparison can tell.
    """
    fixed_set, targets = problem(5, count=1500)
    made = training(optimiser=SGD(0.2, 0.9), epochs=30)
    y = made.responses(targets.labels[:3])
    reference = PlainSimulator(made, fixed_set).differences(targets.x[:3], y)
    found = FoldedSimulator(made, fixed_set).differences(targets.x[:3], y)
    assert relative(found, reference).max() < 1e-5
    single = made.objective("float32")
    plain = [
        made.run(single, fixed_set.with_record(targets.take([i])), rng=np.random.default_rng(0))
        for i in range(3)
    ]
    subtracted = np.array([theta.numpy() for theta in plain]) - PlainSimulator(made, fixed_set).base
    assert relative(subtracted, reference).min() > 1e-5


def test_other_targets_do_not_matter():
    fixed_set, targets = problem(6)
    made = training()
    simulator, y = FoldedSimulator(made, fixed_set), made.responses(targets.labels)
    together = simulator.differences(targets.x, y)
    alone = np.concatenate(
        [simulator.differences(targets.x[i : i + 1], y[i : i + 1]) for i in range(5)]
    )
    assert relative(alone, together).max() < 1e-5
    assert np.array_equal(together, simulator.differences(targets.x, y))
    assert simulator.differences(targets.x[:0], y[:0]).shape == (0, len(simulator.base))


def test_targets_are_left_alone():
    fixed_set, targets = problem(7)
    made = training()
    before = targets.x.copy()
    FoldedSimulator(made, fixed_set).differences(targets.x, made.responses(targets.labels))
    assert np.array_equal(targets.x, before)


def test_tiles_are_computed_again_where_they_do_not_fit(monkeypatch):
    fixed_set, targets = problem(8)
    made = training(batches=Batches(7))
    y = made.responses(targets.labels)
    kept = FoldedSimulator(made, fixed_set).differences(targets.x, y)
    monkeypatch.setattr("exhume.training.fixed_set_run._KEPT_BYTES", 0)
    again = FoldedSimulator(made, fixed_set)
    assert np.array_equal(again.differences(targets.x, y), kept)
    assert np.array_equal(again.differences(targets.x, y), kept)


class TestSpan:
    @pytest.mark.parametrize("shape", [(30, 8), (5, 8), (8, 8)])
    def test_is_orthonormal_and_complete(self, shape):
        rows = np.random.default_rng(0).normal(size=shape)
        rows[:, 0] = rows[:, 1]
        basis = span(rows)
        assert basis.shape[1] == np.linalg.matrix_rank(rows)
        np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-13)
        np.testing.assert_allclose(rows @ basis @ basis.T, rows, atol=1e-12)


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"optimiser": Adam(0.01)}, "gradient descent"),
            ({"clipping": DPClipping(1.0, 0.0)}, "clipping"),
            ({"activation": Activation.GELU}, "gelu"),
        ],
    )
    def test_what_does_not_fold_says_why(self, changes, reason):
        made = training(**changes)
        assert reason in (unfoldable(made) or "")
        with pytest.raises(InputError, match=reason):
            FoldedSimulator(made, problem(0)[0])

    def test_convolutions_do_not_fold(self):
        made = Training(CNN((6, 6), 2, (Convolution(2, 3),)), (0, 1))
        assert "share" in (unfoldable(made) or "")

    def test_divergence_is_named(self):
        fixed_set, _ = problem(1, classes=None)
        with pytest.raises(InputError, match=r"diverged.*learning rate 50"):
            FoldedSimulator(training(None, optimiser=SGD(50.0), epochs=300), fixed_set)

    def test_one_target_that_diverges_is_named(self):
        fixed_set, targets = problem(1, classes=None)
        made = training(None, optimiser=SGD(0.05), epochs=200)
        simulator = FoldedSimulator(made, fixed_set)
        with pytest.raises(InputError, match="diverged"):
            simulator.differences(1e4 * targets.x[:1], targets.labels[:1])

    def test_wrong_shape_is_named(self):
        fixed_set = Records(np.zeros((4, 2, 6)), np.zeros(4, dtype=int))
        with pytest.raises(InputError, match=r"shape \(2, 6\), the network takes \(3, 4\)"):
            simulator_for(training(), fixed_set)
