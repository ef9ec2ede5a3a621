"""``exhume init``: an audit's file for what is there, which parses and runs."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.audit.saved import save
from tests.cli.command import EXHUME, Finished, invoke
from tests.patience import PATIENCE_SECONDS

from exhume.config import load
from exhume.data import load as load_data


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table of patients, and no model."""
    records = load_data("breast-cancer").train.take(slice(0, 200))
    rows = [
        ",".join([*(f"{value:.6g}" for value in x), str(y)])
        for x, y in zip(records.x, records.labels, strict=True)
    ]
    header = ",".join([*(f"c{i}" for i in range(30)), "outcome"])
    (tmp_path / "patients.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checkpoint(path: Path) -> None:
    layers = [torch.nn.Flatten(), torch.nn.Linear(30, 8), torch.nn.ELU(), torch.nn.Linear(8, 2)]
    torch.save(torch.nn.Sequential(*layers).state_dict(), path)


def init(*options: str | Path) -> Finished:
    return invoke("init", *options)


def test_of_a_table_the_audit_runs(folder: Path) -> None:
    found = init()
    assert found.code == 0
    assert found.out == (
        "written: audit.toml; check its values, then run: exhume audit audit.toml\n"
    )
    text = (folder / "audit.toml").read_text(encoding="utf-8")
    assert all(len(line) <= 100 for line in text.splitlines())
    (setting,) = load(folder / "audit.toml").setting
    assert (setting.release.model, setting.release.file) == ("logistic", None)
    (folder / "audit.toml").write_text(text.replace("targets = 50", "targets = 3"))
    audited = invoke("audit", "audit.toml", "--workers", "1", "--quiet")
    assert audited.code == 0
    assert "glm" in audited.out


def test_a_table_with_text_goes_with_a_pipeline(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{20 + i},{'fm'[i % 2]},{'yes' if i % 3 else 'no'}\n" for i in range(20))
    (tmp_path / "patients.csv").write_text(f"age,sex,outcome\n{rows}", encoding="utf-8")
    assert init().code == 0
    (setting,) = load(tmp_path / "audit.toml").setting
    assert setting.release.estimator == "pipelines:pipeline"
    assert setting.data is not None
    assert setting.data.label == "outcome"
    refused = init("--kind", "logistic", "--out", "other.toml")
    assert "patients.csv has cells that are no numbers: only a pipeline reads them" in refused.error


@pytest.mark.parametrize("kind", ["ridge", "poisson", "mlp", "cnn", "resnet20", "my.nets:make"])
@pytest.mark.parametrize("released", [False, True])
def test_every_kind_of_model_makes_a_valid_file(folder: Path, kind: str, released: bool) -> None:
    checkpoint(folder / "model.pt")
    options = ("--model", "model.pt") if released else ("--train",)
    assert init(*options, "--kind", kind).code == 0
    (setting,) = load(folder / "audit.toml").setting
    assert setting.release.model == kind
    assert (setting.release.file is not None) is released
    assert (setting.knowledge.fixed_set is not None) is released
    assert (setting.knowledge.training is not None) is (kind not in ("ridge", "poisson"))


def test_the_layers_of_a_checkpoint_are_read(folder: Path) -> None:
    checkpoint(folder / "model.pt")
    assert init().code == 0
    (setting,) = load(folder / "audit.toml").setting
    assert setting.release.model == "mlp"
    assert setting.release.hidden == (8,)  # type: ignore[union-attr]
    torch.save({"a.weight": torch.zeros(2, 3)}, folder / "model.pt")
    assert init("--out", "other.toml").code == 0
    (setting,) = load(folder / "other.toml").setting
    assert setting.release.model == "package.module:function"


def test_of_a_fitted_estimator(tmp_path: Path) -> None:
    saved = save(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "released.safetensors")
    out = tmp_path / "audit.toml"
    found = init(tmp_path, "--data", tmp_path / "known.npz", "--out", out)
    assert found.code == 0
    (setting,) = load(out).setting
    assert setting.release.model == "logistic"
    assert setting.knowledge.fixed_set == tmp_path / "known.npz"
    text = out.read_text(encoding="utf-8")
    solver = '# solver = { name = "lbfgs", tolerance = 1e-4 }'
    assert solver in text
    text = text.replace(solver, 'solver = { name = "newton-cholesky", tolerance = 1e-12 }')
    out.write_text(text.replace("# truth", "truth"), encoding="utf-8")
    audited = invoke("audit", out, "--out", tmp_path / "run", "--workers", "1", "--quiet")
    assert audited.code == 0, audited.err
    assert "100%" in audited.out
    assert saved.label in (0, 1)


@pytest.mark.parametrize("name", ["model.skops", "model.joblib"])
def test_of_an_estimator_with_its_settings(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"PK")
    assert init().code == 0
    text = (folder / "audit.toml").read_text(encoding="utf-8")
    conversion = '#   exhume.sklearn.save(joblib.load("model.joblib"), "model.skops")'
    assert (conversion in text) == (name == "model.joblib")
    (setting,) = load(folder / "audit.toml").setting
    assert setting.release.estimator == str(folder / "model.skops")  # type: ignore[union-attr]
    assert setting.data is not None


def test_paths_are_those_of_the_written_file(folder: Path) -> None:
    (folder / "audits").mkdir()
    assert init("--out", "audits/audit.toml").code == 0
    (setting,) = load(folder / "audits" / "audit.toml").setting
    assert setting.data is not None
    assert setting.data.file is not None
    assert setting.data.file.resolve() == folder / "patients.csv"


class TestQuestions:
    def test_four_on_a_terminal(self, folder: Path) -> None:
        checkpoint(folder / "model.pt")
        ours, theirs = pty.openpty()
        asked = subprocess.Popen(
            [*EXHUME, "init"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        os.write(ours, b"none\n\nc0\nridge\n")
        out, err = asked.communicate(timeout=PATIENCE_SECONDS)
        assert asked.returncode == 0, err
        assert b"written: audit.toml" in out
        questions = [line for line in err.decode().split("?") if "Which" in line]
        assert len(questions) == 4
        (setting,) = load(folder / "audit.toml").setting
        assert setting.data is not None
        assert (setting.release.model, setting.data.label) == ("ridge", "c0")


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--label", "outcom"), "no column called 'outcom'; did you mean 'outcome'?"),
            (("--kind", "logistics"), "there is no model of that name; did you mean 'logistic'?"),
            (("--data", "none.csv"), "there is no file none.csv"),
            (("--model", "none.pt"), "there is no file none.pt"),
            (("--model", "model.pt", "--train"), "either --model or --train"),
            (("--model", "model.pt", "--label", "c0"), "the label is the last column"),
            (("nowhere",), "there is no folder nowhere"),
            (("--out", "nowhere/audit.toml"), "nowhere/audit.toml can't be written"),
        ],
    )
    def test_in_one_line(self, folder: Path, options: tuple[str, ...], message: str) -> None:
        checkpoint(folder / "model.pt")
        train = () if "model.pt" in options or "none.pt" in options else ("--train",)
        assert message in init(*options, *train).error
        assert not (folder / "audit.toml").exists()

    def test_nothing_is_overwritten(self, folder: Path) -> None:
        (folder / "audit.toml").write_text("mine")
        assert "audit.toml exists" in init().error
        assert (folder / "audit.toml").read_text() == "mine"

    def test_nothing_to_audit(self, tmp_path: Path) -> None:
        found = init(tmp_path, "--out", tmp_path / "audit.toml")
        assert found.error.startswith("there is nothing to audit: give --data")

    def test_a_table_that_is_none(self, folder: Path) -> None:
        (folder / "patients.csv").write_bytes(b"\xff\xfe\x00")
        assert "patients.csv: cannot be read" in init().error


class TestAuditOfAModel:
    @pytest.mark.parametrize("name", ["model.pt", "model.safetensors"])
    def test_three_things_are_missing(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"anything")
        found = invoke("audit", tmp_path / name)
        assert found.code == 2
        lines = found.err.splitlines()
        assert lines[0].endswith("is a model, not an audit's TOML file. Three things are missing:")
        assert all(len(line) <= 80 for line in lines[1:-1])
        assert [line.split()[0] for line in lines if line.strip()[:2] in ("1.", "2.", "3.")] == [
            "1.",
            "2.",
            "3.",
        ]
        for key in ("release.model", "knowledge.fixed_set", "knowledge.training"):
            assert key in found.err
        assert f"exhume init --model {tmp_path / name}" in lines[-1]

    def test_records_are_no_audit(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", x=np.zeros((2, 2)))
        found = invoke("audit", tmp_path / "x.npz")
        assert f"exhume init --data {tmp_path / 'x.npz'} writes one" in found.error
