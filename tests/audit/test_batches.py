"""Audits of gradients and updates: a release is about a batch, a score about a record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from tests.audit import small

from exhume.attacks import Attack
from exhume.audit import Serial, Store, make_plan, run
from exhume.config import load
from exhume.protocol.errors import InputError
from exhume.protocol.knowledge import Knowledge
from exhume.protocol.reconstruction import Reconstruction, Status
from exhume.protocol.release import Gradient, Release, Update
from exhume.training.gradient import GradientStep
from exhume.training.local_steps import LocalSteps

SETTING = """
[[setting]]
name = "gradient"
data = {{ name = "digits", shadow_targets = 40 }}
[setting.release]
kind = "{kind}"
model = "mlp"
batch_size = 3
{release}
[setting.knowledge]
{knowledge}
"""


def text(kind: str = "gradient", release: str = "", knowledge: str = "labels = true") -> str:
    return SETTING.format(kind=kind, release=release, knowledge=knowledge)


@dataclass(frozen=True)
class Clairvoyant(Attack):
    """Answers from a table of its own, in another order, short of one record, or not at all."""

    offset: int = 1
    missing: int = 0
    name: ClassVar[str] = "clairvoyant"
    answers: ClassVar[dict[bytes, np.ndarray]] = {}

    def accepts(self, release: Release, knowledge: Knowledge) -> str | None:
        return None

    def _reconstruct(
        self, release: Release, knowledge: Knowledge, rng: np.random.Generator
    ) -> Reconstruction:
        assert knowledge.labels is not None
        truth = self.answers[_mark(release)]
        order = np.roll(np.arange(len(truth)), self.offset)[self.missing :]
        return Reconstruction(
            truth[order],
            Status.CONVERGED,
            labels=knowledge.labels[order],
            confidence=np.linspace(0.9, 0.8, len(order)),
        )


def _mark(release: Release) -> bytes:
    return b"".join(array.tobytes() for _, array in release.arrays())


def _audit(folder: Path, toml: str, attack: Clairvoyant, targets: int = 6) -> list:
    plan = small.plan(toml, small.audit(targets, attacks='["oblivious"]'), extra=(attack,))
    setting = plan.setting(0)
    groups = setting.groups(range(targets))
    for group, release in zip(groups, setting.releases(groups, 0), strict=True):
        Clairvoyant.answers[_mark(release)] = setting.targets.x[list(group)]
    run(plan, folder, Serial())
    with Store.open(folder) as store:
        return sorted(
            (r for r in store.outcomes() if r.trial.attack == "clairvoyant"),
            key=lambda r: r.trial.target,
        )


class TestScoring:
    @pytest.mark.parametrize("kind", ["gradient", "update"])
    def test_the_order_is_not_held_against_an_attack(self, tmp_path: Path, kind: str) -> None:
        training = "" if kind == "gradient" else "training = { learning_rate = 0.1, epochs = 2 }"
        toml = text(kind, knowledge=f"labels = true\n{training}")
        records = _audit(tmp_path / "run", toml, Clairvoyant())
        assert [r.trial.target for r in records] == list(range(6))
        assert all(r.success and r.distance == 0.0 and r.label_correct for r in records)
        # Each record keeps the evidence of the candidate that was dealt to it.
        assert sorted(r.confidence for r in records[:3]) == pytest.approx([0.8, 0.85, 0.9])

    def test_a_missing_candidate_is_a_record_not_rebuilt(self, tmp_path: Path) -> None:
        records = _audit(tmp_path / "run", text(), Clairvoyant(missing=1))
        assert [r.distance for r in records].count(None) == 2
        assert sum(bool(r.success) for r in records) == 4

    def test_the_blind_guess_answers_for_every_record(self, tmp_path: Path) -> None:
        plan = small.plan(text(), small.audit(6, attacks='["oblivious"]'))
        summary = run(plan, tmp_path / "run", Serial())
        blind = next(r for r in summary.rows if r.attack == "oblivious")
        assert blind.success is not None
        assert blind.success.trials == 6
        assert blind.metrics["rmse"].count == 6


class TestSettings:
    def test_releases_are_of_whole_batches(self) -> None:
        setting = small.plan(text(), small.audit(6)).setting(0)
        releases = setting.releases(setting.groups(range(6)), 0)
        assert [r.batch_size for r in releases if isinstance(r, Gradient)] == [3, 3]
        assert isinstance(setting.mechanism, GradientStep)
        direct = setting.mechanism.publish(
            setting.targets.take([3, 4, 5]), rng=np.random.default_rng(0)
        )
        assert _mark(direct) == _mark(releases[1])

    def test_the_adversary_has_no_fixed_set(self) -> None:
        setting = small.plan(text(), small.audit(6)).setting(0)
        knowledge = setting.knowledge(0, 1, 2)
        assert knowledge.fixed_set is None
        assert len(knowledge.pool()) == 40
        np.testing.assert_array_equal(knowledge.labels, setting.targets.labels[:3])

    def test_units_hold_whole_batches(self) -> None:
        units = small.plan(text(), small.audit(60)).units()
        assert all(len(unit.targets) % 3 == 0 for unit in units)
        assert sum(len(unit.targets) for unit in units) == 60

    def test_warm_up_moves_the_model(self) -> None:
        cold = small.plan(text(), small.audit(3)).setting(0).mechanism
        warm = small.plan(text(release="warm_up = { steps = 5 }"), small.audit(3)).setting(0)
        assert isinstance(cold, GradientStep)
        assert isinstance(warm.mechanism, GradientStep)
        assert warm.mechanism.state is not None
        name, array = warm.mechanism.state[0]
        assert not np.allclose(array, cold.parameters()[name])

    @pytest.mark.parametrize(
        ("toml", "complaint"),
        [
            (text(release="queries = 3"), "answer and queries go with kind = 'outputs'"),
            (text().replace("batch_size = 3", ""), "a gradient needs batch_size"),
            (text().replace("shadow_targets", "fixed_set"), "a gradient has no fixed set"),
            (
                text(knowledge="training = { learning_rate = 0.1, epochs = 1 }"),
                "a gradient has no knowledge.training",
            ),
            (text("outputs"), "batch_size goes with kind = 'gradient'"),
            (text("update"), "a network needs knowledge.training"),
        ],
    )
    def test_what_can_not_be(self, toml: str, complaint: str) -> None:
        with pytest.raises(InputError, match=complaint):
            small.config(toml)

    def test_somebody_has_to_be_the_nearest(self) -> None:
        none = re.sub(r"shadow_targets = \d+", "shadow_targets = 0", text())
        with pytest.raises(InputError, match=r"shadow_targets is 0: .*; set some aside"):
            small.plan(none, small.audit(3)).setting(0)

    def test_targets_make_whole_batches(self) -> None:
        with pytest.raises(InputError, match="4 targets do not make whole batches of 3; 6 would"):
            small.plan(text(), small.audit(4)).setting(0)


# A gradient that somebody's own training code saved.

FILE = """
[release]
kind = "{kind}"
model = "mlp"
hidden = [5]
activation = "relu"
file = "{file}"
batch_size = 2
classes = 10
[knowledge]
initial = "model.safetensors"
value_range = [0.0, 1.0]
{knowledge}
[audit]
attacks = ["oblivious"]
{audit}
"""


@dataclass(frozen=True)
class Saved:
    """A folder with a model, its gradient on two records, and the records."""

    folder: Path
    names: tuple[str, ...]

    def toml(self, *, kind: str = "gradient", file: str = "g.safetensors", **parts: str) -> Path:
        path = self.folder / "audit.toml"
        knowledge = parts.get("knowledge", "record_shape = [64]")
        path.write_text(
            FILE.format(kind=kind, file=file, knowledge=knowledge, audit=parts.get("audit", ""))
        )
        return path


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 5), torch.nn.ReLU(), torch.nn.Linear(5, 10)
    )
    x, y = torch.rand(2, 64), torch.tensor([3, 7])
    torch.nn.functional.cross_entropy(model(x), y).backward()
    gradients = {n: p.grad.numpy() for n, p in model.named_parameters()}
    save_file(
        {n: p.detach().numpy() for n, p in model.named_parameters()}, tmp_path / "model.safetensors"
    )
    save_file(gradients, tmp_path / "g.safetensors")
    np.savez(tmp_path / "g.npz", **gradients)
    torch.save({n: p.grad for n, p in model.named_parameters()}, tmp_path / "g.pt")
    turned = {n: np.ascontiguousarray(g.T) for n, g in gradients.items()}
    save_file(turned, tmp_path / "turned.safetensors")
    save_file({n: g for n, g in gradients.items() if n != "1.bias"}, tmp_path / "few.safetensors")
    np.savez(tmp_path / "truth.npz", x=x.numpy(), y=y.numpy())
    return Saved(tmp_path, tuple(gradients))


class TestFromAFile:
    @pytest.mark.parametrize("file", ["g.safetensors", "g.npz", "g.pt"])
    def test_what_it_holds_is_what_is_attacked(self, saved: Saved, file: str) -> None:
        setting = make_plan(load(saved.toml(file=file))).setting(0)
        assert isinstance(setting.given, Gradient)
        assert setting.given.batch_size == 2
        assert tuple(setting.given.gradients) == saved.names
        assert setting.targets is None

    def test_the_model_described_makes_the_same_gradient(self, saved: Saved) -> None:
        toml = saved.toml(knowledge="labels = true", audit='truth = "truth.npz"')
        setting = make_plan(load(toml)).setting(0)
        again = setting.mechanism.publish(setting.targets, rng=np.random.default_rng(0))
        for name, array in again.arrays():
            np.testing.assert_allclose(array, setting.given.gradients[name], atol=1e-6)

    def test_an_update_knows_its_steps(self, saved: Saved) -> None:
        knowledge = "record_shape = [64]\ntraining = { learning_rate = 0.1, epochs = 3 }"
        setting = make_plan(load(saved.toml(kind="update", knowledge=knowledge))).setting(0)
        assert isinstance(setting.given, Update)
        assert setting.given.steps == 3
        assert isinstance(setting.mechanism, LocalSteps)

    @pytest.mark.parametrize(
        ("parts", "complaint"),
        [
            ({"file": "turned.safetensors"}, "it is transposed"),
            ({"file": "few.safetensors"}, "there is no parameter '1.bias'"),
            ({"knowledge": "record_shape = [63]"}, "'1.weight' has shape"),
            ({"knowledge": ""}, "give knowledge.record_shape"),
            ({"knowledge": "labels = true\nrecord_shape = [64]"}, "come from audit.truth"),
            (
                {"knowledge": "record_shape = [8, 8]", "audit": 'truth = "truth.npz"'},
                "records must have one shape",
            ),
        ],
    )
    def test_what_does_not_fit_is_named(
        self, saved: Saved, parts: dict[str, str], complaint: str
    ) -> None:
        with pytest.raises(InputError, match=complaint):
            make_plan(load(saved.toml(**parts))).setting(0)


class TestChosenAttacks:
    TWO = small.PLAIN.replace(
        'name = "plain"', 'name = "plain"\nattacks = ["glm"]'
    ) + small.SCALED.replace('name = "scaled"', 'name = "scaled"\nattacks = ["scaler-moments"]')

    def _ran(self, folder: Path, *texts: str, extra: tuple[Attack, ...] = ()) -> set:
        summary = run(small.plan(*texts, extra=extra), folder, Serial())
        assert summary.complete
        return {(row.setting, row.attack) for row in summary.rows if not row.baseline}

    def test_a_setting_has_its_own(self, tmp_path: Path) -> None:
        ran = self._ran(tmp_path / "run", self.TWO, small.audit(2))
        assert ran == {("plain", "glm"), ("scaled", "scaler-moments")}

    def test_beside_those_of_the_audit(self, tmp_path: Path) -> None:
        toml = self.TWO + small.NOISY
        ran = self._ran(tmp_path / "run", toml, small.audit(2, attacks='["ridge"]'))
        assert ran == {("plain", "glm"), ("scaled", "scaler-moments"), ("noisy", "ridge")}

    def test_attacks_brought_along_run_everywhere(self, tmp_path: Path) -> None:
        cheat = small.plan(self.TWO, small.audit(2), extra=(Clairvoyant(),))
        for unit in cheat.units():
            assert "clairvoyant" in {attack.name for attack in cheat.attacks_on(unit)}

    def test_an_unknown_name_is_refused(self) -> None:
        with pytest.raises(InputError, match="there is no attack called 'magic'"):
            small.plan(self.TWO.replace("glm", "magic"), small.audit(2))
