"""φ that learned from another fixed set first, as an option of the attack."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.shadows import small_network as small

from exhume.attacks import Reconstructor
from exhume.protocol.errors import InputError

ATTACK = Reconstructor(shadows=40, hidden=(60, 60), epochs=30)


def _errors(attack: Reconstructor, shadow_targets: int) -> float:
    training = small.training()
    knowledge = small.knowledge(training, shadow_targets=small.shadow_targets(shadow_targets))
    releases = small.releases(training, 8)
    found = [attack.reconstruct(release, knowledge, rng=0).samples[0] for release in releases]
    return float(np.square(np.stack(found) - small.targets(8).x).mean())


def test_what_was_learned_for_another_fixed_set_helps():
    assert _errors(replace(ATTACK, first=500), 700) < 0.9 * _errors(ATTACK, 700)


def test_too_few_shadow_targets_are_said():
    training = small.training()
    knowledge = small.knowledge(training, shadow_targets=small.shadow_targets(100))
    reason = replace(ATTACK, first=500).accepts(small.releases(training, 1)[0], knowledge)
    assert reason is not None
    assert f"needs {540 + len(small.fixed_set())} shadow targets" in reason


def test_a_few_are_refused():
    with pytest.raises(InputError, match="first must be 0 or at least 8"):
        Reconstructor(first=3)
