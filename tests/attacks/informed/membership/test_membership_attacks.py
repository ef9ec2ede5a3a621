"""What each membership attack reads, and what it makes of the unreadable."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.attacks.informed.membership.small import (
    FIXED,
    LOGISTIC,
    PAIRS,
    knowledge,
    network,
    perturbed,
    pictures,
)

from exhume.attacks import GLM as GLMAttack
from exhume.attacks import Attack
from exhume.attacks.informed.membership import (
    ByReconstruction,
    LossThreshold,
    MembershipQuestion,
    NearestMean,
    Retraining,
    ShadowModels,
)
from exhume.attacks.informed.membership.loss_threshold import loss
from exhume.attacks.informed.membership.retraining import Likelihood
from exhume.defences import Rounding
from exhume.models.initialise import Initialisation
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.protocol.release import Gradient, Outputs, Weights
from exhume.shadows.release_vector import ReleaseVector
from exhume.stats.covariance import discriminant
from exhume.training import GLM, Answers, DPClipping, Family, Penalty, Solver

ATTACKS = (
    Retraining(),
    NearestMean(models=3),
    ShadowModels(models=8),
    ByReconstruction(GLMAttack()),
)
MECHANISMS = (
    LOGISTIC,
    replace(LOGISTIC, solver=Solver("lbfgs", 1e-4, 100)),
    Rounding(LOGISTIC, 6),
    Answers(LOGISTIC, np.random.default_rng(1).normal(size=(9, 4))),
    GLM(Family.LINEAR, Penalty(1.0), standardise=True),
)


def _published(mechanism, candidates, *, member, seed=0, fixed_set=FIXED):
    record = candidates.challenge if member else candidates.alternatives.take([0])
    return mechanism.publish(fixed_set.with_record(record), rng=np.random.default_rng(seed))


def decided(attack, release, known, question, *, rng):
    rng = np.random.default_rng(rng)
    return attack.prepare(known, question, rng=rng).weigh(release, rng=rng)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
class TestEveryAttack:
    @pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
    def test_tells_the_two_records_apart(self, attack, mechanism):
        for pair in PAIRS[:3]:
            for member in (True, False):
                release = _published(mechanism, pair, member=member)
                verdict = decided(attack, release, knowledge(mechanism), pair, rng=0)
                assert verdict.member is member
                assert (verdict.score > 0) is member

    def test_is_a_frozen_setting_with_a_name(self, attack):
        assert pickle.loads(pickle.dumps(attack)) == attack
        assert attack.name == attack.name.lower()
        with pytest.raises((AttributeError, TypeError)):
            attack.name = "other"

    def test_same_seed_same_verdict(self, attack):
        release = _published(perturbed(0.01), PAIRS[0], member=True)
        known = knowledge(perturbed(0.01))
        first = decided(attack, release, known, PAIRS[0], rng=5)
        np.random.seed(1)  # noqa: NPY002
        assert decided(attack, release, known, PAIRS[0], rng=5) == first

    def test_a_coin_decides_where_there_is_no_evidence(self, attack):
        twin = MembershipQuestion(PAIRS[0].challenge, PAIRS[0].challenge)
        judge = attack.prepare(knowledge(LOGISTIC), twin, rng=0)
        release = _published(LOGISTIC, twin, member=True)
        verdicts = [judge.weigh(release, rng=seed) for seed in range(200)]
        assert {verdict.score for verdict in verdicts} == {0.0}
        assert 70 <= sum(verdict.member for verdict in verdicts) <= 130

    @pytest.mark.parametrize(
        "release",
        [
            Gradient({"coef": np.ones((1, 4))}, 1),
            Weights({"layer.weight": np.ones((3, 3))}),
            Weights({}),
            Outputs(FIXED.x[:2], np.ones((2, 1))),
        ],
        ids=["gradient", "other network", "nothing", "answers"],
    )
    def test_another_kind_of_release_is_no_evidence(self, attack, release):
        verdict = attack.prepare(knowledge(LOGISTIC), PAIRS[0], rng=0).weigh(release, rng=0)
        assert (verdict.score, verdict.status) == (0.0, Status.REFUSED)

    def test_broken_numbers_are_no_evidence(self, attack):
        broken = Weights({"coef": np.full((1, 4), np.nan), "intercept": np.zeros(1)})
        verdict = attack.prepare(knowledge(LOGISTIC), PAIRS[0], rng=0).weigh(broken, rng=0)
        assert (verdict.score, verdict.status) == (0.0, Status.INVALID_RELEASE)

    def test_a_pool_of_alternatives(self, attack):
        others = PAIRS[1].records.with_record(PAIRS[2].records)
        question = MembershipQuestion(PAIRS[0].challenge, others)
        judge = attack.prepare(knowledge(LOGISTIC), question, rng=0)
        assert judge.weigh(_published(LOGISTIC, question, member=True), rng=0).member
        if not isinstance(attack, NearestMean):
            # The mean of several alternatives stands for none of them.
            found = [
                judge.weigh(LOGISTIC.publish(FIXED.with_record(others.take([i])), rng=None), rng=0)
                for i in range(4)
            ]
            assert sum(not verdict.member for verdict in found) >= 3


class TestRetraining:
    def test_scores_of_exact_matches(self):
        """Without noise: 1 at the challenge's own release, −1 at the alternative's."""
        judge = Retraining().prepare(knowledge(LOGISTIC), PAIRS[0], rng=0)
        for member, score in ((True, 1.0), (False, -1.0)):
            verdict = judge.weigh(_published(LOGISTIC, PAIRS[0], member=member), rng=0)
            assert verdict.score == pytest.approx(score, abs=1e-9)

    def test_noise_gives_a_likelihood_ratio(self):
        """Against scipy's densities, for a pair and for a pool."""
        from scipy.stats import multivariate_normal

        rng = np.random.default_rng(0)
        expected, sigma = rng.normal(size=(4, 3)), 0.7
        layout = ReleaseVector((("coef", (3,)),))
        judge = Likelihood(layout, expected[0], expected[1:], sigma)
        seen = rng.normal(size=3)
        density = [multivariate_normal(mean, sigma**2 * np.eye(3)).pdf(seen) for mean in expected]
        score = judge.weigh(Weights({"coef": seen}), rng=0).score
        assert score == pytest.approx(np.log(density[0] / np.mean(density[1:])), rel=1e-9)

    @settings(deadline=None, max_examples=50)
    @given(
        points=arrays.arrays(np.float64, (3, 4), elements=st.floats(-10, 10)),
        sigma=st.sampled_from([0.0, 0.5]),
    )
    def test_changing_places_turns_the_score_round(self, points, sigma):
        layout, release = ReleaseVector((("coef", (4,)),)), Weights({"coef": points[2]})
        there = Likelihood(layout, points[0], points[1:2], sigma).weigh(release, rng=0)
        back = Likelihood(layout, points[1], points[0:1], sigma).weigh(release, rng=0)
        assert there.score == pytest.approx(-back.score, rel=1e-6, abs=1e-6)

    def test_nothing_in_its_place(self):
        question = MembershipQuestion(PAIRS[0].challenge)
        judge = Retraining().prepare(knowledge(LOGISTIC), question, rng=0)
        without = LOGISTIC.publish(FIXED, rng=np.random.default_rng(0))
        assert judge.weigh(without, rng=0).score == pytest.approx(-1.0, abs=1e-9)

    @pytest.mark.parametrize(
        "training",
        [
            network(initial=Initialisation(seed=None)),
            network(clipping=DPClipping(1.0, 0.5)),
        ],
        ids=["own initialisation", "noise"],
    )
    def test_a_training_with_a_secret_is_refused(self, training):
        images = pictures()
        pair = MembershipQuestion.pair(images.take([100, 101]))
        reason = Retraining().accepts(knowledge(training, images.take(slice(0, 20))), pair)
        assert "different result each time" in reason

    def test_a_network_by_its_simulator(self):
        images = pictures()
        fixed, question = (
            images.take(slice(0, 40)),
            MembershipQuestion(images.take([100]), images.take([101, 102])),
        )
        training = network(epochs=10)
        judge = Retraining().prepare(knowledge(training, fixed), question, rng=0)
        for index, member in ((100, True), (101, False), (102, False)):
            data = fixed.with_record(images.take([index]))
            verdict = judge.weigh(training.publish(data, rng=np.random.default_rng(9)), rng=0)
            assert verdict.member is member
            # Training runs in single precision, its simulation in double.
            assert abs(verdict.score) == pytest.approx(1.0, abs=0.05)


@dataclass(frozen=True)
class Answer(Attack):
    """Answers with a constant: what a reconstruction attack may come to."""

    values: tuple[float, ...]
    name: ClassVar[str] = "constant"

    def accepts(self, release, knowledge: Knowledge):
        return None

    def _reconstruct(self, release, knowledge, rng):
        return Reconstruction(np.array([self.values]), Status.APPROXIMATE)


@dataclass(frozen=True)
class Repeats(Attack):
    """Answers with the label that it was told, or 9."""

    name: ClassVar[str] = "repeats"

    def accepts(self, release, knowledge: Knowledge):
        return None

    def _reconstruct(self, release, knowledge, rng):
        told = 9.0 if knowledge.labels is None else float(knowledge.labels[0])
        return Reconstruction(np.array([[told]]), Status.CONVERGED)


class TestByReconstruction:
    """Balle et al. 2022, §II-D: an error below half the distance makes the decision right."""

    point = st.tuples(st.floats(-5, 5), st.floats(-5, 5)).map(np.array)

    @settings(deadline=None, max_examples=100)
    @given(
        zero=point,
        one=point,
        share=st.floats(0.0, 0.49),
        angle=st.floats(0, 6.3),
        member=st.booleans(),
    )
    def test_half_the_distance_is_enough(self, zero, one, share, angle, member):
        gap = float(np.linalg.norm(zero - one))
        if gap < 1e-3:
            return
        truth = one if member else zero
        answer = truth + share * gap * np.array([np.cos(angle), np.sin(angle)])
        known = Knowledge(record_shape=(2,))
        pair = MembershipQuestion.pair(Records(np.stack([zero, one])))
        attack = ByReconstruction(Answer(tuple(answer)))
        assert decided(attack, Weights({}), known, pair, rng=0).member is member

    def test_score_is_the_difference_of_distances(self):
        pair = MembershipQuestion.pair(Records(np.array([[0.0, 0.0], [2.0, 2.0]])))
        attack = ByReconstruction(Answer((1.5, 1.5)))
        verdict = decided(attack, Weights({}), Knowledge(record_shape=(2,)), pair, rng=0)
        assert verdict.score == pytest.approx(1.5 - 0.5)
        assert verdict.status is Status.APPROXIMATE

    @pytest.mark.parametrize(("labels", "told"), [([1, 1], 1.0), ([0, 1], 9.0)])
    def test_only_a_label_that_both_share_is_known(self, labels, told):
        pair = MembershipQuestion.pair(Records(np.array([[0.0], [10.0]]), np.array(labels)))
        attack = ByReconstruction(Repeats())
        verdict = decided(attack, Weights({}), Knowledge(record_shape=(1,)), pair, rng=0)
        assert verdict.score == pytest.approx(told - (10.0 - told))


class TestLossThreshold:
    """The simplest test: told by one number, and beaten by those that see the whole release."""

    def test_reads_the_loss_alone(self):
        from sklearn.metrics import log_loss

        release = _published(LOGISTIC, PAIRS[0], member=True)
        record = PAIRS[0].challenge
        probabilities = LOGISTIC.means(LOGISTIC.scores(release, record.x))
        expected = log_loss(record.labels, probabilities, labels=[0, 1])
        assert loss(LOGISTIC, release, record) == pytest.approx(expected, rel=1e-12)

    def test_loss_of_several_classes_and_of_a_regression(self):
        images = pictures()
        training, one = network(epochs=2), images.take([7])
        release = training.publish(images.take(slice(0, 20)), rng=np.random.default_rng(0))
        chance = training.means(training.scores(release, one.x))[0, int(one.labels[0])]
        assert loss(training, release, one) == pytest.approx(-np.log(chance), rel=1e-9)
        model = GLM(Family.LINEAR, intercept=False)
        weights = Weights({"coef": np.array([[2.0]])})
        assert loss(model, weights, Records(np.array([[3.0]]), np.array([4.0]))) == 4.0

    def test_a_member_has_the_smaller_loss(self):
        judge = LossThreshold(models=2).prepare(knowledge(LOGISTIC), PAIRS[0], rng=0)
        inside = judge.weigh(_published(LOGISTIC, PAIRS[0], member=True), rng=0)
        outside = judge.weigh(_published(LOGISTIC, PAIRS[0], member=False), rng=0)
        assert inside.member
        assert not outside.member
        assert inside.score == pytest.approx(-outside.score)

    def test_refusals(self):
        attack = LossThreshold()
        answers = Answers(LOGISTIC, FIXED.x[:5])
        assert "weights" in attack.accepts(knowledge(answers), PAIRS[0])
        bare = MembershipQuestion(Records(PAIRS[0].challenge.x))
        assert "label" in attack.accepts(knowledge(LOGISTIC), bare)
        assert "training" in attack.accepts(Knowledge(record_shape=(4,)), PAIRS[0])
        judge = attack.prepare(knowledge(LOGISTIC), PAIRS[0], rng=0)
        assert judge.weigh(Weights({}), rng=0).status is Status.REFUSED
        with pytest.raises(InputError, match="at least 1"):
            LossThreshold(models=0)
        stranger = Records(PAIRS[0].challenge.x, np.array([7]))
        with pytest.raises(InputError, match="label 7 is not one"):
            loss(LOGISTIC, _published(LOGISTIC, PAIRS[0], member=True), stranger)


class TestDiscriminant:
    def test_is_fisher_s(self):
        """Against the textbook formula, with the covariance shrunk by scikit-learn."""
        from sklearn.covariance import ledoit_wolf

        rng = np.random.default_rng(0)
        one, other = rng.normal(1.0, 1.0, (30, 5)), rng.normal(0.0, 1.0, (40, 5))
        residuals = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
        covariance, _ = ledoit_wolf(residuals, assume_centered=True)
        apart = one.mean(axis=0) - other.mean(axis=0)
        found = discriminant(one, other)
        np.testing.assert_allclose(found.weights, np.linalg.solve(covariance, apart), rtol=1e-9)
        means = np.stack([one.mean(axis=0), other.mean(axis=0)])
        np.testing.assert_allclose(found.position(means), [0.5, -0.5], atol=1e-12)

    def test_samples_that_do_not_vary(self):
        found = discriminant(np.ones((3, 2)), np.zeros((3, 2)))
        assert found.ratio(np.array([[0.9, 0.9]]))[0] > 0 > found.ratio(np.array([[0.1, 0.1]]))[0]

    def test_equal_samples(self):
        found = discriminant(np.ones((3, 2)), np.ones((3, 2)))
        assert found.ratio(np.array([[5.0, 1.0]])).tolist() == [0.0]
        assert found.position(np.array([[5.0, 1.0]])).tolist() == [0.0]
