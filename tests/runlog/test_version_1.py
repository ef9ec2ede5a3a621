"""A run folder of schema version 1: the report and the gate open it, whatever the version now.

``version_1/run.zip`` was written by ``exhume audit audit.toml --out run`` with that schema.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.audit import small
from tests.cli.command import invoke

from exhume.audit import Store

HERE = Path(__file__).parent / "version_1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The old run folder, without what a report writes."""
    path = tmp_path / "run"
    with zipfile.ZipFile(HERE / "run.zip") as archive:
        archive.extractall(path)
    (path / "summary.json").unlink()
    return path


def rounded(value: Any) -> Any:
    """Plain data with numbers to nine digits: the last ones are the processor's."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_the_report_opens_it_and_finds_the_same_numbers(folder: Path) -> None:
    done = invoke("report", str(folder))
    assert done.code == 0, done.err
    html = (folder / "report.html").read_text()
    for text in ("Is it real?", "Digits: a network&#39;s weights alone", "gradient, noise"):
        assert text in html
    with zipfile.ZipFile(HERE / "run.zip") as archive:
        # The third verdict of a judge has another name since.
        text = archive.read("summary.json").decode().replace('"cannot be told"', '"undecided"')
        before = json.loads(text)
    after = json.loads((folder / "summary.json").read_text())
    errors = [row.pop("error") for row in after["rows"]]
    assert all(error is None or error >= 0 for error in errors)
    assert any(errors)
    for summary in (before, after):
        # Rows stood in the alphabet's order then, today they stand in the plan's.
        summary["rows"].sort(key=lambda row: (row["setting"], row["attack"]))
    assert rounded(after) == rounded(before)


def test_the_gate_judges_it(folder: Path) -> None:
    done = invoke("gate", str(folder), "--max-success", "0.5")
    assert done.code == 1
    assert "row-space reached 66.7%, at most 95.7% by the interval" in done.out
    assert invoke("gate", str(folder), "--max-success", "1").code == 0


def test_trainings_and_verdicts_are_where_they_belong(folder: Path) -> None:
    with Store.open(folder) as store:
        found = store.run()
    assert [len(setting.trainings) for setting in found.settings] == [0, 2, 2, 0]
    assert found.setting("alone").authenticity is not None


def test_resuming_it_is_refused_in_one_line(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in (folder / "artefacts").iterdir()}
    toml = folder / "audit.toml"
    toml.write_text(small.PLAIN)
    done = invoke("audit", str(toml), "--out", str(folder), "--quiet")
    assert done.code == 2
    assert done.error == (
        f"{folder} was written by an older version (schema 1): its report can be rendered, but its "
        "run cannot be resumed; use a new --out"
    )
    assert {path.name: path.read_bytes() for path in (folder / "artefacts").iterdir()} == before
    assert invoke("report", str(folder)).code == 0
