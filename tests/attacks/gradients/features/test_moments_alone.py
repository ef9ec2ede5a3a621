"""The tensor method as published, without the fit that it starts."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.attacks.gradients.features import Features
from exhume.data import load
from exhume.data.images import shrunk
from exhume.metrics.span import SpanResidual
from exhume.models.two_layer import TwoLayer
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep


def error(width: int, *, fit: bool) -> tuple[float, Status]:
    images = load("fashion-mnist-small").train
    batch = Records(shrunk(images.x[:2], 7), images.labels[:2])
    step = GradientStep(TwoLayer((4, 4), 10, width), tuple(range(10)))
    release = step.publish(batch, rng=np.random.default_rng(0))
    found = Features(fit=fit).reconstruct(
        release, Knowledge(record_shape=(4, 4), training=step), rng=0
    )
    return float(SpanResidual()(batch.x, found.samples).mean()), found.status


def test_directions_come_back_the_better_the_wider():
    (narrow, status), (wide, _) = error(512, fit=False), error(8192, fit=False)
    assert status is Status.APPROXIMATE
    assert wide < 0.5 * narrow < 0.4


def test_the_fit_finds_the_records_themselves():
    assert error(512, fit=True)[0] == pytest.approx(0, abs=1e-6)
