"""The contract of every defence, in addition to that of every mechanism."""

from __future__ import annotations

import inspect
from typing import ClassVar

import numpy as np
import pytest
from tests.contract.cases import Case
from tests.contract.mechanism import MechanismContract

from exhume.defences import Defence, undefended
from exhume.protocol.mechanism import Mechanism


class DefenceContract(MechanismContract):
    """The contract. ``post_processing`` says that the defence only changes the release."""

    post_processing: ClassVar[bool]

    @pytest.fixture
    def defence(self, case: Case) -> Defence:
        assert isinstance(case.mechanism, Defence)
        return case.mechanism

    def test_wraps_a_mechanism(self, defence: Defence) -> None:
        assert isinstance(defence.inner, Mechanism)
        assert undefended(defence) is undefended(defence.inner)
        assert not isinstance(undefended(defence), Defence)

    def test_says_what_it_does(self, defence: Defence) -> None:
        assert defence.describe().strip()
        assert "\n" not in defence.describe()
        assert defence.name == defence.name.lower().strip() != ""
        assert inspect.getdoc(type(defence))

    def test_accounts_for_what_it_does(self, defence: Defence, case: Case) -> None:
        """Post-processing keeps the inner event; any other defence has its own event."""
        records = len(case.fixed_set) + 1
        inner, outer = defence.inner.event(records), defence.event(records)
        assert (outer == inner) is self.post_processing


class NoisyDefenceContract(DefenceContract):
    """A defence whose noise gives a guarantee of its own."""

    post_processing = False

    def test_noise_is_each_targets_own(self, case: Case) -> None:
        """The same target, published with two streams, gets different noise."""
        twice = case.targets.take([0, 0])
        streams = [np.random.default_rng(i) for i in range(2)]
        one, other = case.mechanism.publish_each(case.fixed_set, twice, rngs=streams)
        for (_, a), (_, b) in zip(one.arrays(), other.arrays(), strict=True):
            assert not np.isclose(a, b, rtol=1e-9).any()
