"""From a whisper of noise to nothing but noise: the attack's own estimate keeps pace."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attacks.linear.trials import Trials, attacked
from tests.contract.cases import model, records

from exhume.defences import OutputPerturbation, Rounding
from exhume.protocol.mechanism import Mechanism
from exhume.training import Family, Penalty

_EVERYWHERE = Penalty(1.0, intercept=True)


def _perturbed(family: Family, noise: float) -> Mechanism:
    return OutputPerturbation(model(family, _EVERYWHERE), noise, 8.0)


def _rounded(family: Family, decimals: int) -> Mechanism:
    return Rounding(model(family), decimals)


def _trials(mechanism: Mechanism, family: Family, *, labels_known: bool, count: int = 40) -> Trials:
    data = records(family, count=140 + count)
    return attacked(mechanism, data, count, labels_known=labels_known)


def _mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


_LADDERS = {
    "logistic, noise": [_perturbed(Family.LOGISTIC, n) for n in (1e-5, 1e-4, 1e-3, 1e-2)],
    "softmax, noise": [_perturbed(Family.MULTINOMIAL, n) for n in (1e-5, 1e-4, 1e-2)],
    "linear, rounded": [_rounded(Family.LINEAR, k) for k in (5, 4, 3, 1)],
    "poisson, rounded": [_rounded(Family.POISSON, k) for k in (5, 4, 3, 1)],
}
_FAMILIES = {
    "logistic": Family.LOGISTIC,
    "softmax": Family.MULTINOMIAL,
    "linear": Family.LINEAR,
    "poisson": Family.POISSON,
}


@pytest.mark.parametrize("labels_known", [True, False], ids=["label known", "label unknown"])
@pytest.mark.parametrize("name", _LADDERS)
def test_estimates_keep_pace_with_errors(name: str, labels_known: bool) -> None:
    """All targets together: stated within a factor of 1.8 of what it is, at every strength.

    40 targets of 4 features, heavy-tailed in between: a factor of 1.4 either way is chance.
    """
    family = _FAMILIES[name.split(",")[0]]
    errors = []
    for mechanism in _LADDERS[name]:
        trials = _trials(mechanism, family, labels_known=labels_known)
        ratio = _mean_square(trials.estimates) / _mean_square(trials.errors)
        assert 1 / 1.8 <= ratio <= 1.8, (mechanism, ratio)
        errors.append(_mean_square(trials.errors))
    assert errors == sorted(errors)
    # With all but nothing left of the target, no worse than the records' own spread.
    assert errors[-1] <= 1.25 * _mean_square(trials.targets.x)


@pytest.mark.parametrize("family", [Family.LINEAR, Family.POISSON], ids=["linear", "poisson"])
@pytest.mark.parametrize("decimals", [3, 4])
def test_knowing_the_label_does_no_harm(family: Family, decimals: int) -> None:
    mechanism = _rounded(family, decimals)
    told = _trials(mechanism, family, labels_known=True, count=60)
    blind = _trials(mechanism, family, labels_known=False, count=60)
    assert _mean_square(told.errors) <= 1.1 * _mean_square(blind.errors)
