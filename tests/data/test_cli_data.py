"""``exhume data``: the listing, its JSON, and the check."""

import json
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from exhume.cli.data import data
from exhume.data.lpips_weights import LPIPS_FILE, check_lpips_weights
from exhume.data.survey import checked, survey
from exhume.protocol.errors import InputError

LAYERS = {0: (64, 3, 11, 11), 3: (192, 64, 5, 5), 6: (384, 192, 3, 3), 8: (256, 384, 3, 3),
          10: (256, 256, 3, 3)}  # fmt: skip


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(data)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80", "TERM": "dumb"})


def write_mnist(folder: Path, *, label: int = 3) -> None:
    x, y = np.zeros((2, 28, 28), np.uint8), np.array([0, label], np.uint8)
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x[:1], y_test=y[:1])


def write_lpips(folder: Path, **change: np.ndarray) -> Path:
    arrays = {}
    for head, (layer, shape) in enumerate(LAYERS.items()):
        arrays[f"features.{layer}.weight"] = np.zeros(shape, np.float32)
        arrays[f"features.{layer}.bias"] = np.zeros(shape[0], np.float32)
        arrays[f"lin{head}"] = np.zeros(shape[0], np.float32)
    np.savez_compressed(folder / LPIPS_FILE, **{**arrays, **change})
    return folder / LPIPS_FILE


def entries(output: str) -> dict[str, dict[str, object]]:
    return {entry["name"]: entry for entry in json.loads(output)["entries"]}


def test_nothing_but_the_package() -> None:
    result = run()
    assert result.exit_code == 0
    assert max(len(line) for line in result.output.splitlines()) <= 80
    lines = {line.split()[0]: line for line in result.output.splitlines() if line.split()}
    assert lines["fashion-mnist-small"].split()[1:] == ["multiclass", "28×28", "3,000", "embedded"]
    assert lines["digits"].split()[1:] == ["multiclass", "8×8", "1,797", "scikit-learn"]
    assert "missing" in lines["cifar-10"]
    text = " ".join(result.output.split())
    assert "mnist is missing: set EXHUME_DATA to a folder that holds mnist.npz" in text
    assert "Debian's package dataset-fashion-mnist" in text
    assert "-ubyte[.gz]" in text
    assert "lpips_alex.npz is missing" in text


def test_json(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    result = run("--json", "--folder", str(tmp_path))
    assert result.exit_code == 0
    listed = entries(result.output)
    assert listed["mnist"] == {
        "name": "mnist",
        "status": "found",
        "where": "file",
        "path": str(tmp_path / "mnist.npz"),
        "task": "multiclass",
        "record_shape": [28, 28],
        "train": 2,
        "test": 1,
        "problem": None,
        "remedy": None,
    }
    assert listed["cifar-10"]["status"] == "missing"
    assert "cifar10.npz" in str(listed["cifar-10"]["remedy"])
    assert json.loads(result.output)["folders"] == [str(tmp_path)]


def test_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path)
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path))
    result = run()
    assert "mnist.npz" in result.output
    assert str(tmp_path) in "".join(result.output.split("\n"))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = run("--folder", str(tmp_path / "nowhere"))
    assert isinstance(result.exception, InputError)
    assert "is not a folder" in str(result.exception)


def test_check(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_lpips(tmp_path)
    result = run("--check", "--json", "--folder", str(tmp_path))
    assert result.exit_code == 0, result.output
    statuses = {name: entry["status"] for name, entry in entries(result.stdout).items()}
    assert statuses["mnist"] == statuses["digits"] == statuses["fashion-mnist-small"] == "verified"
    assert statuses[LPIPS_FILE] == "verified"
    assert statuses["olivetti"] == "missing"
    assert "mnist.npz ✓" in run("--check", "--folder", str(tmp_path)).output


def test_check_finds_what_a_glance_does_not(tmp_path: Path) -> None:
    write_mnist(tmp_path, label=77)
    assert run("--folder", str(tmp_path)).exit_code == 0
    result = run("--check", "--folder", str(tmp_path))
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert "mnist is broken:" in text
    assert "label 77 of image 1 is out of range" in text


def test_a_broken_header_is_listed_not_raised(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"not an archive")
    listing = survey(folder=tmp_path)
    assert not listing.sound
    broken = next(entry for entry in listing.entries if entry.name == "mnist")
    assert broken.problem is not None
    assert "is not a NumPy .npz archive" in broken.problem
    assert broken in list(checked(listing))
    result = run("--json", "--folder", str(tmp_path))
    assert result.exit_code == 2
    assert entries(result.output)["mnist"]["status"] == "broken"


def test_lpips_weights(tmp_path: Path) -> None:
    check_lpips_weights(write_lpips(tmp_path))
    wrong = write_lpips(tmp_path, lin3=np.zeros(255, np.float32))
    with pytest.raises(InputError, match=r"'lin3' must be \(256,\) of floats, got \(255,\)"):
        check_lpips_weights(wrong)
    np.savez(wrong, lin0=np.zeros(64, np.float32))
    with pytest.raises(InputError, match=r"no array 'features\.0\.weight'; it holds lin0"):
        check_lpips_weights(wrong)


def test_names_of_files_are_not_taken_for_markup(tmp_path: Path) -> None:
    folder = tmp_path / "[bold]odd[red]"
    folder.mkdir()
    write_mnist(folder, label=77)
    result = run("--check", "--folder", str(folder))
    # Once as the folder searched, once in what is wrong with the file.
    assert "".join(result.output.split()).count("[bold]odd[red]") == 2


def test_the_real_folder(real_data: Path) -> None:
    result = run("--check", "--json", "--folder", str(real_data))
    assert result.exit_code == 0, result.output
    assert entries(result.stdout)["mnist"]["status"] in ("verified", "missing")
