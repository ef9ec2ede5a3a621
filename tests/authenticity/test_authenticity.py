"""Is it real? Multipliers, evidence, judges and their error rates, and neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.attacks.kkt.network import HiddenLayer
from exhume.authenticity import (
    Evidence,
    calibrate,
    claims,
    compare,
    fitted,
    gather,
    learn,
)
from exhume.authenticity.evidence import NAMES
from exhume.errors import InputError
from exhume.knowledge import Knowledge
from exhume.models.two_layer import TwoLayer
from exhume.reconstruction import Reconstruction, Status
from exhume.release import Weights
from exhume.training.stationary import Stationary

SLOPE = 1e6


def network(outputs: int = 1, *, bias: bool = False) -> HiddenLayer:
    rng = np.random.default_rng(0)
    return HiddenLayer(
        rng.normal(size=(30, 7)),
        rng.normal(size=(outputs, 30)),
        rng.normal(size=outputs) if bias else None,
        rng.normal(size=6),
        max(2, outputs),
    )


def gradients(net: HiddenLayer, x, classes):
    """One record's gradient of its class's score against the others, the slow way."""
    rows = []
    for record, kind in zip(x, classes, strict=True):
        inside = net.first @ np.append(record - net.centre, 1.0)
        lit = np.maximum(inside, 0.0)
        if len(net.output) == 1:
            direction = np.array([2.0 * kind - 1.0])
        else:
            scores = net.output @ lit + (0.0 if net.output_bias is None else net.output_bias)
            others = np.exp(scores - scores.max())
            others[kind] = 0.0
            direction = np.eye(len(net.output))[kind] - others / others.sum()
        first = np.outer((direction @ net.output) * (inside > 0), np.append(record - net.centre, 1))
        parts = [first.ravel(), np.outer(direction, lit).ravel()]
        rows.append(np.concatenate(parts + ([] if net.output_bias is None else [direction])))
    return np.array(rows)


@pytest.mark.parametrize(("outputs", "bias"), [(1, False), (3, False), (3, True)])
def test_multipliers_are_the_best_non_negative_ones(outputs, bias):
    from scipy.optimize import nnls

    net = network(outputs, bias=bias)
    rng = np.random.default_rng(1)
    x, classes = rng.normal(size=(8, 6)), np.arange(8) % max(2, outputs)
    rows = gradients(net, x, classes)
    theta = [net.first.ravel(), net.output.ravel()]
    theta = np.concatenate(theta + ([] if net.output_bias is None else [net.output_bias]))
    wanted, left = nnls(rows.T, theta)
    found = fitted(net, x, classes, slope=SLOPE)
    assert found.multipliers == pytest.approx(wanted, abs=1e-6)
    assert found.residual == pytest.approx(left**2 / (theta @ theta), rel=1e-6)
    needed = int(np.argmax(found.contributions))
    # The others may go down to zero without it, so the true rise is at least the estimate's.
    without = np.delete(np.arange(8), needed)
    rise = (nnls(rows[without].T, theta)[1] ** 2 - left**2) / (theta @ theta)
    assert rise >= found.contributions[needed] * (1 - 1e-6) > 0


def test_a_set_that_explains_the_weights_leaves_nothing():
    net = network()
    rng = np.random.default_rng(2)
    x, classes = rng.normal(size=(5, 6)), np.arange(5) % 2
    rows = gradients(net, x, classes)
    sum_ = rows.T @ np.full(5, 0.3)
    explained = HiddenLayer(net.first, net.output, None, net.centre, 2)
    assert fitted(explained, x, classes, slope=SLOPE).residual > 0.1
    # The gradient does not depend on a common scale of what is explained: compare by the slow way.
    assert np.linalg.lstsq(rows.T, sum_, rcond=None)[0] == pytest.approx(np.full(5, 0.3))
    with pytest.raises(InputError, match="as many classes"):
        fitted(net, x, classes[:3])


def test_evidence_is_gathered_without_the_training_set():
    rng = np.random.default_rng(3)
    training = Stationary(TwoLayer((4, 4), 1, 12, hidden_bias=True), (0, 1))
    shapes = training.network.parameter_shapes()
    release = Weights({n: rng.normal(size=s) for n, s in shapes.items()})
    known = Knowledge(record_shape=(4, 4), value_range=(0.0, 1.0), training=training)
    samples = rng.uniform(0.1, 0.9, size=(5, 4, 4))
    samples[0] = 0.0
    samples[0, 0, 0] = 1.0
    found = Reconstruction(samples, Status.APPROXIMATE, confidence=np.linspace(1, 0, 5))
    rows = gather(release, known, found, records=5, others=(samples[::-1],))
    assert rows.values.shape == (5, len(NAMES))
    columns = dict(zip(NAMES, rows.values.T, strict=True))
    assert columns["agreement"] == pytest.approx(np.linspace(1, 0, 5))
    assert columns["starts"] == pytest.approx(np.ones(5))
    assert columns["at-ends"][0] == 1.0
    assert columns["at-ends"][1:].max() < 0.2
    with pytest.raises(InputError, match="evidence"):
        gather(Weights({}), known, found, records=5)


def drawn(rng, count, shift):
    values = rng.normal(size=(count, len(NAMES)))
    real = rng.random(count) < 0.4
    values[real, 2] += shift
    return Evidence(values), real


def test_a_judge_learns_what_tells_and_nothing_where_nothing_does():
    rng = np.random.default_rng(4)
    for shift, tells in ((4.0, True), (0.0, False)):
        evidence, real = drawn(rng, 300, shift)
        judge = learn([evidence], [real])
        fresh, truth = drawn(rng, 300, shift)
        scores = judge.score(fresh)
        measured = calibrate(scores[truth], scores[~truth])
        assert measured.tells is tells
        assert measured.describe().startswith("cannot be told") is not tells
        if tells:
            assert judge.describe().startswith("multiplier +")
            assert measured.area.low > 0.9
            assert measured.alarms.rate <= 0.1
    with pytest.raises(InputError, match="one kind"):
        learn([evidence], [np.ones(300, dtype=bool)])


def test_the_allowed_rate_of_false_alarms_is_kept():
    rng = np.random.default_rng(5)
    broken = 0
    for _ in range(200):
        other = rng.normal(size=100)
        measured = calibrate(rng.normal(2.0, 1.0, 50), other, allowed=0.2)
        assert measured.threshold is not None
        true_rate = float((rng.normal(size=4000) >= measured.threshold).mean())
        broken += true_rate > 0.2 + 0.02
    # One-sided 95 % limits on the threshold that is the lowest to pass: broken seldom.
    assert broken <= 20
    few = calibrate(np.ones(3), np.zeros(3), allowed=0.1)
    assert few.threshold is None
    assert not few.tells


def test_neighbours_compete_on_equal_terms():
    rng = np.random.default_rng(6)
    training, held_out, begun = (rng.random((4, 12, 12)) for _ in range(3))
    samples = np.concatenate([training[:2] * 0.9 + 0.05, held_out[2:3], begun[:1]])
    found = compare(samples, training, held_out, starting=begun, value_range=(0.0, 1.0))
    assert found.training.index[:2].tolist() == [0, 1]
    assert found.rank[:2].tolist() == [1, 1]
    assert found.rank[2] > 1
    assert found.recovered(0.9) == 2
    assert found.false_positives(0.9) == 1
    assert found.starting is not None
    assert found.starting.index[3] == 0
    assert found.starting.distance[3] == pytest.approx(0.0, abs=1e-9)
    assert found.training.ssim[0] > 0.9 > found.training.ssim[3]
    with pytest.raises(InputError, match="as many"):
        compare(samples, training, held_out[:3])


def test_a_claim_needs_likeness_and_authenticity():
    rng = np.random.default_rng(7)
    images = rng.random((3, 5, 5))
    scores = claims(images, images[:2], np.array([0.9, 0.1]))
    assert scores[0] == pytest.approx(0.9)
    assert scores[1] < 0.9
    assert scores[2] < 0.9
