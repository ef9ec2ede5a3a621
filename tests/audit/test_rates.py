"""What theory expects of a defence, as a ratio to none."""

from __future__ import annotations

import math

import pytest

from exhume import defences
from exhume.audit.gradient_floors import relative_rate
from exhume.models import MLP
from exhume.training import SGD
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import Aggregate, LocalSteps

STEP = GradientStep(MLP((4,), 3, (5, 5)), (0, 1, 2))


@pytest.mark.parametrize(
    ("mechanism", "ratio"),
    [
        (STEP, 1.0),
        (defences.Noise(STEP, 0.5), 1.5),
        (defences.GradientDropout(STEP, 0.75), 2.0),
        (defences.ActivationDropout(STEP, 0.5), math.sqrt(2)),
        (defences.Clipping(STEP, 0.1), 1.0),
        (LocalSteps(STEP, SGD(0.1), 3), 1.0),
        (Aggregate(STEP, 2), 1.0),
        (defences.Pruning(STEP, 0.9), None),
        (defences.DPSGD(STEP, 1.0, 1.0), None),
        (defences.Noise(defences.Clipping(STEP, 1.0), 0.1), None),
        (defences.Noise(LocalSteps(STEP, SGD(0.1), 3), 0.1), None),
    ],
)
def test_the_rate_of_one_defence_over_that_of_none(mechanism, ratio) -> None:  # type: ignore[no-untyped-def]
    found = relative_rate(mechanism, 8)
    assert found == (None if ratio is None else pytest.approx(ratio))
