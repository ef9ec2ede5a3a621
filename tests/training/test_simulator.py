"""Simulators beside the mechanism that they stand for, and beside each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.docs.pages import Session, blocks

from exhume.models import CNN, MLP, Activation, Convolution, Initialisation, Network
from exhume.protocol.errors import InputError
from exhume.protocol.records import Records
from exhume.training import SGD, Adam, Batches, DPClipping, Training
from exhume.training.linearised import LinearisedSimulator
from exhume.training.many_mlps import FoldedSimulator
from exhume.training.many_models import BatchedSimulator, fitting
from exhume.training.simulator import (
    PlainSimulator,
    repeatable,
    simulator_for,
)

IMAGES = CNN((6, 6), 3, (Convolution(3, 3, 2), Convolution(4, 2)))


def problem(seed=0, *, count=20, weighted=False):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(size=(count + 4, 6, 6)), rng.integers(0, 3, count + 4)
    weight = rng.uniform(0.5, 2.0, count) if weighted else None
    return Records(x[:count], y[:count], weight), Records(x[count:], y[count:])


def relative(found, reference):
    return np.linalg.norm(found - reference, axis=1) / np.linalg.norm(reference, axis=1)


@dataclass(frozen=True)
class Normalised(Network):
    """A small network with batch normalisation."""

    record_shape = (6, 6)
    outputs = 3

    def build(self):
        from torch import nn

        layers = nn.Flatten(), nn.Linear(36, 4), nn.BatchNorm1d(4), nn.ELU(), nn.Linear(4, 3)
        return nn.Sequential(*layers)

    def describe(self):
        return "a network with batch normalisation"


VARIANTS = {
    "folds": Training(MLP((6, 6), 3, (4,)), (0, 1, 2), SGD(0.1, 0.9), 8),
    "images": Training(IMAGES, (0, 1, 2), SGD(0.1, 0.9), 8),
    "adam": Training(MLP((6, 6), 3, (4,)), (0, 1, 2), Adam(0.01), 8),
    "clipped": Training(
        MLP((6, 6), 3, (4,)), (0, 1, 2), SGD(0.1), 8, clipping=DPClipping(0.5, 0.0)
    ),
    "batches": Training(IMAGES, (0, 1, 2), Adam(0.01), 3, Batches(6)),
}


@pytest.mark.parametrize("made", VARIANTS.values(), ids=list(VARIANTS))
def test_a_simulation_is_what_the_mechanism_would_release(made):
    """Base plus difference beside ``publish`` in float64, which knows nothing of simulators."""
    fixed_set, targets = problem()
    made = Training(**{**vars(made), "precision": "float64"})
    simulator = simulator_for(made, fixed_set)
    found = simulator.base + simulator.differences(targets.x, made.responses(targets.labels))
    for i in range(len(targets)):
        data = fixed_set.with_record(targets.take([i]))
        release = made.publish(data, rng=np.random.default_rng(9))
        theta = np.concatenate([part.ravel() for part in release.parameters.values()])
        assert np.linalg.norm(found[i] - theta) < 1e-5 * np.linalg.norm(theta - simulator.base)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("folds", FoldedSimulator),
        ("images", PlainSimulator),
        ("adam", BatchedSimulator),
        ("clipped", PlainSimulator),
    ],
)
def test_the_fastest_is_taken(name, kind):
    assert type(simulator_for(VARIANTS[name], problem()[0])) is kind


def test_large_problems_are_trained_one_by_one():
    """Where one model's activations fill the memory that is allowed, batching gains nothing."""
    wide = Training(CNN((32, 32, 3), 10), tuple(range(10)))
    assert fitting(wide, 50_000) == 1
    assert fitting(wide, 5) > 1


@pytest.mark.parametrize(
    "kind", [PlainSimulator, FoldedSimulator, BatchedSimulator, LinearisedSimulator]
)
class TestEveryEngine:
    def test_targets_of_another_shape_are_refused(self, kind):
        simulator = kind(VARIANTS["folds"], problem()[0])
        with pytest.raises(InputError, match=r"shape \(36,\), the network takes \(6, 6\)"):
            simulator.differences(np.zeros((2, 36)), np.zeros(2, dtype=int))

    def test_no_targets_no_differences(self, kind):
        simulator = kind(VARIANTS["folds"], problem()[0])
        none = simulator.differences(np.zeros((0, 6, 6)), np.zeros(0, dtype=int))
        assert none.shape == (0, len(simulator.base))


def test_the_page_shows_what_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session, todo = Session(), blocks("docs/explanation/training.md")
    for block in todo:
        session.run(block)
    assert sum(block.language == "python" for block in todo) >= 2


class TestBatched:
    @settings(deadline=None, max_examples=12)
    @given(
        network=st.sampled_from([IMAGES, MLP((6, 6), 3, (4, 3), Activation.GELU)]),
        optimiser=st.sampled_from([SGD(0.1, 0.9, 0.01), SGD(0.2), Adam(0.01), Adam(0.01, 0.5)]),
        batches=st.sampled_from([None, Batches(6), Batches(3, seed=4, poisson=True)]),
        weighted=st.booleans(),
        seed=st.integers(0, 99),
    )
    def test_any_setting(self, network, optimiser, batches, weighted, seed):
        fixed_set, targets = problem(seed, weighted=weighted)
        made = Training(network, (0, 1, 2), optimiser, 4, batches)
        y = made.responses(targets.labels)
        plain, batched = PlainSimulator(made, fixed_set), BatchedSimulator(made, fixed_set, chunk=3)
        np.testing.assert_allclose(batched.base, plain.base, rtol=1e-9, atol=1e-12)
        found = batched.differences(targets.x, y)
        assert relative(found, plain.differences(targets.x, y)).max() < 1e-7

    def test_layers_that_mix_a_batch(self):
        """Under batch normalisation the target moves everybody's scores."""
        fixed_set, targets = problem()
        made = Training(Normalised(), (0, 1, 2), SGD(0.1, 0.9), 5)
        y = made.responses(targets.labels)
        plain, batched = PlainSimulator(made, fixed_set), BatchedSimulator(made, fixed_set)
        whole = plain.base + plain.differences(targets.x, y)
        found = batched.base + batched.differences(targets.x, y)
        assert relative(found - plain.base, whole - plain.base).max() < 1e-9

    def test_regression(self):
        fixed_set, targets = problem()
        made = Training(CNN((6, 6), 1, (Convolution(2, 3),)), None, SGD(0.05, 0.9), 6)
        y = np.linspace(-1, 1, len(targets))
        reference = PlainSimulator(made, fixed_set).differences(targets.x, y)
        found = BatchedSimulator(made, fixed_set).differences(targets.x, y)
        assert relative(found, reference).max() < 1e-9

    def test_single_precision_is_less_precise(self):
        """What the default avoids: errors relative to the difference."""
        fixed_set, targets = problem(count=60)
        made = Training(IMAGES, (0, 1, 2), SGD(0.1, 0.9), 20)
        y = made.responses(targets.labels)
        double = BatchedSimulator(made, fixed_set).differences(targets.x, y)
        single = BatchedSimulator(made, fixed_set, dtype=torch.float32).differences(targets.x, y)
        assert 1e-8 < relative(single, double).max() < 1e-3

    def test_other_targets_do_not_matter(self):
        fixed_set, targets = problem()
        made = VARIANTS["images"]
        simulator, y = BatchedSimulator(made, fixed_set), made.responses(targets.labels)
        alone = simulator.differences(targets.x[2:3], y[2:3])
        assert relative(alone, simulator.differences(targets.x, y)[2:3]).max() < 1e-10
        assert simulator.differences(targets.x[:0], y[:0]).shape == (0, len(simulator.base))

    def test_divergence_is_named(self):
        """Squared error and a huge rate."""
        fixed_set, _ = problem()
        made = Training(CNN((6, 6), 1, (Convolution(2, 3),)), None, SGD(80.0), 300)
        with pytest.raises(InputError, match=r"diverged.*learning rate 80"):
            BatchedSimulator(made, fixed_set)

    def test_clipping_is_refused(self):
        with pytest.raises(InputError, match="clipping"):
            BatchedSimulator(VARIANTS["clipped"], problem()[0])


class TestRepeatable:
    def test_noise_is_left_out(self):
        made = Training(MLP((6, 6), 3), (0, 1, 2), SGD(0.1), 2, clipping=DPClipping(0.5, 2.0))
        assert repeatable(made).clipping == DPClipping(0.5, 0.0)

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"initial": Initialisation(seed=None)}, "initialisation"),
            ({"batches": Batches(4, seed=None)}, "order"),
        ],
    )
    def test_what_is_not_known_is_named(self, changes, reason):
        made = Training(MLP((6, 6), 3), (0, 1, 2), epochs=2, **changes)
        for kind in (PlainSimulator, FoldedSimulator, BatchedSimulator):
            with pytest.raises(InputError, match=f"{reason}.*not known"):
                kind(made, problem()[0])
