"""Is it real? Multipliers, evidence, judges and their error rates, and neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.attacks.weights_only.authenticity import (
    AuthenticityEvidence,
    calibrate,
    claims,
    compare,
    fitted,
    gather,
    in_turn,
    learn,
)
from exhume.attacks.weights_only.authenticity.evidence import NAMES
from exhume.attacks.weights_only.read_weights import HiddenLayer, known_weights
from exhume.models.base import Activation
from exhume.models.mlp import MLP
from exhume.models.two_layer import TwoLayer
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Weights
from exhume.training.network import Training
from exhume.training.optimisers import SGD
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
    assert columns["margin"].max() < 0
    with pytest.raises(InputError, match="evidence"):
        gather(Weights({}), known, found, records=5)


@pytest.mark.parametrize(("outputs", "bias"), [(1, False), (3, True)])
def test_any_network_has_the_multipliers_of_the_one_written_out(outputs, bias):
    rng = np.random.default_rng(3)
    layers = TwoLayer((4, 4), outputs, 12, hidden_bias=True, output_bias=bias)
    training = Stationary(layers, tuple(range(max(2, outputs))))
    shapes = layers.parameter_shapes()
    release = Weights({n: rng.normal(size=s) for n, s in shapes.items()})
    known = Knowledge(record_shape=(4, 4), training=training)
    x, classes = rng.normal(size=(6, 4, 4)), np.arange(6) % max(2, outputs)
    weights = known_weights(release, known)
    found = [fitted(net, x, classes) for net in (weights.hidden_layer(), weights.module())]
    assert found[1].multipliers == pytest.approx(found[0].multipliers, abs=1e-8)
    assert found[1].residual == pytest.approx(found[0].residual, rel=1e-8)
    assert found[1].contributions == pytest.approx(found[0].contributions, abs=1e-10)


def test_deep_networks_have_evidence_too():
    rng = np.random.default_rng(3)
    training = Stationary(MLP((4, 4), 2, hidden=(5, 5)), (0, 1))
    shapes = training.network.parameter_shapes()
    release = Weights({n: rng.normal(size=s) for n, s in shapes.items()})
    known = Knowledge(record_shape=(4, 4), value_range=(0.0, 1.0), training=training)
    samples = rng.uniform(0.1, 0.9, size=(5, 4, 4))
    found = Reconstruction(samples, Status.APPROXIMATE, confidence=np.linspace(1, 0, 5))
    columns = dict(zip(NAMES, gather(release, known, found, records=5).values.T, strict=True))
    assert columns["agreement"] == pytest.approx(np.linspace(1, 0, 5))
    assert len(np.unique(columns["margin"])) > 1
    none = Reconstruction(samples[:0], Status.NO_INFORMATION)
    assert gather(release, known, none, records=5).values.shape == (0, len(NAMES))


def test_a_multiplier_is_its_loss_slope_where_training_decays():
    """At a stationary point of two outputs, training records' multipliers fit; others' do not."""
    rng = np.random.default_rng(8)
    x = np.concatenate([rng.normal(-0.3, 1, (6, 20)), rng.normal(0.3, 1, (6, 20))])
    data = Records(x, np.repeat([0, 1], 6))
    training = Training(
        MLP((20,), 2, hidden=(30,), activation=Activation.RELU),
        (0, 1),
        SGD(0.2, 0.9, weight_decay=1e-2),
        2000,
        precision="float64",
    )
    release = training.publish(data, rng=rng)
    known = Knowledge(record_shape=(20,), training=training)

    def margin(records):
        found = Reconstruction(records, Status.APPROXIMATE)
        return gather(release, known, found, records=12).values[:, NAMES.index("margin")]

    assert np.median(margin(x)) > -0.1
    assert np.median(margin(x[::-1] + rng.normal(size=x.shape))) < -1.0


def drawn(rng, count, shift):
    values = rng.normal(size=(count, len(NAMES)))
    real = rng.random(count) < 0.4
    values[real, 2] += shift
    return AuthenticityEvidence(values), real


def test_a_judge_learns_what_tells_and_nothing_where_nothing_does():
    rng = np.random.default_rng(4)
    for shift, tells in ((4.0, True), (0.0, False)):
        evidence, real = drawn(rng, 300, shift)
        judge = learn([evidence], [real])
        fresh, truth = drawn(rng, 300, shift)
        scores = judge.score(fresh)
        measured = calibrate(scores[truth], scores[~truth])
        assert measured.tells is tells
        assert measured.describe().startswith("undecided") is not tells
        if tells:
            assert judge.describe().startswith("multiplier +")
            assert measured.area.low > 0.9
            assert measured.alarms.high <= 0.1
    with pytest.raises(InputError, match="one kind"):
        learn([evidence], [np.ones(300, dtype=bool)])


def test_in_turn_nobody_is_judged_by_what_it_taught():
    rng = np.random.default_rng(9)
    evidence, real = zip(*(drawn(rng, 60, 3.0) for _ in range(3)), strict=True)
    scores = in_turn(evidence, real)
    others = learn([evidence[0], evidence[2]], [real[0], real[2]])
    assert scores[1] == pytest.approx(others.score(evidence[1]))
    with pytest.raises(InputError, match="at least 2 networks"):
        in_turn(evidence[:1], real[:1])


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
