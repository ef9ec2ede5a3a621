"""Trainings by Lightning and by Hugging Face's Trainer: recorded by a callback, and audited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from lightning.pytorch import LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from safetensors.numpy import load_file
from tests.cli.command import invoke
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import exhume.huggingface
import exhume.lightning
from exhume.data.array_files import read_arrays

pytestmark = pytest.mark.filterwarnings("ignore")
SIZE, CLASSES, BATCH = 12, 3, 2


def _data(count: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(count, SIZE, generator=generator), torch.arange(count) % CLASSES


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIZE, 32), nn.ReLU(), nn.Linear(32, CLASSES))


class _Module(LightningModule):
    def __init__(self, optimiser: Callable[..., Any], fails: bool) -> None:
        super().__init__()
        self.net, self.optimiser, self.fails = _network(), optimiser, fails

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.net(x)
        return scores

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if self.fails and index == 3:
            raise RuntimeError("out of memory")
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return self.optimiser(self.parameters(), lr=0.1)


def _lightning(
    folder: Path,
    *,
    optimiser: Callable[..., Any] = torch.optim.SGD,
    accumulate: int = 1,
    fails: bool = False,
    batch: int = BATCH,
    clip: float = 0.0,
    **options: Any,
) -> exhume.lightning.LightningRecorder:
    recorder = exhume.lightning.LightningRecorder(folder, value_range=(0, 1), **options)
    trainer = LightningTrainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accumulate_grad_batches=accumulate,
        gradient_clip_val=clip,
        callbacks=[recorder],
    )
    try:
        trainer.fit(_Module(optimiser, fails), DataLoader(TensorDataset(*_data()), batch))
    except RuntimeError:
        assert fails
    return recorder


class _Config(transformers.PreTrainedConfig):
    model_type = "small"


class _Classifier(transformers.PreTrainedModel):
    config_class = _Config
    main_input_name = "pixel_values"

    def __init__(self, config: _Config) -> None:
        super().__init__(config)
        self.net = _network()
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        pass

    def forward(
        self, pixel_values: torch.Tensor, labels: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        logits = self.net(pixel_values)
        if labels is None:
            return {"logits": logits}
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def _huggingface(
    folder: Path,
    *,
    optimiser: str = "sgd",
    accumulate: int = 1,
    batch: int = BATCH,
    clip: float = 0.0,
    **options: Any,
) -> exhume.huggingface.TrainerRecorder:
    x, y = _data()
    rows = [{"pixel_values": one, "labels": label} for one, label in zip(x, y, strict=True)]
    recorder = exhume.huggingface.TrainerRecorder(folder, value_range=(0, 1), **options)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder.parent / "trainer"),
        optim=optimiser,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        max_grad_norm=clip,
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=accumulate,
        num_train_epochs=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = transformers.Trainer(
        model=_Classifier(_Config()), args=arguments, train_dataset=rows, callbacks=[recorder]
    )
    trainer.train()
    return recorder


FRAMEWORKS = {"lightning": _lightning, "huggingface": _huggingface}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_training_is_recorded_and_audited_in_one_command(framework: str, tmp_path: Path) -> None:
    recorder = FRAMEWORKS[framework](tmp_path / "update", batch=1)
    assert not recorder.recorder.problem
    before, after = (
        load_file(tmp_path / "update" / f"{one}.safetensors") for one in ("before", "after")
    )
    truth = read_arrays(tmp_path / "update" / "truth.safetensors")
    # The first step by hand, on the batch as it was.
    network = _network()
    own = {name.rpartition("net.")[2]: torch.tensor(array) for name, array in before.items()}
    network.load_state_dict(own)
    scores = network(torch.tensor(truth["x"]))
    nn.functional.cross_entropy(scores, torch.tensor(truth["y"])).backward()
    for name, parameter in network.named_parameters():
        moved = next(after[n] - before[n] for n in before if n.endswith(f"net.{name}"))
        np.testing.assert_allclose(moved, -0.1 * parameter.grad.numpy(), atol=1e-6)
    audit = (tmp_path / "update" / "audit.toml").read_text()
    (tmp_path / "update" / "audit.toml").write_text(audit.replace("[audit]", ATTACKS))
    found = invoke("audit", tmp_path / "update", "--trust-code", "--out", tmp_path / "run")
    assert found.code == 0, found.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    (bracket,) = summary["brackets"]
    # The first layer's gradient is the record times a number, and the bias's is that number.
    assert (bracket["attack"], bracket["reached"]["rate"]) == ("first-layer", 1.0)
    (row,) = (row for row in summary["rows"] if row["attack"] == "first-layer")
    assert row["metrics"]["rmse"]["mean"] < 1e-3


ATTACKS = '[audit]\nattacks = ["first-layer"]'


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_steps_are_counted_by_the_optimiser(framework: str, tmp_path: Path) -> None:
    recorder = FRAMEWORKS[framework](tmp_path / "update", steps=2, accumulate=2, similar=5)
    assert not recorder.recorder.problem
    assert len(read_arrays(tmp_path / "update" / "truth.safetensors")["x"]) == 2 * 2 * BATCH
    assert len(read_arrays(tmp_path / "update" / "similar.safetensors")["x"]) == 5
    audit = (tmp_path / "update" / "audit.toml").read_text()
    assert "training = { learning_rate = 0.1, epochs = 1, batch_size = 4 }" in audit
    assert "order = false" in audit


@pytest.mark.parametrize(
    ("framework", "other"), [("lightning", torch.optim.AdamW), ("huggingface", "adamw_torch")]
)
def test_other_rules_are_kept_and_not_called_descent(
    framework: str, other: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FRAMEWORKS[framework](tmp_path / "update", optimiser=other, clip=1.0)
    assert "after 1 step of AdamW are not those of plain gradient" in capsys.readouterr().err
    assert (tmp_path / "update" / "after.safetensors").is_file()
    audit = (tmp_path / "update" / "audit.toml").read_text()
    assert "nobody told it" in audit
    assert "defences" not in audit
    refused = invoke("audit", tmp_path / "update", "--trust-code", "--out", tmp_path / "run")
    assert "training" in refused.error


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_one_clipped_step_is_attacked_as_such(framework: str, tmp_path: Path) -> None:
    limit = 0.05
    recorder = FRAMEWORKS[framework](tmp_path / "update", batch=1, clip=limit)
    assert not recorder.recorder.problem
    before, after = (
        load_file(tmp_path / "update" / f"{one}.safetensors") for one in ("before", "after")
    )
    # The gradient was longer than that: all of the update's length is the limit's.
    moved = np.sqrt(sum(((after[n] - before[n]) ** 2).sum() for n in before))
    assert moved == pytest.approx(0.1 * limit, rel=1e-4)
    path = tmp_path / "update" / "audit.toml"
    assert f'defences = [{{ name = "clipping", norm = {0.1 * limit} }}]' in path.read_text()
    path.write_text(path.read_text().replace("[audit]", ATTACKS))
    found = invoke("audit", tmp_path / "update", "--trust-code", "--out", tmp_path / "run")
    assert found.code == 0, found.err
    (bracket,) = json.loads((tmp_path / "run" / "summary.json").read_text())["brackets"]
    assert (bracket["attack"], bracket["reached"]["rate"]) == ("first-layer", 1.0)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("clip", "told"), [(0.05, False), (100.0, True)])
def test_several_steps_are_described_while_nothing_is_clipped(
    clip: float, told: bool, framework: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FRAMEWORKS[framework](tmp_path / "update", steps=2, clip=clip)
    audit = (tmp_path / "update" / "audit.toml").read_text()
    assert ("nobody told it" not in audit) is told
    assert "defences" not in audit
    assert ("the weights after 2 steps of SGD are not" in capsys.readouterr().err) is not told


def test_what_is_recorded_is_private_and_never_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _lightning(tmp_path / "update")
    kept = {p.name: p.read_bytes() for p in (tmp_path / "update").iterdir()}
    assert (tmp_path / "update").stat().st_mode & 0o077 == 0
    _lightning(tmp_path / "update")
    assert "holds a recording already" in capsys.readouterr().err
    assert kept == {p.name: p.read_bytes() for p in (tmp_path / "update").iterdir()}


def test_a_training_that_stops_leaves_what_it_did(tmp_path: Path) -> None:
    _lightning(tmp_path / "update", fails=True)
    assert (tmp_path / "update" / "audit.toml").is_file()


def test_too_few_steps_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _lightning(tmp_path / "update", steps=9)
    assert "fewer than 9 optimiser steps" in capsys.readouterr().err
    assert not (tmp_path / "update").exists()
