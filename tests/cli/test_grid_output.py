"""What ``exhume audit`` prints of a grid: one line per setting, however long their names are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.grids import member
from tests.report.runs import write

from exhume.cli.audit import show
from exhume.runlog.store import Store
from exhume.runlog.summary import Summary, summarise


def grid(folder: Path, *names: str) -> Summary:
    made = [member(name, 0.1, group="net") for name in ("", *names)]
    with Store.open(write(folder, *made)) as store:
        return summarise(store.run())


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_long_names_of_a_grid_take_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"secure aggregation of {n}" for n in range(1, 17)]
    show(grid(tmp_path / "run", *names))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    # The headings take two lines.
    assert lines[2].startswith(" net  ")
    for name, line in zip(names, lines[3:], strict=False):
        assert line.startswith(f"   {name} ")
        assert "geiping" in line


def test_short_names_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(grid(tmp_path / "run", "noise"))
    assert " net, noise " in capsys.readouterr().out
