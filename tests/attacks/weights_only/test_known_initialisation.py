"""What W_T − W_0 gives away: the kernel regime, and zeros for few records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from exhume.attacks.weights_only import ChangeSparsity, KnownInitialisation, RowSpace
from exhume.data import load
from exhume.metrics import NCC
from exhume.models.initialise import Initialisation
from exhume.models.two_layer import TwoLayer
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training.network import Training
from exhume.training.optimisers import SGD


def small(count: int, *, skip: int = 0) -> Records:
    """Embedded pictures at half resolution with responses of ±1."""
    train = load("fashion-mnist-small").train
    x = train.x.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).astype(np.float64)
    index = slice(skip, skip + count)
    return Records(x[index], np.where(train.labels[index] % 2, 1.0, -1.0))


def trained(count: int, width: int, precision: str = "float32"):
    data = small(count)
    training = Training(
        TwoLayer((14, 14), 1, width, hidden_bias=True, output_bias=True),
        None,
        SGD(0.02, 0.0),
        epochs=200,
        initial=Initialisation(seed=1),
        precision=precision,
    )
    release = training.publish(data, rng=np.random.default_rng(0))
    initial = training.initial.draw(training.network, np.random.default_rng(0))
    known = Knowledge(
        record_shape=(14, 14), value_range=(0.0, 1.0), training=training, initial=initial
    )
    return data, release, known


@pytest.fixture(scope="module")
def eight():
    return trained(8, 400)


def reached(found, data, level):
    return int((NCC().pairwise(data.x, found.samples).max(axis=1) > level).sum())


def test_the_kernel_regime_gives_most_records_back(eight):
    data, release, known = eight
    found = KnownInitialisation(steps=1500, restarts=3).reconstruct(release, known, rng=0)
    assert found.stats["rank"] == 8
    assert reached(found, data, 0.9) >= 6


def test_the_row_space_of_the_change_needs_no_weight_decay(eight):
    data, release, known = eight
    found = RowSpace(records=8, draws=300).reconstruct(release, known, rng=0)
    assert reached(found, data, 0.99) >= 3
    assert reached(found, small(8, skip=100), 0.99) == 0


def test_few_records_come_back_exactly():
    data, release, known = trained(4, 200, precision="float64")
    found = ChangeSparsity().reconstruct(release, known, rng=0)
    assert len(found) == 4
    gaps = np.abs(found.samples[:, None] - data.x[None]).max(axis=(2, 3))
    assert gaps.min(axis=0).max() < 1e-5


def test_what_is_needed_is_named(eight):
    _, release, known = eight
    own = replace(known.training, initial=Initialisation(seed=None))
    unknown = replace(known, initial=None, training=own)
    assert "initial parameters" in str(KnownInitialisation().accepts(release, unknown))
    assert "without weight decay" in str(RowSpace().accepts(release, unknown))
    by_seed = replace(known, initial=None)
    assert KnownInitialisation().accepts(release, by_seed) is None
    unmoved = replace(known, initial=release.parameters)
    assert "did not change" in str(KnownInitialisation().accepts(release, unmoved))
    assert "at most 4" in str(ChangeSparsity(largest=4).accepts(release, known))
    with pytest.raises(InputError, match="scales"):
        KnownInitialisation(scales=())
    with pytest.raises(InputError, match="trials"):
        ChangeSparsity(trials=0)
