"""Weights alone of networks with batch normalisation: what can be read, and why not more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.contract import own_networks
from tests.contract.own_networks import OWN

from exhume.attacks.weights_only import KKT, RowSpace
from exhume.attacks.weights_only.read_weights import KnownWeights, read_any, read_move
from exhume.models import Imported
from exhume.protocol.attack import Refusal
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training import SGD, Batches, Training

SHAPE = (6, 6)
DATA = Records(np.random.default_rng(0).uniform(size=(12, *SHAPE)), np.arange(12) % 3)


def released(name: str) -> tuple[Weights, Knowledge]:
    training = Training(
        Imported(SHAPE, 3, f"{OWN}:{name}"),
        (0, 1, 2),
        SGD(0.1, 0.9),
        epochs=4,
        batches=Batches(6),
        precision="float64",
    )
    release = training.publish(DATA, rng=np.random.default_rng(0))
    known = Knowledge(
        record_shape=SHAPE, value_range=(0.0, 1.0), training=training, labels=DATA.labels
    )
    return release, known


def test_folding_gives_the_scores_of_the_model_in_use() -> None:
    release, known = released("normalised_further_on")
    network = read_any(release, known, KnownWeights.entrance)
    assert not isinstance(network, Refusal)
    module = own_networks.normalised_further_on().double()
    state = {n: torch.tensor(a) for n, a in (*release.parameters.items(), *release.buffers.items())}
    module.load_state_dict(state, strict=False)
    with torch.no_grad():
        expected = module.eval()(torch.tensor(DATA.x)).numpy()
    found = network.scores(DATA.x.reshape(len(DATA), -1))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_the_first_layers_rows_lie_in_the_span_of_the_records() -> None:
    release, known = released("normalised_further_on")
    move = read_move(release, known, KnownWeights.entrance)
    assert not isinstance(move, Refusal)
    rows = move.change.first
    assert rows is not None
    inputs = np.column_stack([DATA.x.reshape(len(DATA), -1), np.ones(len(DATA))])
    shares = np.linalg.lstsq(inputs.T, rows.T, rcond=None)[0]
    assert np.abs(inputs.T @ shares - rows.T).max() < 1e-10 * np.abs(rows).max()
    assert np.abs(rows[:, -1]).max() > 1e-3 * np.abs(rows).max(), "the constant's share shows scale"
    found = RowSpace(draws=50, iterations=5).reconstruct(release, known, rng=0)
    assert found.status.ran


def test_a_normalised_first_layer_shows_differences_alone() -> None:
    release, known = released("normalised_at_once")
    reason = RowSpace().accepts(release, known)
    assert reason is not None
    assert "batch normalisation follows the first layer '1'" in reason
    rows = (
        release.parameters["1.weight"]
        - known.training.initial.draw(  # type: ignore[union-attr]
            known.training.network,
            np.random.default_rng(0),  # type: ignore[union-attr]
        )["1.weight"]
    )
    flat = DATA.x.reshape(len(DATA), -1)
    centred = flat - flat.mean(axis=0)
    assert np.linalg.matrix_rank(np.vstack([centred, rows]), 1e-8) <= len(DATA)


@pytest.mark.parametrize("name", ["normalised_further_on", "normalised_at_once"])
def test_stationarity_is_refused_with_its_reason(name: str) -> None:
    release, known = released(name)
    reason = KKT().accepts(release, known)
    assert reason is not None
    assert "orthogonal to them" in reason
    bare = replace(known, labels=None)
    assert KKT().accepts(release, bare) == reason
