"""What is asked: candidates, and games that can't be played."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attacks.informed.membership.small import FIXED, PAIRS, network, perturbed, pictures

from exhume.attacks import GLM as GLMAttack
from exhume.attacks.informed.membership import (
    Against,
    ByReconstruction,
    MembershipQuestion,
    NearestMean,
    Retraining,
    ShadowModels,
    membership_game,
)
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.records import Records
from exhume.training import DPClipping


def _records(count: int, *, width: int = 2, labels: bool = True) -> Records:
    x = np.arange(float(count * width)).reshape(count, width)
    return Records(x, np.arange(count) if labels else None)


class TestCandidates:
    def test_a_pair_is_z0_then_z1(self):
        pair = MembershipQuestion.pair(_records(2))
        assert pair.challenge.x.tolist() == [[2.0, 3.0]]
        assert pair.alternatives.x.tolist() == [[0.0, 1.0]]
        assert pair.records.labels.tolist() == [1, 0]
        assert pair.against is Against.ANOTHER_RECORD

    def test_nothing_in_its_place(self):
        alone = MembershipQuestion(_records(1))
        assert alone.against is Against.NOTHING
        assert len(alone.records) == 1

    @pytest.mark.parametrize(
        ("challenge", "alternatives", "said"),
        [
            (_records(2), None, "one record, got 2"),
            (_records(1), _records(2).take([]), "at least one record"),
            (_records(1), _records(1, width=3), r"shape \(3,\)"),
            (_records(1), _records(1, labels=False), "labels"),
        ],
    )
    def test_errors_say_what_is_wrong(self, challenge, alternatives, said):
        with pytest.raises(InputError, match=said):
            MembershipQuestion(challenge, alternatives)

    def test_a_pair_of_three(self):
        with pytest.raises(InputError, match="two records, got 3"):
            MembershipQuestion.pair(_records(3))


class TestGamesThatCannotBePlayed:
    @pytest.mark.parametrize(
        ("questions", "trials", "said"),
        [
            (PAIRS, 0, "at least 1, got 0"),
            ([], 5, "at least one question"),
            ([PAIRS[0], MembershipQuestion(PAIRS[0].challenge)], 5, "ceilings differ"),
            (
                [MembershipQuestion(Records(FIXED.x[:1], FIXED.y[:1], np.ones(1)))],
                5,
                "weights are not supported",
            ),
        ],
    )
    def test_errors_say_what_is_wrong(self, questions, trials, said):
        with pytest.raises(InputError, match=said):
            membership_game(perturbed(1.0), FIXED, questions, Retraining(), trials=trials, rng=0)

    def test_the_number_of_records_is_public_under_clipping(self):
        images = pictures()
        private = network(clipping=DPClipping(1.0, 1.0))
        question = MembershipQuestion(images.take([100]))
        with pytest.raises(InputError, match="give alternatives"):
            membership_game(
                private, images.take(slice(0, 50)), [question], NearestMean(2), trials=2, rng=0
            )

    @pytest.mark.parametrize("attack", [Retraining(), NearestMean(), ShadowModels()])
    def test_informed_attacks_ask_for_what_they_need(self, attack):
        ignorant = Knowledge(record_shape=FIXED.record_shape)
        assert "training algorithm" in attack.accepts(ignorant, PAIRS[0])
        half = Knowledge(record_shape=FIXED.record_shape, training=perturbed(1.0))
        assert "fixed set" in attack.accepts(half, PAIRS[0])
        with pytest.raises(InputError, match=f"{attack.name} does not apply"):
            attack.prepare(ignorant, PAIRS[0], rng=0)

    def test_wrong_shape(self):
        strange = Knowledge(record_shape=(3,))
        with pytest.raises(InputError, match=r"candidates have shape \(4,\)"):
            Retraining().prepare(strange, PAIRS[0], rng=0)

    def test_reconstruction_needs_alternatives(self):
        question = MembershipQuestion(PAIRS[0].challenge)
        with pytest.raises(InputError, match="omitted record"):
            membership_game(
                perturbed(1.0), FIXED, [question], ByReconstruction(GLMAttack()), trials=2, rng=0
            )

    @pytest.mark.parametrize(("kind", "least"), [(NearestMean, 1), (ShadowModels, 8)])
    def test_too_few_models(self, kind, least):
        with pytest.raises(InputError, match=f"at least {least}"):
            kind(models=least - 1)
