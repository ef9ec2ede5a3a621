"""Audits that can't be run, through the command line: one line, exit code 2, nothing executed."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.audit.saved import save
from tests.cli.command import Finished, execute, invoke

DATA = """
[data]
name = "breast-cancer"
fixed_set = 60
[release]
model = "logistic"
penalty = { strength = 1.0 }
[audit]
targets = 2
"""
FILE = """
[data]
file = "data.{suffix}"
[release]
model = "{model}"
{release}
[audit]
targets = 2
"""


def audit(folder: Path, text: str, *more: str) -> Finished:
    (folder / "audit.toml").write_text(text)
    arguments = ("--out", folder / "run", "--workers", "1", "--quiet", *more)
    return invoke("audit", folder / "audit.toml", *arguments)


class TestConfiguration:
    @pytest.mark.parametrize(
        ("old", "new", "complaint"),
        [
            ("targets = 2", "target = 2", "unknown key 'audit.target'"),
            ("targets = 2", "targets = 0", "audit.targets: input should be greater than"),
            (
                "targets = 2",
                "targets = 1000000000",
                "setting 'audit': 1,000,000,000 targets, but the data has only 569 records",
            ),
            ("targets = 2", "targets = 99999999999999999999", "less than or equal to 1000000000"),
            ("targets = 2", f"targets = 1{'0' * 5000}", "is not valid TOML"),
            ("targets = 2", 'truth = "a\\u0000b"', "audit.truth: a file name can't contain a NUL"),
            ("targets = 2", f"x = {'[' * 3000}{']' * 3000}", "is nested too deeply"),
            ("targets = 2", f"{'x.' * 5000}y = 1", "is nested too deeply"),
            ("60", '"sixty"', "data.fixed_set: input should be a valid integer, got 'sixty'"),
            ("1.0", "-1.0", "release.penalty.strength"),
            ("1.0", "nan", "release.penalty.strength"),
            ("logistic", "forest", "release.model"),
            ("breast-cancer", "brest-cancer", "did you mean 'breast-cancer'?"),
            ("targets = 2", "attacks = ['magic']", "there is no attack called 'magic'"),
            (
                "targets = 2",
                "membership = 9\nmembership_test = 'guess'",
                "there is no membership test called 'guess'; there are retraining, shadow-models",
            ),
            (
                "targets = 2",
                "membership_test = 'loss-threshold'",
                "membership_test goes with membership, the number of games",
            ),
            (
                "targets = 2",
                "membership = 9\nmembership_test = 'by-reconstruction'",
                "membership_attack and membership_test = 'by-reconstruction' go together",
            ),
            (
                "targets = 2",
                "membership = 9\nmembership_attack = 'glm'",
                "membership_attack and membership_test = 'by-reconstruction' go together",
            ),
            (
                "targets = 2",
                "membership = 9\nmembership_test = 'by-reconstruction'\n"
                "membership_attack = 'magic'",
                "there is no attack called 'magic'",
            ),
            ("targets = 2", "metrics = ['beauty']", "there is no metric called 'beauty'"),
            ("targets = 2", "metrics = ['psnr']", "the metric psnr needs the records' value range"),
            ("targets = 2", "targets = 600", "the split needs 660 records"),
            ("fixed_set = 60", "", "targets = 600"),
            ("60", "568", "the split needs 570 records"),
            ("fixed_set = 60", "classes = [0, 5]", "no record has class 5"),
            ("fixed_set = 60", "classes = [1]", "at least two classes"),
            ("[audit]", "[knowledge]\nattributes = [30]\n[audit]", "names column 30"),
            ("[audit]", "[knowledge]\nvalue_range = [1, 0]\n[audit]", "value_range"),
            ("[audit]", "[knowledge]\nvalue_range = [nan, 1]\n[audit]", "value_range"),
            ("strength = 1.0", "strength = 0.0", "add a penalty"),
            (
                "[audit]",
                "defences = [{ name = 'output-perturbation', noise_multiplier = 1, "
                "norm_bound = 9 }]\n[audit]",
                "output perturbation needs a penalty on every parameter",
            ),
            ("[audit]", "solver = { name = 'magic' }\n[audit]", "Got 'magic' instead"),
        ],
    )
    def test_is_refused_in_one_line(
        self, tmp_path: Path, old: str, new: str, complaint: str
    ) -> None:
        text = DATA.replace(old, new)
        if complaint == "targets = 600":
            text, complaint = text.replace("targets = 2", complaint), "569 records are too few"
        assert complaint in audit(tmp_path, text).error

    @pytest.mark.parametrize("content", ["[audit", "= 3", "a = 1\na = 2"])
    def test_bad_toml(self, tmp_path: Path, content: str) -> None:
        assert "is not valid TOML" in audit(tmp_path, content).error

    def test_missing_file(self, tmp_path: Path) -> None:
        assert "there is no file" in invoke("audit", tmp_path / "none.toml").error

    def test_square_brackets_survive(self, tmp_path: Path) -> None:
        """Brackets are markup to the library that prints the error."""
        path = tmp_path / "[red]audit[/red] :bomb:.toml"
        assert str(path) in invoke("audit", path).error

    def test_a_mistake_corrected_goes_on_in_the_same_folder(self, tmp_path: Path) -> None:
        assert audit(tmp_path, DATA.replace("breast", "brest")).code == 2
        assert audit(tmp_path, DATA).code == 0


class TestDataFiles:
    @pytest.mark.parametrize(
        ("content", "complaint"),
        [
            ("", "is empty"),
            ("a,b,y\n", "holds 0 record(s)"),
            ("a,b,y\n" + "1,2,0\n" * 30, "the others are copies of each other"),
            ("a,b,y\n" + "1,nan,0\n2,3,1\n" * 30, "which is not a finite number"),
            ("a,b,y\n" + "1,,0\n2,3,1\n" * 30, "is empty"),
            ("a,b,y\n" + "1,inf,0\n2,3,1\n" * 30, "which is not a finite number"),
            ("1,2,0\n" * 30, "must be a header"),
            ("a,b,y\n" + "1,2\n" * 30, "has 2 cells"),
            ("a;b;y\n" + "1;2;0\n" * 30, "separated by commas"),
        ],
    )
    def test_tables(self, tmp_path: Path, content: str, complaint: str) -> None:
        (tmp_path / "data.csv").write_text(content)
        text = FILE.format(suffix="csv", model="logistic", release="")
        assert complaint in audit(tmp_path, text).error

    def test_one_class_only(self, tmp_path: Path) -> None:
        _save(tmp_path, y=np.ones(60, dtype=int))
        text = FILE.format(suffix="npz", model="logistic", release="")
        assert "nothing can be learned" in audit(tmp_path, text).error

    def test_one_response_only(self, tmp_path: Path) -> None:
        _save(tmp_path, y=np.full(60, 1.5))
        text = FILE.format(suffix="npz", model="linear", release="")
        assert "every record has the same response, 1.5" in audit(tmp_path, text).error

    def test_negative_counts(self, tmp_path: Path) -> None:
        _save(tmp_path)
        text = FILE.format(suffix="npz", model="poisson", release="")
        assert "a Poisson response can't be negative" in audit(tmp_path, text).error

    def test_more_features_than_records(self, tmp_path: Path) -> None:
        _save(tmp_path, x=np.random.default_rng(0).standard_normal((60, 90)))
        text = FILE.format(suffix="npz", model="linear", release="")
        assert "not determined by its data" in audit(tmp_path, text).error
        with_penalty = text.replace("[audit]", "penalty = { strength = 1.0 }\n[audit]")
        assert audit(tmp_path, with_penalty).code == 0

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_number_that_is_none(self, tmp_path: Path, bad: float) -> None:
        x = np.random.default_rng(0).standard_normal((60, 3))
        x[7, 2] = bad
        _save(tmp_path, x=x)
        text = FILE.format(suffix="npz", model="linear", release="")
        assert "first in row 7, column 2" in audit(tmp_path, text).error

    def test_no_labels(self, tmp_path: Path) -> None:
        np.save(tmp_path / "data.npy", np.random.default_rng(0).standard_normal((60, 3)))
        text = FILE.format(suffix="npy", model="linear", release="")
        assert "no labels" in audit(tmp_path, text).error


def _save(folder: Path, *, x: np.ndarray | None = None, y: np.ndarray | None = None) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 3)) if x is None else x
    np.savez(folder / "data.npz", x=x, y=rng.standard_normal(60) if y is None else y)


class _Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


class TestReleaseFiles:
    @pytest.mark.parametrize("name", ["model.pkl", "model.pt"])
    def test_hostile_files_run_nothing(self, tmp_path: Path, name: str) -> None:
        """In a process of its own: not a folder is made, and all it says is the refusal."""
        saved, mark = save(tmp_path), tmp_path / "executed"
        if name == "model.pkl":
            (tmp_path / name).write_bytes(pickle.dumps(_Bomb(mark)))
        else:
            torch.save({"coef": _Bomb(mark)}, tmp_path / name)
        found = execute("audit", saved.write_toml(file=name), "--out", tmp_path / "run")
        # Beside the one line, a pickle's refusal has the two lines of Python that convert it.
        converts = ("exhume.sklearn.save(",) if name == "model.pkl" else ()
        assert found.code == 2
        assert all(text in found.err for text in ("is refused", *converts))
        assert len(found.err.strip().splitlines()) == (3 if converts else 1)
        assert "weights_only" not in found.err, "advice to run it"
        assert not mark.exists()

    def test_truncated_safetensors(self, tmp_path: Path) -> None:
        saved = save(tmp_path)
        path = tmp_path / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-40])
        found = invoke("audit", saved.write_toml(), "--out", tmp_path / "run")
        assert "cannot be read as a safetensors file" in found.error

    def test_weights_for_other_records(self, tmp_path: Path) -> None:
        saved = save(tmp_path)
        with np.load(tmp_path / "known.npz") as known:
            np.savez(tmp_path / "known.npz", x=known["x"][:, :7], y=known["y"])
        found = invoke("audit", saved.write_toml(truth=False), "--out", tmp_path / "run")
        assert "'coef' has 30 entries, the model has 7" in found.error


class TestFolders:
    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for out in (tmp_path / "file", tmp_path / "file" / "run"):
            (tmp_path / "audit.toml").write_text(DATA)
            found = invoke("audit", tmp_path / "audit.toml", "--out", out, "--workers", "1")
            assert str(out) in found.error

    def test_a_folder_full_of_other_things(self, tmp_path: Path) -> None:
        (tmp_path / "audit.toml").write_text(DATA)
        found = invoke("audit", tmp_path / "audit.toml", "--out", tmp_path, "--workers", "1")
        assert "is not a run folder, and not empty" in found.error

    def test_of_another_audit(self, tmp_path: Path) -> None:
        assert audit(tmp_path, DATA).code == 0
        found = audit(tmp_path, DATA + "seed = 1")
        assert (
            "holds another audit (settings audit, seed 0): audit.seed is 1, there 0;" in found.error
        )
        found = audit(tmp_path, DATA.replace("60", "70"))
        assert "setting.audit.data.fixed_set is 70, there 60;" in found.error

    def test_the_same_audit_from_another_folder(self, tmp_path: Path) -> None:
        """Where a file is makes no difference; what is in it does."""
        (tmp_path / "here").mkdir()
        saved = save(tmp_path / "here")
        toml = saved.write_toml()
        options = ("--out", tmp_path / "run", "--workers", "1", "--quiet")
        assert invoke("audit", toml, *options).code == 0
        before = (tmp_path / "run" / "summary.json").read_bytes()
        moved = Path(shutil.copytree(tmp_path / "here", tmp_path / "there"))
        assert invoke("audit", moved / toml.name, *options).code == 0
        relative = os.path.relpath(moved / toml.name)
        assert invoke("audit", relative, *options).code == 0
        assert (tmp_path / "run" / "summary.json").read_bytes() == before
        (file,) = [p for p in moved.iterdir() if p.stem == "known"][:1]
        arrays = dict(np.load(file))
        np.savez(file, **{**arrays, "x": arrays["x"] + 1.0})
        found = invoke("audit", moved / toml.name, *options)
        assert "the file of setting.audit.knowledge.fixed_set has other contents" in found.error

    @pytest.mark.parametrize("command", ["gate", "report"])
    def test_no_run_folder(self, tmp_path: Path, command: str) -> None:
        limit = ["--max-success", "0.5"] if command == "gate" else []
        assert "is not a run folder" in invoke(command, tmp_path / "none", *limit).error

    @pytest.mark.parametrize("command", ["audit", "gate", "report"])
    def test_damaged(self, tmp_path: Path, command: str) -> None:
        assert audit(tmp_path, DATA).code == 0
        path = tmp_path / "run" / "records.sqlite"
        path.write_bytes(b"not a database" * 1000)
        found = {
            "audit": lambda: audit(tmp_path, DATA),
            "gate": lambda: invoke("gate", tmp_path / "run", "--max-success", "0.5"),
            "report": lambda: invoke("report", tmp_path / "run"),
        }[command]()
        assert "records.sqlite is damaged" in found.error
