"""The portfolio: the contract, and picks on real images beside all of its members."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.attacks.gradients.analytic.gradient_cases import LONE_CASES
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack, Oblivious, Portfolio
from exhume.attacks.gradients.matching.problem import MatchableRelease, read
from exhume.attacks.gradients.portfolio.choice import MemberRun, best_of
from exhume.attacks.gradients.portfolio.evidence import HeldOutEvidence, held_out
from exhume.attacks.gradients.portfolio.label_shares import given_labels, label_shares
from exhume.attacks.gradients.portfolio.portfolio import (
    MemberBudget,
    direct_members,
    matching_members,
    within,
)
from exhume.data import load
from exhume.models import MLP, Activation
from exhume.models.convnet import ConvNet
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.records import Records
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps
from exhume.training.optimisers import SGD

pytestmark = pytest.mark.slow

CLASSES = tuple(range(10))
IMAGES = load("fashion-mnist-small").train
CONVNET = GradientStep(ConvNet((14, 14), 10, width=16), CLASSES)
MLP_STEP = GradientStep(MLP((14, 14), 10, (64, 32), Activation.RELU), CLASSES)
SMOOTH = GradientStep(MLP((7, 7), 10, (12,), Activation.SIGMOID), CLASSES, precision="float64")


def halves(chosen: list[int] | slice, step: int = 2) -> Records:
    return Records(IMAGES.x[chosen][:, ::step, ::step].astype(np.float64), IMAGES.y[chosen])


def known(mechanism: Mechanism, data: Records, step: int = 2) -> Knowledge:
    return Knowledge(
        record_shape=data.record_shape,
        value_range=(0.0, 1.0),
        training=mechanism,
        labels=data.y,
        shadow_targets=halves(slice(2000, 2200), step),
    )


def error(data: Records, found: Reconstruction) -> float:
    """Mean squared error, records paired up as fits best."""
    from scipy.optimize import linear_sum_assignment

    costs = np.square(data.x[:, None] - found.samples[None]).mean(axis=(2, 3))
    rows, columns = linear_sum_assignment(costs)
    assert len(rows) == len(data)
    return float(costs[rows, columns].mean())


class TestContract(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Portfolio(steps=40)

    @pytest.fixture
    def case(self) -> Case:
        return LONE_CASES[1]


BATCH = halves([10, 27, 31])


@pytest.fixture(scope="module")
def found() -> Reconstruction:
    release = CONVNET.publish(BATCH, rng=np.random.default_rng(0))
    return Portfolio(steps=300).reconstruct(release, known(CONVNET, BATCH), rng=0)


class TestConvNet:
    """No fully connected first layer: only searching attacks take it."""

    def test_the_pick_is_near_the_best_member(self, found: Reconstruction) -> None:
        release = CONVNET.publish(BATCH, rng=np.random.default_rng(0))
        knowledge = known(CONVNET, BATCH)
        blind = Oblivious().reconstruct(release, knowledge, rng=0)
        errors = {}
        for member in matching_members(labels_known=True):
            # Each alone gets what the chosen one got in the end.
            alone = within(member, 150, smooth=False).reconstruct(release, knowledge, rng=0)
            if len(alone):
                errors[member.name] = error(BATCH, alone)
        assert found.stats["chosen"] in errors
        assert error(BATCH, found) < 0.2 * error(BATCH, blind)
        # Within 3 dB of the best member, and well above the typical one.
        assert error(BATCH, found) < 2.0 * min(errors.values())
        assert error(BATCH, found) < np.median(list(errors.values())) + 1e-12

    def test_every_member_is_on_record(self, found: Reconstruction) -> None:
        for member in (*direct_members(), *matching_members(labels_known=True)):
            assert f"{member.name}.status" in found.stats
        assert found.stats["first-layer.status"] == "REFUSED"
        assert "Conv2d" in str(found.stats["first-layer.message"])
        assert found.stats["batch-norm.status"] == "REFUSED"
        ran = ("dlg", "geiping", "liu", "generative-prior")
        assert all(float(found.stats[f"{n}.objective"]) >= 0 for n in ran)
        assert found.status is Status.APPROXIMATE
        assert found.stats["chosen"] in found.message
        assert found.error_estimate is not None


class TestExact:
    def test_a_solved_batch_ends_the_contest(self) -> None:
        """A ReLU network's first layer gives a small batch away; nobody searches after that."""
        data = halves([3, 4, 8])
        release = MLP_STEP.publish(data, rng=np.random.default_rng(0))
        found = Portfolio().reconstruct(release, known(MLP_STEP, data), rng=0)
        assert found.status is Status.CONVERGED
        assert error(data, found) < 1e-8
        assert "geiping.status" not in found.stats
        assert found.stats["residual"] <= 5 * found.stats["floor"]  # type: ignore[operator]

    def test_several_local_steps(self) -> None:
        """Only searching members take an update of several steps; a smooth network is exact."""
        mechanism = LocalSteps(SMOOTH, SGD(0.1), 3)
        data = halves([5, 6], 4)
        release = mechanism.publish(data, rng=np.random.default_rng(0))
        knowledge = known(mechanism, data, 4)
        found = Portfolio(steps=4000).reconstruct(release, knowledge, rng=0)
        blind = Oblivious().reconstruct(release, knowledge, rng=0)
        assert found.stats["first-layer.status"] == "REFUSED"
        assert (found.status, found.stats["chosen"]) == (Status.CONVERGED, "dlg")
        assert error(data, found) < 1e-4 * error(data, blind)


def test_a_wrong_claim_is_not_certified() -> None:
    """Labels that are not the batch's: whatever a member claims, re-simulating says no."""
    data = halves([3, 4])
    release = CONVNET.publish(data, rng=np.random.default_rng(0))
    wrong = replace(known(CONVNET, data), labels=(data.labels + 1) % 10)
    found = Portfolio(steps=60).reconstruct(release, wrong, rng=0)
    assert found.status is not Status.CONVERGED


def test_seconds_set_the_steps() -> None:
    data = halves([3, 4])
    release = CONVNET.publish(data, rng=np.random.default_rng(0))
    found = Portfolio(seconds=0.5).reconstruct(release, known(CONVNET, data), rng=0)
    assert len(found) == 2


def test_what_a_member_overran_is_taken_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that the test turns: seconds of a real one would depend on the machine."""
    now = [0.0]
    clock = SimpleNamespace(process_time=lambda: now[0])
    monkeypatch.setattr("exhume.attacks.gradients.portfolio.portfolio.time", clock)

    def taking(seconds: float) -> bool:
        now[0] += seconds
        return False

    budget = MemberBudget(steps=1, seconds=10.0, pace=lambda: 0.01)
    taking(2.0)  # by the members that solve: 8 s are left, 4 s of them for two that search
    assert budget.share(2, 2) == 200
    budget.timed("slow", 200, lambda: taking(3.0))
    assert budget.share(2, 1) == 100
    budget.timed("quick", 100, lambda: taking(1.0))
    assert budget.rest("quick") == 400
    assert budget.rest("slow") == pytest.approx(4.0 / 0.015, abs=1)


def test_zeros_hold_nothing() -> None:
    release = CONVNET.publish(halves([0]), rng=np.random.default_rng(0))
    nothing = replace(release, gradients={n: 0.0 * a for n, a in release.gradients.items()})
    found = Portfolio().reconstruct(nothing, known(CONVNET, halves([0])), rng=0)
    assert found.status is Status.NO_INFORMATION


@pytest.mark.parametrize("settings", [{"steps": 0}, {"seconds": 0.0}])
def test_settings_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        Portfolio(**settings)  # type: ignore[arg-type]


class TestLabels:
    """A record without a label gets the one that the last layer's gradient says."""

    data = halves([1, 2, 3, 4, 5])

    def reading(self) -> MatchableRelease:
        release = MLP_STEP.publish(self.data, rng=np.random.default_rng(0))
        found = read(release, known(MLP_STEP, self.data))
        assert isinstance(found, MatchableRelease)
        return found

    def test_shares_are_the_true_labels(self) -> None:
        shares = label_shares(self.reading(), self.data.x)
        assert shares is not None
        np.testing.assert_allclose(shares, np.eye(10)[self.data.labels], atol=1e-3)

    def test_known_labels_are_dealt(self) -> None:
        shuffled = self.data.labels[[4, 2, 0, 1, 3]]
        dealt = given_labels(self.reading(), self.data.x, None, shuffled)
        np.testing.assert_array_equal(dealt, self.data.labels)
        partly = given_labels(self.reading(), self.data.x, self.data.labels[:2], shuffled)
        np.testing.assert_array_equal(partly, self.data.labels)
        alone = given_labels(self.reading(), self.data.x, None, None)
        np.testing.assert_array_equal(alone, self.data.labels)


class TestChoice:
    def entry(self, name: str, level: float, objective: float, **evidence: object) -> MemberRun:
        given = HeldOutEvidence(
            distance=objective,
            unseen=None,
            statistics=None,
            residual=0.3,
            floor=1e-7,
            variation=level,
            determined=True,
        )
        samples = np.full((1, 2, 2), level)
        found = Reconstruction(samples, Status.APPROXIMATE)
        return MemberRun(name, found, replace(given, **evidence), samples)  # type: ignore[arg-type]

    def test_lowest_objective_wins(self) -> None:
        entries = [self.entry("a", 0.1, 0.4), self.entry("b", 0.9, 0.2)]
        assert best_of(entries) is entries[1]

    def test_agreement_decides_between_equals(self) -> None:
        entries = [
            self.entry("lone", 0.9, 0.200),
            self.entry("one", 0.15, 0.201),
            self.entry("other", 0.1, 0.202),
        ]
        assert best_of(entries) is entries[1]

    def test_exact_beats_everything(self) -> None:
        entries = [self.entry("a", 0.1, 0.0), self.entry("b", 0.9, 0.2, residual=2e-7)]
        assert best_of(entries) is entries[1]
        # A release shorter than the batch proves nothing.
        entries[1] = self.entry("b", 0.9, 0.2, residual=2e-7, determined=False)
        assert best_of(entries) is entries[0]

    def test_held_out_layers_are_between_the_first_and_the_last(self) -> None:
        data = halves([0])
        release = CONVNET.publish(data, rng=np.random.default_rng(0))
        reading = read(release, known(CONVNET, data))
        assert isinstance(reading, MatchableRelease)
        held = held_out(reading)
        matrices = [n for n, a in reading.arrays.items() if a.ndim > 1]
        assert held
        assert held < set(matrices[1:-1])
