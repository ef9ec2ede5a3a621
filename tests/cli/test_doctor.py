"""``exhume doctor``: what is there and what is not."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from tests.cli.command import invoke

from exhume.cli import doctor as command


def findings() -> dict[tuple[str, str], dict]:
    found = json.loads(invoke("doctor", "--json").out)
    return {(one["topic"], one["name"]): one for one in found}


def test_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = invoke("doctor")
    assert found.code == 0
    assert all(len(line) <= 80 for line in found.out.splitlines())
    every = findings()
    torch = every["packages", "torch"]
    assert torch == {
        "topic": "packages",
        "name": "torch",
        "value": metadata.version("torch"),
        "sound": True,
    }
    assert ("extras", "ray") in every
    # Developers' tools are no business of whoever runs audits.
    assert not any(name in ("ruff", "mypy", "pytest") for _, name in every)
    assert "digits" in every["data", "found"]["value"]


def test_a_package_that_is_too_old_or_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["numpy>=999.0", "exhume-has-no-such>=1", 'exhume-nor-such; extra == "ray"']
    monkeypatch.setattr(command.metadata, "requires", lambda name: needed)
    assert invoke("doctor").code == 2
    every = findings()
    assert "at least 999.0 is needed" in every["packages", "numpy"]["value"]
    assert every["packages", "numpy"]["sound"] is False
    assert every["packages", "exhume-has-no-such"]["sound"] is False
    extra = every["extras", "exhume-nor-such"]
    assert (extra["sound"], extra["value"]) == (None, "not installed: pip install 'exhume[ray]'")


def test_a_data_folder_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EXHUME_DATA", str(tmp_path / "nope"))
    assert invoke("doctor").code == 2
    assert "does not exist" in findings()["data", "folder"]["value"]
