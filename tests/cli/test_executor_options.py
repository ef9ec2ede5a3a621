"""Who does the work, as the command line is told: what is refused, and how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.audit import small
from tests.cli.command import execute, invoke

from exhume.audit import Ray
from exhume.protocol.errors import InputError


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "audit.toml"
    path.write_text(small.PLAIN + small.audit(2))
    return path


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            ["--address", "host:6379"],
            "--address host:6379 is a Ray cluster: it needs --executor ray",
        ),
        (["--executor", "serial", "--workers", "3"], "serial has one worker, got --workers 3"),
    ],
)
def test_options_that_contradict_each_other(toml: Path, options: list[str], error: str) -> None:
    found = invoke("audit", toml, "--out", toml.parent / "run", *options)
    assert error in found.error
    assert not (toml.parent / "run").exists()


@pytest.mark.parametrize("address", ["auto", "ray://host:10001", "host", "host:0", "host:x", ""])
def test_addresses_that_name_no_cluster(address: str) -> None:
    """A bare "auto" might join a stranger's cluster."""
    with pytest.raises(InputError, match="'local' or the host:port of a cluster's head node"):
        Ray(address)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"workers": -1}, "workers must be 0 .* or more, got -1"),
        ({"cpus": 0.0}, "cpus must be positive"),
        ({"gpus": -0.5}, "gpus not negative"),
    ],
)
def test_impossible_shares(fields: dict[str, float], error: str) -> None:
    with pytest.raises(InputError, match=error):
        Ray(**fields)  # type: ignore[arg-type]


def test_without_ray_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch, toml: Path) -> None:
    monkeypatch.setattr("exhume.runtime.ray_cluster.find_spec", lambda name: None)
    found = invoke("audit", toml, "--out", toml.parent / "run", "--executor", "ray")
    assert found.error == "Ray is not installed: pip install 'exhume[ray]'"


def test_a_cluster_that_does_not_answer(toml: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'exhume[ray]'")
    where = ("--executor", "ray", "--address", "127.0.0.1:9")
    found = invoke("audit", toml, "--out", toml.parent / "run", *where)
    assert "no Ray cluster answers at 127.0.0.1:9: " in found.error


def test_ray_is_imported_only_when_asked_for() -> None:
    code = "import sys, exhume.audit; print('ray' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "False\n"


def test_an_unknown_executor_is_refused(toml: Path) -> None:
    found = execute("audit", toml, "--executor", "dask")
    assert found.code == 2
    assert "'dask' is not one of" in found.err
