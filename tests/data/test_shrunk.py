"""Images made smaller: blocks of pixels become their mean."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.audit.load_data import load_data
from exhume.config import DataTable
from exhume.data import load
from exhume.data.images import shrunk
from exhume.protocol.errors import InputError


@pytest.mark.parametrize("shape", [(2, 6, 4), (2, 6, 4, 3)])
def test_every_block_is_its_mean(shape):
    images = np.random.default_rng(0).random(shape).astype(np.float32)
    small = shrunk(images, 2)
    assert small.shape == (2, 3, 2, *shape[3:])
    assert small.dtype == np.float32
    assert small[1, 2, 0] == pytest.approx(images[1, 4:6, 0:2].mean(axis=(0, 1)))


def test_an_audit_can_ask_for_it():
    whole = load("fashion-mnist-small").train
    loaded = load_data(DataTable(name="fashion-mnist-small", shrink=7))
    assert loaded.records.x.shape == (len(whole), 4, 4)
    assert np.array_equal(loaded.records.labels, whole.labels)


@pytest.mark.parametrize(("shape", "by"), [((2, 6, 4), 4), ((2, 6), 2)])
def test_what_does_not_divide_is_refused(shape, by):
    with pytest.raises(InputError, match=f"cannot be shrunk by {by}"):
        shrunk(np.zeros(shape), by)
