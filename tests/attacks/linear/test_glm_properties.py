"""Any well-posed problem: what hypothesis draws comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.attacks import GLM as Attack
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.training import GLM, Family, Penalty


@st.composite
def problems(draw: st.DrawFn) -> tuple[GLM, Records, Records]:
    """A training, its fixed set and its target: any family, size, units, penalty and weight."""
    family = draw(st.sampled_from(list(Family)))
    features, count = draw(st.integers(1, 6)), draw(st.integers(20, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.normal(size=(count, features))
    score = x @ rng.normal(0, 1.0 / np.sqrt(features), features)
    classes = None
    match family:
        case Family.LINEAR:
            y = score + rng.normal(size=count)
        case Family.POISSON:
            y = rng.poisson(np.exp(np.clip(score, -3, 3))).astype(float)
        case Family.LOGISTIC:
            y, classes = (score + rng.logistic(size=count) > 0).astype(int), (0, 1)
        case Family.MULTINOMIAL:
            y, classes = rng.integers(0, 3, count), (0, 1, 2)
    if classes is not None:
        y[: len(classes)] = classes
    penalty = Penalty(
        draw(st.sampled_from([0.1, 1.0, 10.0])),
        halved=draw(st.booleans()),
        intercept=draw(st.booleans()),
    )
    weight = rng.uniform(0.5, 2.0, count) if draw(st.booleans()) else None
    data = Records(x + draw(st.sampled_from([0.0, 3.0])), y, weight)
    training = GLM(family, penalty, classes=classes)
    return training, data.take(np.arange(count - 1)), data.take([count - 1])


def _attack(training: GLM, fixed_set: Records, target: Records) -> Reconstruction:
    release = training.publish(fixed_set.with_record(target), rng=np.random.default_rng(0))
    knowledge = Knowledge(
        record_shape=target.record_shape,
        training=training,
        fixed_set=fixed_set,
        target_weight=1.0 if target.weight is None else float(target.weight[0]),
    )
    return Attack().reconstruct(release, knowledge, rng=0)


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


@settings(deadline=None, max_examples=80)
@given(problem=problems())
def test_the_record_comes_back(problem: tuple[GLM, Records, Records]) -> None:
    """To 1e-9, or to thirty times what the attack itself says where the model fits it too well."""
    training, fixed_set, target = problem
    found = _attack(training, fixed_set, target)
    if found.status is Status.NO_INFORMATION:
        assert found.stats.get("gradient_norm", 0.0) < 1e-9
        return
    assert found.status is Status.CONVERGED, found.message
    error = _rms(found.samples[0] - target.x[0])
    assert error <= max(1e-9 * _rms(target.x[0]), 30.0 * float(found.error_estimate[0]))
    if training.family.classifies:
        assert found.labels[0] == target.labels[0]


@settings(deadline=None, max_examples=25)
@given(problem=problems(), factor=st.sampled_from([1e-3, 0.3, 50.0]))
def test_units_do_not_matter(problem: tuple[GLM, Records, Records], factor: float) -> None:
    """Records in other units, the penalty with them: the same answer in those units."""
    training, fixed_set, target = problem
    training = replace(training, penalty=replace(training.penalty, intercept=False))
    scaled = replace(
        training,
        penalty=replace(training.penalty, strength=training.penalty.strength * factor**2),
    )
    one = _attack(training, fixed_set, target)
    other = _attack(
        scaled, replace(fixed_set, x=factor * fixed_set.x), replace(target, x=factor * target.x)
    )
    if one.status is Status.CONVERGED:
        tolerance = 1e-8 + 100.0 * float(one.error_estimate[0])
        np.testing.assert_allclose(
            other.samples[0] / factor, one.samples[0], rtol=tolerance, atol=tolerance
        )


@settings(deadline=None, max_examples=25)
@given(problem=problems())
def test_the_order_of_the_fixed_set_does_not_matter(
    problem: tuple[GLM, Records, Records],
) -> None:
    training, fixed_set, target = problem
    one = _attack(training, fixed_set, target)
    other = _attack(training, fixed_set.take(np.arange(len(fixed_set))[::-1]), target)
    assert one.status is other.status
    if one.status is Status.CONVERGED:
        tolerance = 1e-9 + 100.0 * float(one.error_estimate[0])
        np.testing.assert_allclose(other.samples[0], one.samples[0], atol=tolerance)


@settings(deadline=None, max_examples=25)
@given(problem=problems(), index=st.integers(0, 18), shift=st.sampled_from([0.5, -3.0]))
def test_a_classifier_notices_a_changed_record(
    problem: tuple[GLM, Records, Records], index: int, shift: float
) -> None:
    """One known record off: a confident answer from a classifier would be a confident lie."""
    training, fixed_set, target = problem
    if not training.family.classifies:
        return
    release = training.publish(fixed_set.with_record(target), rng=np.random.default_rng(0))
    x = fixed_set.x.copy()
    x[index] += shift
    knowledge = Knowledge(
        record_shape=target.record_shape,
        training=training,
        fixed_set=replace(fixed_set, x=x),
        target_weight=1.0 if target.weight is None else float(target.weight[0]),
    )
    assert Attack().reconstruct(release, knowledge, rng=0).status is not Status.CONVERGED
