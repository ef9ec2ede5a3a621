"""Games played often enough to tell a right advantage from a nearly right one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from tests.attacks.informed.membership.small import (
    FIXED,
    LOGISTIC,
    PAIRS,
    network,
    perturbed,
    pictures,
)

from exhume.attacks import GLM as GLMAttack
from exhume.attacks.informed.membership import (
    ByReconstruction,
    MembershipQuestion,
    NearestMean,
    Retraining,
    ShadowModels,
    membership_game,
)
from exhume.metrics import clopper_pearson
from exhume.models import MLP
from exhume.models.initialise import Initialisation
from exhume.training import DPClipping
from exhume.training.gradient import GradientStep

IMAGES = pictures()
ATTACKS = (Retraining(), NearestMean(8), ShadowModels(16), ByReconstruction(GLMAttack()))


def _separation(mechanism, pair):
    """‖θ(z₁) − θ(z₀)‖ of the undisturbed optima, by training each by itself."""
    vectors = []
    for i in (0, 1):
        data = mechanism.prepared(FIXED.with_record(pair.records.take([i])))
        release = mechanism.inner.publish(data, rng=np.random.default_rng(0))
        vectors.append(np.concatenate([array.ravel() for _, array in release.arrays()]))
    return float(np.linalg.norm(vectors[0] - vectors[1]))


def _agrees(result, advantage):
    """Whether the advantage could be that, at 99.9 %."""
    right = result.accuracy
    share = clopper_pearson(right.successes, right.trials, confidence=0.999)
    return 2 * share.low - 1 <= advantage <= 2 * share.high - 1


@pytest.mark.parametrize(("ratio", "nearby"), [(1.0, 1.3), (3.0, 1.2)])
def test_gaussian_noise_leaves_what_theory_says(ratio, nearby):
    """Two Gaussians Δ apart: advantage 2Φ(Δ/2σ) − 1, area Φ(Δ/√2σ)."""
    pair = PAIRS[0]
    unit = perturbed(1.0)
    mechanism = perturbed(_separation(unit, pair) / (ratio * unit.deviation(101)))
    result = membership_game(mechanism, FIXED, [pair], Retraining(), trials=4000, rng=3)
    expected = 2 * norm.cdf(ratio / 2) - 1
    assert _agrees(result, expected)
    # Noise a little larger or smaller would show.
    for wrong in (ratio / nearby, ratio * nearby):
        assert not _agrees(result, 2 * norm.cdf(wrong / 2) - 1)
    assert result.auc.estimate == pytest.approx(norm.cdf(ratio / np.sqrt(2)), abs=0.02)
    assert result.auc.low <= norm.cdf(ratio / np.sqrt(2)) <= result.auc.high
    point = result.at(0.1)
    assert point.true_positive_rate.rate == pytest.approx(norm.cdf(norm.ppf(0.1) + ratio), abs=0.03)
    assert point.true_positive_rate.low <= point.ceiling
    assert result.advantage.low <= result.advantage_ceiling


def test_scores_are_calibrated_likelihood_ratios():
    """P(member | score) must be 1/(1 + e^−score): a log-likelihood ratio in nats."""
    pair, unit = PAIRS[0], perturbed(1.0)
    mechanism = perturbed(_separation(unit, pair) / (1.5 * unit.deviation(101)))
    result = membership_game(mechanism, FIXED, [pair], Retraining(), trials=4000, rng=4)
    for low, high in ((-2, -1), (-1, 0), (0, 1), (1, 2)):
        inside = (result.scores > low) & (result.scores <= high)
        expected = float(np.mean(1 / (1 + np.exp(-result.scores[inside]))))
        seen = clopper_pearson(
            int(result.members[inside].sum()), int(inside.sum()), confidence=0.999
        )
        assert seen.low <= expected <= seen.high
        assert not seen.low <= expected + 0.15 <= seen.high


def test_no_privacy_is_refuted_that_holds():
    """Two Gaussians three deviations apart are (ε, δ)-DP on a known curve: Balle and Wang 2018."""
    pair, unit, apart = PAIRS[0], perturbed(1.0), 3.0
    mechanism = perturbed(_separation(unit, pair) / (apart * unit.deviation(101)))
    result = membership_game(mechanism, FIXED, [pair], Retraining(), trials=2000, rng=6)
    for delta in (1e-5, 0.1, 0.5):
        found = result.epsilon_at_least(delta=delta)
        spent = norm.cdf(apart / 2 - found / apart) - np.exp(found) * norm.cdf(
            -apart / 2 - found / apart
        )
        # At the ε found, more than δ is really spent: the mechanism does not keep it.
        assert found > 0.5
        assert spent >= delta


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_heavy_noise_leaves_nothing(attack):
    result = membership_game(perturbed(20.0), FIXED, PAIRS[:2], attack, trials=150, rng=0)
    assert _agrees(result, 0.0)
    assert result.advantage_ceiling == pytest.approx(2 * norm.cdf(1 / 20.0) - 1)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_without_noise_everything_is_left(attack):
    result = membership_game(LOGISTIC, FIXED, PAIRS, attack, trials=60, rng=0)
    assert result.accuracy.successes == 60
    assert result.auc.estimate == 1.0
    assert result.advantage.low > 0.85
    assert result.ceiling is None


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_the_secret_bit_stays_secret(attack):
    """Where both candidates are one record, only a leak of the bit could be told."""
    twins = [MembershipQuestion(pair.challenge, pair.challenge) for pair in PAIRS[:3]]
    result = membership_game(perturbed(0.001), FIXED, twins, attack, trials=200, rng=0)
    assert _agrees(result, 0.0)
    assert result.unanswered == 200
    assert 60 <= result.members.sum() <= 140


def test_left_out_is_told_apart_too():
    """Against the record's own effect on the optimum: the paper's game of being there or not."""
    question = MembershipQuestion(PAIRS[0].challenge)
    result = membership_game(perturbed(1e-6), FIXED, [question], Retraining(), trials=40, rng=0)
    assert result.accuracy.successes == 40
    noisy = membership_game(perturbed(1.0), FIXED, [question], Retraining(), trials=40, rng=0)
    assert noisy.advantage_ceiling == pytest.approx(2 * norm.cdf(0.5) - 1, abs=1e-4)


def test_same_seed_same_game():
    games = [
        membership_game(perturbed(0.002), FIXED, PAIRS[:3], ShadowModels(8), trials=30, rng=seed)
        for seed in (1, 1, 2)
    ]
    for name in ("members", "decisions", "scores"):
        assert getattr(games[0], name).tobytes() == getattr(games[1], name).tobytes()
    assert games[0].scores.tobytes() != games[2].scores.tobytes()


def test_the_attack_does_not_move_the_game():
    """Another attack meets the same bits and the same releases."""
    one, other = (
        membership_game(perturbed(0.002), FIXED, PAIRS[:1], attack, trials=50, rng=1)
        for attack in (Retraining(), NearestMean(4))
    )
    assert one.members.tobytes() == other.members.tobytes()
    # Both scores are projections on one line, where noise meets the same in every model.
    assert np.corrcoef(one.scores, other.scores)[0, 1] > 0.999


class TestNetworks:
    """Balle et al. 2022, Figure 11 at a small size: what the initialisation hides."""

    fixed = IMAGES.take(slice(0, 40))
    pairs = tuple(MembershipQuestion.pair(IMAGES.take([i, i + 1])) for i in range(100, 140, 2))

    def test_a_training_that_can_be_repeated_hides_nothing(self):
        result = membership_game(network(), self.fixed, self.pairs, Retraining(), trials=40, rng=0)
        assert result.accuracy.successes == 40

    def test_a_batch_s_gradient_tells_who_is_in_it(self):
        """What federated learning sends is a release like any other."""
        step = GradientStep(MLP((7, 7), 10, hidden=(8,)), tuple(range(10)))
        for attack in (Retraining(), NearestMean(2), ShadowModels(8)):
            result = membership_game(step, self.fixed, self.pairs[:4], attack, trials=40, rng=0)
            assert result.accuracy.successes == 40
            assert result.ceiling is None

    def test_an_unknown_initialisation_hides_less_than_all(self):
        secret = network(initial=Initialisation(seed=None), epochs=10)
        weights = membership_game(
            secret, self.fixed, self.pairs[:2], ShadowModels(32), trials=60, rng=0
        )
        assert weights.advantage.low > 0.0
        assert weights.advantage.high < 1.0

    def test_noise_in_training_bounds_every_attack(self):
        advantages = {}
        for noise in (0.01, 4.0):
            private = network(epochs=3, clipping=DPClipping(1.0, noise))
            result = membership_game(
                private, self.fixed, self.pairs[:2], ShadowModels(8), trials=40, rng=0
            )
            # Three steps of Gaussian noise: a shift of √3/4, doubled for replacing the record.
            assert result.advantage_ceiling == pytest.approx(2 * norm.cdf(np.sqrt(3) / noise) - 1)
            assert result.advantage.low <= result.advantage_ceiling
            advantages[noise] = result.advantage
        assert advantages[0.01].low > 0.8
        assert advantages[4.0].high < 0.8
