"""Every matching attack keeps to the contract."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.attacks.gradients.matching.matching_cases import (
    CLASSES,
    KINKED,
    SMOOTH,
    contract_case,
    hidden_layer,
    pictures,
)
from tests.contract.attack import AttackContract
from tests.contract.cases import Case

from exhume.attacks import Attack
from exhume.attacks.gradients.matching import (
    DLG,
    IDLG,
    BatchNormMatching,
    FeatureInversion,
    Geiping,
    GenerativePrior,
    LiuMatching,
)
from exhume.models import MLP, Activation
from exhume.models.resnet import ResNet
from exhume.protocol.knowledge import Knowledge
from exhume.training.batch_statistics import batch_statistics
from exhume.training.gradient import GradientStep

pytestmark = pytest.mark.slow


class TestDLG(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return DLG(steps=4, starts=1)

    @pytest.fixture
    def case(self) -> Case:
        return contract_case("the last of three", SMOOTH, 4, 2)


class TestGeiping(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return Geiping(steps=60, total_variation=2e-3)

    @pytest.fixture
    def case(self) -> Case:
        return contract_case("a kinked network", KINKED, 8, 0)


class TestIDLG(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return IDLG(steps=3, starts=1)

    @pytest.fixture
    def case(self) -> Case:
        return replace(contract_case("labels to be found", SMOOTH, 4, 0), labels_known=False)


class TestLiu(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return LiuMatching(steps=8)

    @pytest.fixture
    def case(self) -> Case:
        return contract_case("a kinked network", KINKED, 8, 0)


class TestFeatureInversion(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return FeatureInversion(steps=20, restarts=2)

    @pytest.fixture
    def case(self) -> Case:
        return contract_case("a hidden layer", hidden_layer("hidden_relu"), 12, 0)


class _WithStatistics(Case):
    """A case whose client sent its normalisation statistics along."""

    def _knowledge(self, i: int) -> Knowledge:
        assert isinstance(self.mechanism, GradientStep)
        sent = batch_statistics(self.mechanism, self.targets.take([i]))
        return replace(super()._knowledge(i), batch_norm=sent)


class TestBatchNorm(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return BatchNormMatching(steps=60, total_variation=2e-3)

    @pytest.fixture
    def case(self) -> Case:
        network = ResNet((8, 8), 10, width=8, blocks=(1, 1))
        step = GradientStep(network, CLASSES, batch_norm="eval")
        return _WithStatistics(**vars(contract_case("a normalised network", step, 8, 0)))


class _WithShadows(Case):
    """A case whose adversary has images like the target's."""

    def _knowledge(self, i: int) -> Knowledge:
        return replace(super()._knowledge(i), shadow_targets=pictures(8, 10, first=500))


class TestGenerativePrior(AttackContract):
    @pytest.fixture
    def attack(self) -> Attack:
        return GenerativePrior(steps=10, training_steps=10, code=16, width=8)

    @pytest.fixture
    def case(self) -> Case:
        step = GradientStep(MLP((8, 8), 10, (6,), Activation.SIGMOID), CLASSES)
        return _WithShadows(**vars(contract_case("a small network", step, 8, 0)))
