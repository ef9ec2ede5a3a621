"""Error rates of a judge: pictures instead of candidates, networks instead of pictures."""

from __future__ import annotations

import numpy as np
import pytest

from exhume.attacks.weights_only.authenticity import AuthenticityVerdict, Grouped, calibrate, joined
from exhume.protocol.errors import InputError
from exhume.stats.means import bounded_mean_interval
from exhume.stats.roc import independent, roc_area


def of_networks(rng, networks, pictures, *, shift=0.0, network_spread=0.0, copies=4):
    """Candidates of a picture are alike, and pictures of a network have something in common."""
    parts = []
    for network in range(networks):
        common = rng.normal(0, network_spread)
        own = rng.normal(shift + common, 1.0, pictures)
        picture = np.repeat(np.arange(pictures), rng.integers(1, copies + 1, pictures))
        scores = own[picture] + rng.normal(0, 0.1, len(picture))
        parts.append(Grouped(scores, picture, np.full(len(picture), network)))
    return joined(parts)


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


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_it_is_kept_where_candidates_and_pictures_are_alike(spread):
    """A threshold that ignores who belongs together breaks what it claims; this one doesn't."""
    rng = np.random.default_rng(6)
    fresh = of_networks(rng, 400, 20, network_spread=spread).scores
    grouped, ignoring, rounds = 0, 0, 60
    for _ in range(rounds):
        other = of_networks(rng, 8, 4, network_spread=spread, copies=12)
        real = of_networks(rng, 8, 6, shift=3.0, network_spread=spread)
        for found, counted in (
            (calibrate(real, other, allowed=0.2), True),
            (calibrate(real.scores, other.scores, allowed=0.2), False),
        ):
            assert found.threshold is not None or counted
            level = np.inf if found.threshold is None else found.threshold
            wrong = (fresh >= level).mean() > 0.2
            grouped, ignoring = grouped + (wrong and counted), ignoring + (wrong and not counted)
    assert grouped <= 0.08 * rounds
    assert ignoring > grouped + 0.1 * rounds


@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_the_area_interval_holds_the_truth(spread):
    rng = np.random.default_rng(7)
    many = of_networks(rng, 3000, 4, shift=1.0, network_spread=spread, copies=1)
    base = of_networks(rng, 3000, 4, network_spread=spread, copies=1)
    truth = roc_area(many.scores, base.scores).estimate
    held = 0
    for _ in range(60):
        real = of_networks(rng, 5, 6, shift=1.0, network_spread=spread)
        other = of_networks(rng, 5, 6, network_spread=spread)
        found = roc_area(real, other)
        held += found.low <= truth <= found.high
    assert held >= 56


def test_a_picture_has_one_vote_however_many_stand_for_it():
    once = Grouped(np.array([0.9, 0.1]), np.array([0, 1]), np.zeros(2, dtype=int))
    often = Grouped(np.array([0.9] * 50 + [0.1]), np.array([0] * 50 + [1]), np.zeros(51, dtype=int))
    other = independent(np.array([0.5, 0.5]))
    assert roc_area(often, other).estimate == pytest.approx(roc_area(once, other).estimate) == 0.5
    assert roc_area(often, other).high == pytest.approx(roc_area(once, other).high)
    assert often.share(0.5).estimate == 0.5
    assert often.share(0.5, below=True).estimate == 0.5
    assert often.pictures == 2
    assert often.reaching(0.5) == 1


def test_independent_scores_keep_the_known_interval():
    rng = np.random.default_rng(8)
    real, other = rng.normal(1, 1, 40), rng.normal(0, 1, 50)
    found = roc_area(independent(real), independent(other))
    known = bounded_mean_interval((real[:, None] > other).mean(), 40)
    assert found.estimate == pytest.approx(known.estimate)
    assert (found.low, found.high) == pytest.approx((known.low, known.high))


def test_two_networks_that_disagree_tell_nothing():
    good = Grouped(np.linspace(0.8, 1, 40), np.arange(40), np.zeros(40, dtype=int))
    bad = Grouped(np.linspace(0, 0.2, 40), np.arange(40), np.ones(40, dtype=int))
    other = Grouped(np.full(80, 0.5), np.tile(np.arange(40), 2), np.repeat([0, 1], 40))
    found = roc_area(joined([good, bad]), other)
    assert (found.low, found.high) == (0.0, 1.0)
    # All real ones of one network: without it nothing is left to compare.
    assert roc_area(good, other).low == 0.0


def test_a_verdict_needs_both_ends():
    real = independent(np.concatenate([np.linspace(0.7, 1, 95), np.full(5, 0.5)]))
    other = independent(np.concatenate([np.linspace(0, 0.3, 95), np.full(5, 0.6)]))
    found = calibrate(real, other)
    assert found.tells
    assert found.verdict(0.95) is AuthenticityVerdict.REAL
    assert found.verdict(0.1) is AuthenticityVerdict.INVENTED
    assert found.false_positives(0.95).estimate == 0.0
    assert found.false_positives(0.0).estimate == 1.0
    false, true = found.curve()
    assert (false[0], false[-1], true[-1]) == (0.0, 1.0, 1.0)
    between = calibrate(np.tile(np.linspace(0, 1, 20), 10), np.tile(np.linspace(0, 0.9, 20), 10))
    assert between.verdict(0.5) is AuthenticityVerdict.UNTOLD
    chance = calibrate(np.linspace(0, 1, 50), np.linspace(0, 1, 50))
    assert {chance.verdict(score) for score in (0.0, 0.5, 1.0)} == {AuthenticityVerdict.UNTOLD}


def test_scores_need_their_groups():
    with pytest.raises(InputError, match="as many entries of network"):
        Grouped(np.zeros(3), np.zeros(3), np.zeros(2))
    with pytest.raises(InputError, match="strictly between 0 and 1"):
        calibrate(np.zeros(3), np.zeros(3), allowed=1.0)
