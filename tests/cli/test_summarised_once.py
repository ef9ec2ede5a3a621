"""A command summarises a run once, and hands the summary on: its resampling takes long."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.audit import small
from tests.cli.command import invoke
from tests.report.runs import Made, write

from exhume.runlog import summary


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the summaries."""
    counted: list[int] = []
    real = summary.tradeoffs

    def noted(*given):  # type: ignore[no-untyped-def]
        counted.append(1)
        return real(*given)

    monkeypatch.setattr(summary, "tradeoffs", noted)
    return counted


@pytest.mark.parametrize("command", [("report",), ("gate", "--max-success", "1")])
def test_of_a_run_folder(command: tuple[str, ...], tmp_path: Path, calls: list[int]) -> None:
    name, *options = command
    done = invoke(name, str(write(tmp_path / "run", Made("one"))), *options)
    assert done.code == 0, done.err
    assert len(calls) == 1


def test_of_an_audit(tmp_path: Path, calls: list[int]) -> None:
    toml = tmp_path / "audit.toml"
    toml.write_text(small.PLAIN + small.audit(2, attacks='["glm"]'))
    where = ("--out", str(tmp_path / "run"), "--executor", "serial", "--quiet")
    done = invoke("audit", str(toml), *where)
    assert done.code == 0, done.err
    assert (tmp_path / "run" / "report.html").is_file()
    assert len(calls) == 1
