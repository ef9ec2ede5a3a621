"""A server that crafts its network: bins, collisions, and peeling them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.attacks.gradients.analytic.gradient_cases import (
    IMAGES,
    attacked,
    decibels,
    image_batch,
    image_step,
    mean_colour_decibels,
)

from exhume.attacks.gradients.analytic import Imprint
from exhume.models import MLP
from exhume.models.imprint import Imprinted
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records

OWN = IMAGES.take(np.arange(800))
KNOWLEDGE = Knowledge(
    record_shape=(28, 28), value_range=(0.0, 1.0), training=image_step(16), shadow_targets=OWN
)


def unseen(count: int, seed: int = 0) -> Records:
    rng = np.random.default_rng([seed, count])
    return IMAGES.take(800 + rng.choice(len(IMAGES) - 800, count, replace=False))


class TestReading:
    @pytest.mark.parametrize("into", ["scores", "network"])
    @pytest.mark.parametrize("count", [1, 32])
    def test_records_come_out_of_their_bins(self, into, count: int) -> None:
        attack = Imprint(bins=256, measurements=2, into=into)
        step = attack.craft(KNOWLEDGE, 0)
        data = unseen(count)
        release, knowledge = attacked(step, data)
        found = attack.reconstruct(release, knowledge, rng=0)
        share = np.mean(decibels(data, found) > 40.0)
        assert share >= 0.9
        assert mean_colour_decibels(data).max() < 40.0
        assert (found.status is Status.CONVERGED) == (share == 1.0)

    def test_more_measurements_free_what_shares_a_bin(self) -> None:
        """With as many bins in all: 64 records in 128 bins collide, by two measurements less."""
        data, shares = unseen(64), {}
        for measurements in (1, 2):
            attack = Imprint(bins=256, measurements=measurements)
            release, knowledge = attacked(attack.craft(KNOWLEDGE, 0), data)
            found = attack.reconstruct(release, knowledge, rng=0)
            shares[measurements] = np.mean(decibels(data, found) > 40.0)
        assert shares[2] > shares[1]
        assert shares[2] >= 0.95

    def test_two_records_in_one_bin_are_flagged(self) -> None:
        attack = Imprint(bins=4, measurements=1)
        data = unseen(8)
        release, knowledge = attacked(attack.craft(KNOWLEDGE, 0), data)
        found = attack.reconstruct(release, knowledge, rng=0)
        assert found.status is Status.APPROXIMATE
        assert found.stats["mixed"] >= 1
        assert found.confidence is not None
        good = (found.samples[:, None] - data.x[None]).reshape(len(found), 8, -1)
        close = np.sqrt(np.mean(good**2, axis=2)).min(axis=1) < 0.01
        np.testing.assert_array_equal(found.confidence > 0.5, close)

    def test_labels_come_along(self) -> None:
        attack = Imprint(bins=256, measurements=2)
        data = unseen(16)
        release, knowledge = attacked(attack.craft(KNOWLEDGE, 0), data)
        found = attack.reconstruct(release, knowledge, rng=0)
        distance = np.abs(found.samples[:, None] - data.x[None]).max(axis=(2, 3))
        assert found.labels is not None
        lone = distance.min(axis=1) < 1e-2
        assert lone.sum() >= 14
        np.testing.assert_array_equal(
            found.labels[lone], data.labels[distance.argmin(axis=1)][lone]
        )


class TestCrafting:
    def test_thresholds_are_quantiles(self) -> None:
        state = dict(Imprint(bins=64, measurements=1).craft(KNOWLEDGE, 0).parameters())
        values = OWN.x.reshape(len(OWN), -1) @ state["imprint.weight"].T + state["imprint.bias"]
        share = (values > 0).mean(axis=0)
        np.testing.assert_allclose(share, 1.0 - np.arange(64) / 64, atol=0.02)

    def test_same_seed_same_network(self) -> None:
        one, other = (dict(Imprint(bins=32).craft(KNOWLEDGE, 3).parameters()) for _ in range(2))
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])

    def test_records_to_measure_are_needed(self) -> None:
        with pytest.raises(InputError, match="give shadow_targets"):
            Imprint().craft(replace(KNOWLEDGE, shadow_targets=None), 0)
        with pytest.raises(InputError, match="gradient step"):
            Imprint().craft(replace(KNOWLEDGE, training=None), 0)

    def test_an_honest_network_has_no_bins(self) -> None:
        release, knowledge = attacked(image_step(16), image_batch(1))
        assert "no imprint" in str(Imprint().accepts(release, knowledge))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Imprint(bins=1), "at least 2 bins"),
            (lambda: Imprint(bins=9, measurements=2), "can't be shared by 2 equally"),
            (lambda: Imprinted((2, 2), 3, 8, behind=MLP((2, 2), 4)), "not .* to 3"),
        ],
    )
    def test_wrong_settings_are_named(self, make, message: str) -> None:
        with pytest.raises(InputError, match=message):
            make()
