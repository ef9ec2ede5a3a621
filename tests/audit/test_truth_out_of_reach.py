"""In a real audit nothing that an attack is handed leads to the record it is after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from tests.audit import small
from tests.audit.saved import save
from tests.contract.graph import holds_record, reachable_arrays

from exhume.attacks import Attack
from exhume.audit import Serial, make_plan, run
from exhume.config import load
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Release

HANDED: list[tuple[Release, Knowledge, np.random.Generator]] = []


@dataclass(frozen=True)
class Keeping(Attack):
    """Keeps whatever it is handed; rebuilds nothing."""

    name: ClassVar[str] = "keeping"

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        HANDED.append((release, knowledge, rng))
        return Reconstruction(np.empty((0, *knowledge.record_shape)), Status.NO_INFORMATION)


SETTINGS = {
    "weights": small.PLAIN,
    "scaler": small.SCALED,
    "noise": small.NOISY,
    "answers": """
[data]
name = "breast-cancer"
fixed_set = 60
units = "fixed-set"
[release]
kind = "outputs"
model = "logistic"
penalty = { strength = 1.0 }
answer = "probabilities"
defences = [{ name = "rounding", decimals = 6 }]
""",
    "shadows": """
[data]
name = "diabetes"
fixed_set = 60
shadow_targets = 40
[release]
model = "ridge"
penalty = { strength = 1.0 }
""",
    "something known": """
[data]
name = "breast-cancer"
fixed_set = 60
[release]
model = "logistic"
penalty = { strength = 1.0 }
solver = { name = "lbfgs" }
[knowledge]
labels = true
attributes = [0, 3, 7]
""",
    "pictures": """
[data]
name = "fashion-mnist-small"
classes = [2, 6]
fixed_set = 60
[release]
model = "logistic"
penalty = { strength = 1.0 }
""",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_leads_to_the_target(name: str, tmp_path: Path) -> None:
    HANDED.clear()
    # Black pixels make the walk through pictures slow.
    count = 1 if name == "pictures" else 3
    plan = small.plan(SETTINGS[name], small.audit(count, seed=9), extra=(Keeping(),))
    run(plan, tmp_path / "run", Serial())
    targets = small.load_file(tmp_path / "run" / "artefacts" / "000-truth.safetensors")["targets"]
    assert len(HANDED) == len(targets) == count
    for given, target in zip(HANDED, targets, strict=True):
        assert len(reachable_arrays(*given)) >= 2, "the walk did not walk"
        assert holds_record(given, target) is None


def test_nor_to_the_targets_of_others(tmp_path: Path) -> None:
    """The other targets are in nobody's training set, but their records are private, too."""
    HANDED.clear()
    run(small.plan(small.PLAIN, small.audit(4), extra=(Keeping(),)), tmp_path / "run", Serial())
    targets = small.load_file(tmp_path / "run" / "artefacts" / "000-truth.safetensors")["targets"]
    for given in HANDED:
        for target in targets:
            assert holds_record(given, target) is None


def test_nor_from_a_release_in_a_file(tmp_path: Path) -> None:
    HANDED.clear()
    saved = save(tmp_path)
    toml = saved.write_toml(knowledge="labels = true")
    run(make_plan(load(toml), extra=(Keeping(),)), tmp_path / "run", Serial())
    (given,) = HANDED
    assert holds_record(given, saved.record) is None
    assert given[1].labels is not None
    assert given[1].labels.tolist() == [saved.label]


def test_the_walk_finds_a_record_that_is_there(tmp_path: Path) -> None:
    """The same walk, asked for a record that the adversary does have."""
    HANDED.clear()
    run(small.plan(small.PLAIN, small.audit(1), extra=(Keeping(),)), tmp_path / "run", Serial())
    (given,) = HANDED
    assert given[1].fixed_set is not None
    assert holds_record(given, given[1].fixed_set.x[11].copy()) is not None
