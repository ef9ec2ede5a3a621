"""The guess from what is known: the contract, and what it is worth on real tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.contract.attack import AttackContract
from tests.contract.cases import GLM_CASES, LENGTH_CASES, Case

from exhume.attacks import GLM as GLMAttack
from exhume.attacks import Attack, Oblivious
from exhume.attacks.blind import column_scale
from exhume.attacks.conditional_guess import ConditionalGuess
from exhume.data import load
from exhume.metrics.attributes import discrete_levels, score_attributes
from exhume.protocol.knowledge import Knowledge, KnownAttributes
from exhume.protocol.reconstruction import Status
from exhume.protocol.records import Records
from exhume.protocol.release import Release, Weights
from exhume.training import GLM, Family, Penalty

NOTHING = Weights({})
_BY_NAME = {str(case): case for case in GLM_CASES}


class TestConditionalGuess(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return ConditionalGuess()

    @pytest.fixture(
        params=(
            _BY_NAME["attributes known"],
            _BY_NAME["label known"],
            LENGTH_CASES[-1],
            replace(_BY_NAME["pictures"], name="pictures, half", known_features=(0, 1)),
            replace(_BY_NAME["string labels"], labels_known=True, known_features=(2,)),
        ),
        ids=str,
    )
    def case(self, request: pytest.FixtureRequest) -> Case:
        return request.param

    @pytest.fixture
    def wrong_releases(self) -> list[Release]:
        # A guess that never looks at the release has no wrong kind of it.
        return []


def _knowledge(pool: Records, record, mask, **settings) -> Knowledge:
    known = KnownAttributes(mask, record)
    return Knowledge(
        record_shape=pool.record_shape, fixed_set=pool, known_attributes=known, **settings
    )


class TestWhatIsKnown:
    pool = Records(np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2)
    record = np.array([1.0, 2.0, 3.0])

    @pytest.mark.parametrize(
        ("mask", "count", "said"),
        [
            ([False] * 3, 30, "nothing is known about the record"),
            ([True] * 3, 30, "there is nothing to guess"),
        ],
    )
    def test_refusals(self, mask, count, said):
        knowledge = _knowledge(self.pool.take(slice(0, count)), self.record, mask)
        found = ConditionalGuess().reconstruct(NOTHING, knowledge, rng=0)
        assert found.status is Status.REFUSED
        assert said in found.message

    def test_too_few_records_are_information_that_is_missing(self):
        few = _knowledge(self.pool.take(slice(0, 2)), self.record, [True, False, False])
        found = ConditionalGuess().reconstruct(NOTHING, few, rng=0)
        assert found.status is Status.UNINFORMED
        assert "at least three records to learn from: add knowledge" in found.message

    def test_is_a_baseline(self):
        assert ConditionalGuess.baseline

    def test_known_values_are_kept(self):
        knowledge = _knowledge(self.pool, self.record, [True, False, True])
        found = ConditionalGuess().reconstruct(NOTHING, knowledge, rng=0)
        assert found.samples[0, [0, 2]].tolist() == [1.0, 3.0]

    def test_the_release_is_not_looked_at(self):
        knowledge = _knowledge(self.pool, self.record, [True, False, True])
        one = ConditionalGuess().reconstruct(NOTHING, knowledge, rng=0)
        other = ConditionalGuess().reconstruct(Weights({"x": self.record}), knowledge, rng=1)
        assert one.samples.tobytes() == other.samples.tobytes()

    def test_a_label_alone_gives_its_class_s_mean(self):
        rng = np.random.default_rng(1)
        y = rng.integers(2, size=400)
        pool = Records(np.where(y == 1, 5.0, -5.0)[:, None] + rng.normal(size=(400, 2)), y)
        for label, mean in ((0, -5.0), (1, 5.0)):
            knowledge = Knowledge(record_shape=(2,), fixed_set=pool, labels=np.array([label]))
            found = ConditionalGuess().reconstruct(NOTHING, knowledge, rng=0)
            assert found.samples[0] == pytest.approx([mean, mean], abs=0.3)
            # One deviation a column is left.
            assert found.error_estimate[0] == pytest.approx(1.0, abs=0.15)

    def test_a_response_is_a_quantity(self):
        rng = np.random.default_rng(2)
        x = rng.normal(size=(300, 2))
        pool = Records(x, x[:, 0] * 3.0 + 0.01 * rng.normal(size=300))
        knowledge = Knowledge(record_shape=(2,), fixed_set=pool, labels=np.array([4.5]))
        found = ConditionalGuess().reconstruct(NOTHING, knowledge, rng=0)
        assert found.samples[0] == pytest.approx([1.5, 0.0], abs=0.15)

    def test_labels_without_labels_in_the_pool(self):
        pool = Records(self.pool.x)
        knowledge = Knowledge(record_shape=(3,), fixed_set=pool, labels=np.array([1]))
        assert "nothing is known" in ConditionalGuess().accepts(NOTHING, knowledge)

    def test_shadow_targets_are_learnt_from_too(self):
        knowledge = Knowledge(
            record_shape=(3,),
            shadow_targets=self.pool,
            known_attributes=KnownAttributes([True, False, False], self.record),
        )
        assert ConditionalGuess().accepts(NOTHING, knowledge) is None


class TestTables:
    """The diabetes table, half of each record known: what the guess, and a real attack, reach."""

    data = load("diabetes").train
    pool, targets = data.take(slice(0, 300)), data.take(slice(300, 340))
    mask = np.arange(10) < 5
    training = GLM(Family.LINEAR, Penalty(1.0))

    def _samples(self, attack: Attack, mask):
        releases = self.training.publish_each(
            self.pool, self.targets, rngs=[np.random.default_rng(i) for i in range(40)]
        )
        knowledge = [
            _knowledge(self.pool, record, mask, training=self.training) for record in self.targets.x
        ]
        rngs = [np.random.default_rng(i) for i in range(40)]
        found = attack.reconstruct_each(list(releases), knowledge, rngs=rngs)
        return np.stack([one.samples[0] for one in found]), found

    def test_it_beats_the_oblivious_guess_and_loses_to_the_release(self):
        guesses, found = self._samples(ConditionalGuess(), self.mask)
        oblivious, _ = self._samples(Oblivious(), self.mask)
        rebuilt, _ = self._samples(GLMAttack(), self.mask)
        scale = column_scale(self.pool.x, None)
        truth = self.targets.x
        against_blind = score_attributes(truth, guesses, oblivious, known=self.mask, scale=scale)
        assert against_blind.errors.mean() < 0.85 * against_blind.guess_errors.mean()
        against_guess = score_attributes(truth, rebuilt, guesses, known=self.mask, scale=scale)
        assert against_guess.errors.max() < 1e-6
        assert against_guess.beaten.successes == 40
        # The guess's own estimate, over the whole record and in its units, is about right.
        own = np.sqrt(np.mean((guesses - truth) ** 2))
        assert found[0].error_estimate[0] == pytest.approx(own, rel=0.25)

    def test_a_discrete_column(self):
        """Sex has two values: the guess is better than chance, the release says it outright."""
        mask = np.arange(10) != 1
        levels = discrete_levels(self.pool.x, mask)
        assert [index for index, _ in levels] == [1]
        guesses, _ = self._samples(ConditionalGuess(), mask)
        rebuilt, _ = self._samples(GLMAttack(), mask)
        score = score_attributes(self.targets.x, rebuilt, guesses, known=mask, levels=levels)
        assert score.match == 1.0
        assert 0.55 <= score.guess_match < 1.0
