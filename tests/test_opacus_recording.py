"""Opacus trainings of a user's own script, recorded and audited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tests.cli.command import invoke
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import exhume.opacus
from exhume.audit.recordings import recorded_setting
from exhume.bounds import gammas
from exhume.config.reading import from_tables
from exhume.data.recordings import read_recording
from exhume.models.exported import program_of

pytestmark = pytest.mark.filterwarnings("ignore")
KINDS: dict[str, dict[str, Any]] = {
    "flat": {"max_grad_norm": 1.0},
    "per layer": {"clipping": "per_layer", "max_grad_norm": [0.5] * 4},
    "adaptive": {
        "clipping": "adaptive",
        "max_grad_norm": 1.0,
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 10.0,
        "min_clipbound": 0.05,
        "unclipped_num_std": 20.0,
    },
    "ghost": {
        "max_grad_norm": 1.0,
        "grad_sample_mode": "ghost",
        "criterion": nn.CrossEntropyLoss(),
    },
}


def _data(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 1, 6, 6, generator=generator)
    return TensorDataset(x, torch.randint(3, (count,), generator=generator))


def _network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))


class _Script:
    """What a user's own script has: a model, an optimiser, a loader, made private by Opacus."""

    def __init__(self, kind: str = "flat", noise: float = 0.6, **options: Any) -> None:
        torch.manual_seed(0)
        self.model: Any = _network()
        plain = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.5)
        loader = DataLoader(_data(60, 1), batch_size=12)
        self.engine, self.criterion = PrivacyEngine(), nn.CrossEntropyLoss()
        made = self.engine.make_private(
            module=self.model,
            optimizer=plain,
            data_loader=loader,
            noise_multiplier=noise,
            **{**KINDS[kind], **options},
        )
        if kind == "ghost":
            self.model, self.optimizer, self.criterion, self.loader = made
        else:
            self.model, self.optimizer, self.loader = made

    def watch(self, out: Path, **options: Any) -> exhume.opacus.Recorder:
        return exhume.opacus.watch(
            self.engine, self.model, self.optimizer, self.loader, out=out, **options
        )

    def train(self, epochs: int = 2, loader: Any = None) -> None:
        for _ in range(epochs):
            for x, y in self.loader if loader is None else loader:
                self.optimizer.zero_grad()
                self.criterion(self.model(x), y).backward()
                self.optimizer.step()


def _recorded(folder: Path, kind: str = "flat", **options: Any) -> _Script:
    script = _Script(kind, **options)
    recorder = script.watch(folder)
    script.train()
    recorder.close()
    assert not recorder.problem
    return script


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_without_all_records_is_the_stated_noise(kind: str, tmp_path: Path) -> None:
    """Model, loss, clipping, sampling and noise are all as recorded, or this would not be noise."""
    _recorded(tmp_path / "run", kind)
    found, model = read_recording(tmp_path / "run"), _network()
    ratios = []
    for step in found.steps:
        for name, parameter in model.named_parameters():
            parameter.data = torch.tensor(step.parameters[name])
        x, y = torch.tensor(found.records.x[step.members]), found.records.labels[step.members]
        total = [torch.zeros_like(p) for p in model.parameters()]
        for one, label in zip(x, torch.tensor(y), strict=True):
            loss = nn.functional.cross_entropy(model(one[None]), label[None])
            own = torch.autograd.grad(loss, list(model.parameters()))
            norms = torch.stack([g.norm() for g in own])
            limits = torch.tensor(step.norms, dtype=torch.float32)
            if len(limits) == 1:
                norms = norms.norm().expand(4)
            factors = (limits / norms).clamp_max(1.0).expand(4)
            total = [t + f * g for t, f, g in zip(total, factors, own, strict=True)]
        sent = [step.count * torch.tensor(step.gradients[n]) for n, _ in model.named_parameters()]
        left = torch.cat([(s - t).flatten() for s, t in zip(sent, total, strict=True)])
        ratios.append(float(left.square().mean()) / step.deviation**2)
    # 10 steps of 235 numbers: a relative standard error of 2.9 %.
    assert abs(np.mean(ratios) - 1.0) < 0.12


def _audited(folder: Path, *, whole: bool) -> dict[str, Any]:
    """Audit the recording in ``run``: as it is, or a few of its targets."""
    text = '[release]\nkind = "transcript"\nrecording = "run"\n[audit]\ntargets = 10\n'
    (folder / "audit.toml").write_text(text)
    source = folder / "run" if whole else folder / "audit.toml"
    found = invoke("audit", source, "--out", folder / "out")
    assert found.code == 0, found.err
    summary: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_is_audited_in_one_command(kind: str, tmp_path: Path) -> None:
    script = _recorded(tmp_path / "run", kind, noise=0.3)
    summary = _audited(tmp_path, whole=kind == "flat")
    (bracket,), (setting,) = summary["brackets"], summary["settings"]
    assert bracket["attack"] == "prior-aware"
    # With so little noise most targets are named; a blind guess names 1 in 10.
    assert bracket["reached"]["rate"] >= 0.5
    assert bracket["reached"]["low"] > 0.1
    claimed = script.engine.get_epsilon(1e-5)
    assert setting["epsilon"] == pytest.approx(claimed, rel=0.01)
    # Whoever is attacked, all others of the 60 are known.
    assert "all 59 other training records" in " ".join(setting["threat"])
    (row,) = [row for row in summary["rows"] if row["attack"] == "prior-aware"]
    assert "not what was said" not in row["message"]
    config = from_tables(
        {"release": {"kind": "transcript", "recording": str(tmp_path / "run")}}, source="a test"
    )
    setting = recorded_setting(config, config.setting[0].model_copy(update={"targets": 5}))
    bound = gammas(setting.mechanism.event(60), [0.1])
    assert bound is not None
    assert bracket["ceiling"] == pytest.approx(bound[0])


def test_the_memory_manager_keeps_a_steps_batch_whole(tmp_path: Path) -> None:
    script = _Script()
    recorder = script.watch(tmp_path / "run")
    with BatchMemoryManager(
        data_loader=script.loader, max_physical_batch_size=5, optimizer=script.optimizer
    ) as loader:
        script.train(loader=loader)
    recorder.close()
    found = read_recording(tmp_path / "run")
    assert len(found.steps) == 10
    assert max(len(step.members) for step in found.steps) > 5


def test_candidates_are_the_users_own_where_given(tmp_path: Path) -> None:
    script = _Script()
    recorder = script.watch(tmp_path / "run", candidates=_data(30, 2))
    script.train(1)
    recorder.close()
    found = read_recording(tmp_path / "run")
    assert found.candidates is not None
    assert len(found.candidates) == 30


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_sampler_that_is_not_poisson_gets_no_guarantee(
    drop_last: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = _Script(poisson_sampling=False)
    if drop_last:
        script.loader = DataLoader(_data(60, 1), batch_size=12, drop_last=True)
    recorder = script.watch(tmp_path / "run")
    script.train()
    recorder.close()
    said = capfd.readouterr().err
    assert "does not sample by Poisson" in said
    assert ("drops the last batch" in said) is drop_last
    summary = _audited(tmp_path, whole=False)
    assert summary["brackets"][0]["ceiling"] is None
    assert "does not sample by Poisson" in summary["brackets"][0]["ceiling_note"]


def test_no_noise_is_recorded_without_a_guarantee(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _recorded(tmp_path / "run", noise=0.0)
    assert "the noise multiplier is 0" in capfd.readouterr().err


def test_two_runs_in_one_folder_keep_the_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _recorded(tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run" / "steps").iterdir())
    script = _Script()
    recorder = script.watch(tmp_path / "run")
    script.train(3)
    recorder.close()
    assert "holds a recording already" in recorder.problem
    assert capfd.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in (tmp_path / "run" / "steps").iterdir()) == before


def test_a_full_disk_stops_the_recording_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    script = _Script()
    recorder = script.watch(tmp_path / "run")
    script.train(1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("exhume.data.recordings.write_quickly", full)
    before = script.model._module[0].weight.detach().clone()
    script.train(1)
    assert not torch.equal(before, script.model._module[0].weight)
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "No space left on device; the 5 steps recorded so far are kept" in said
    monkeypatch.undo()
    recorder.close()
    assert len(read_recording(tmp_path / "run").steps) == 5


def test_a_missing_step_is_named(tmp_path: Path) -> None:
    _recorded(tmp_path / "run")
    (tmp_path / "run" / "steps" / "00000004.safetensors").unlink()
    found = invoke("audit", tmp_path / "run", "--out", tmp_path / "out")
    assert found.code == 2
    assert "lacks step 4 of 10" in found.error


def test_the_program_of_another_model_is_refused(tmp_path: Path) -> None:
    _recorded(tmp_path / "run")
    other = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3)).eval()
    (tmp_path / "run" / "model.pt2").write_bytes(program_of(other, torch.zeros(2, 1, 6, 6)))
    found = invoke("audit", tmp_path / "run", "--out", tmp_path / "out")
    assert found.code == 2
    assert "model.pt2 is not the model whose steps were recorded: " in found.error


def test_a_script_that_was_stopped_leaves_its_steps(tmp_path: Path) -> None:
    script = _Script()
    recorder = script.watch(tmp_path / "run")
    script.train(1)
    found = read_recording(tmp_path / "run")
    assert len(found.steps) == 5
    assert not found.facts.history
    recorder.close()
    assert read_recording(tmp_path / "run").facts.history


def test_somebody_elses_folder_is_not_trusted(tmp_path: Path) -> None:
    _recorded(tmp_path / "run")
    (tmp_path / "run").chmod(0o777)
    found = invoke("audit", tmp_path / "run", "--out", tmp_path / "out")
    assert found.code == 2
    assert "--trust-code" in found.error


def test_what_is_recorded_is_private(tmp_path: Path) -> None:
    _recorded(tmp_path / "run")
    for path in [tmp_path / "run", *(tmp_path / "run").rglob("*")]:
        assert not path.stat().st_mode & 0o077, path


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), None], ids=["dropout", "frozen"])
def test_what_keeps_steps_from_being_attacked_is_said(
    layer: nn.Module | None, tmp_path: Path
) -> None:
    script = _Script()
    if layer is None:
        script.model._module[0].weight.requires_grad_(False)
    else:
        script.model._module.append(layer)
    script.watch(tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "recording.json").read_text())
    assert ("dropout" if layer else "1 parameters are not trained") in facts["obstacle"]
