"""Every attack on networks of a user's own: it answers, or says why not, and never crashes.

Searches are cut to a few steps: this is about what they can read, not about how well they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.contract.attack import assert_well_formed
from tests.contract.own_networks import OWN

from exhume.attacks.catalogue import ATTACKS, attack_named
from exhume.models import Imported
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.mechanism import Mechanism
from exhume.protocol.records import Records
from exhume.protocol.release import Release
from exhume.training import SGD, Answers, DPClipping, Recorded, Training
from exhume.training.answers import probes
from exhume.training.batch_statistics import batch_statistics
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps

pytestmark = pytest.mark.slow

CLASSES = (0, 1, 2)
NETWORKS = ("channels_first", "batch_norm", "dropout", "tied", "transformer")
PRIVATE = ("channels_first", "tied", "transformer")
"""Those of which DP-SGD can be asked: each record has a gradient of its own."""
SHORT: dict[str, dict[str, object]] = {
    "trajectory-inversion": {"jacobians": 1},
    "ridge": {"shadows": 20},
    "reconstructor": {"shadows": 20, "epochs": 1},
    "sparsity": {"trials": 50},
    "dlg": {"steps": 1, "starts": 1, "jacobians": 1},
    "idlg": {"steps": 1, "starts": 1, "jacobians": 1},
    "geiping": {"steps": 2},
    "batch-norm": {"steps": 2},
    "liu": {"steps": 2},
    "generative-prior": {"steps": 2, "training_steps": 2, "code": 4, "width": 4},
    "feature-inversion": {"steps": 2, "restarts": 1},
    "portfolio": {"steps": 4},
    "row-space": {"draws": 20, "iterations": 2},
    "kkt": {"restarts": 1, "steps": 2, "draws": 10},
    "bilevel": {"steps": 1, "lower_steps": 2, "products": 2},
    "known-initialisation": {"restarts": 1, "steps": 2, "draws": 10},
    "change-sparsity": {"trials": 50},
}


@dataclass(frozen=True, eq=False)
class Released:
    """What one network released, and what the adversary knows."""

    release: Release
    knowledge: Knowledge


def released(name: str) -> Iterator[Released]:
    """Yield what a network releases, as different adversaries see it; answers come last."""
    rng = np.random.default_rng(3)
    shape = (1, 6, 6)
    data = Records(rng.uniform(size=(24, *shape)), np.arange(24) % 3)
    pool, fixed, batch = data.take(slice(0, 10)), data.take(slice(10, 21)), data.take([21, 22, 23])
    network = Imported(shape, 3, f"{OWN}:{name}")
    step = GradientStep(network, CLASSES)
    described = Training(network, CLASSES, SGD(0.2), epochs=2, draw_seed=1)
    decayed = replace(described, optimiser=SGD(0.2, weight_decay=1e-3))
    known = Knowledge(record_shape=shape, value_range=(0.0, 1.0), shadow_targets=pool)
    batched: tuple[Mechanism, ...] = (step, LocalSteps(step, SGD(0.1), 2))
    for mechanism in (*batched, decayed):
        release = mechanism.publish(batch, rng=rng)
        labels = batch.labels if mechanism is decayed else None
        yield Released(release, replace(known, training=mechanism, labels=labels))
    if name == "batch_norm":
        told = replace(known, training=step, batch_norm=batch_statistics(step, batch))
        yield Released(step.publish(batch, rng=rng), told)
    if name in PRIVATE:
        steps = Recorded(replace(described, clipping=DPClipping(1.0, 0.1)))
        release = steps.publish(fixed.with_record(batch.take([0])), rng=rng)
        listed = replace(known, training=steps, fixed_set=fixed, candidates=batch)
        yield Released(release, listed)
        yield Released(release, replace(listed, candidates=None))
    queries = probes(fixed, 40, rng=rng)
    for informed in (described, Answers(described, queries)):
        whole = fixed.with_record(batch.take([0]))
        release = informed.publish(whole, rng=rng)
        yield Released(release, replace(known, training=informed, fixed_set=fixed))


def ran_on(name: str, cases: dict[str, list[Released]]) -> set[str]:
    """Return the networks on one of whose releases an attack can be run."""
    attack = attack_named(name, SHORT.get(name, {}))
    return {
        network
        for network, found in cases.items()
        if any(attack.accepts(case.release, case.knowledge) is None for case in found)
    }


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Released]]:
    return {name: list(released(name)) for name in NETWORKS}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", [attack.name for attack in ATTACKS])
def test_it_answers_or_says_why_not(
    name: str, network: str, cases: dict[str, list[Released]]
) -> None:
    attack = attack_named(name, SHORT.get(name, {}))
    for case in cases[network]:
        reason = attack.accepts(case.release, case.knowledge)
        found = attack.reconstruct(case.release, case.knowledge, rng=0)
        assert_well_formed(found, case.knowledge)
        if reason is not None:
            assert not len(found)
            assert reason in found.message


ALL = frozenset(NETWORKS)
RUN = {
    **dict.fromkeys(("trajectory-inversion", "ridge", "reconstructor", "bilevel"), ALL),
    **dict.fromkeys(("dlg", "idlg", "geiping", "liu", "generative-prior", "portfolio"), ALL),
    "batch-norm": {"batch_norm"},
    **dict.fromkeys(("prior-aware", "last-iterate"), frozenset(PRIVATE)),
    **dict.fromkeys(("kkt", "known-initialisation"), ALL - {"batch_norm"}),
}
"""Attacks that take networks whatever is in them, and those of which they can be asked."""


@pytest.mark.parametrize("name", RUN)
def test_attacks_for_any_network_are_really_run(
    name: str, cases: dict[str, list[Released]]
) -> None:
    assert ran_on(name, cases) == RUN[name]


@pytest.mark.parametrize("network", NETWORKS)
def test_shadow_models_are_trained_of_each(network: str, cases: dict[str, list[Released]]) -> None:
    """Weights and answers alike, with whatever buffers the network has."""
    for case in cases[network][-2:]:
        found = attack_named("ridge", SHORT["ridge"]).reconstruct(
            case.release, case.knowledge, rng=0
        )
        assert found.status.ran, found.message
