"""The example projects, as their README files run them, with fewer targets."""

from __future__ import annotations

import ast
import json
import shutil
import tempfile
from pathlib import Path

import nbclient
import nbformat
import pytest
from tests.cli.command import execute
from tests.docs.pages import ROOT
from tests.patience import PATIENCE_SECONDS
from traitlets.config import Config

EXAMPLES = ROOT / "examples"
PROJECTS = ("own-training", "own-table")


@pytest.mark.parametrize("project", PROJECTS)
def test_the_loop_knows_nothing_of_exhume(project: str) -> None:
    text = (EXAMPLES / project / "train.py").read_text(encoding="utf-8")
    assert "import exhume" not in text
    assert "from exhume" not in text
    ast.parse(text)


@pytest.mark.parametrize("project", PROJECTS)
def test_the_project_runs_from_the_file_to_the_report(tmp_path: Path, project: str) -> None:
    folder = tmp_path / project
    shutil.copytree(EXAMPLES / project, folder)
    toml = folder / "audit.toml"
    text = toml.read_text(encoding="utf-8")
    for before, after in (
        ("shadow_targets = 120", "shadow_targets = 16"),
        ("shadow_targets = 150", "shadow_targets = 16"),
        ("targets = 12", "targets = 2"),
        ("targets           = 15", "targets           = 4"),
        ("membership_models = 8", "membership_models = 2"),
    ):
        text = text.replace(before, after)
    toml.write_text(text, encoding="utf-8")
    out = tmp_path / "run"
    done = execute("audit", toml, "--trust-code", "--out", out, "--quiet")
    assert done.code == 0, done.err
    assert "2 of 3 attacks ran; 1 lacked information." in done.out
    rows = {r["attack"]: r for r in json.loads((out / "summary.json").read_text())["rows"]}
    for attack in ("ridge", "reconstructor"):
        assert rows[attack]["ran"] == rows[attack]["trials"]
    assert rows["trajectory-inversion"]["statuses"].keys() == {"UNINFORMED"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "add knowledge.training" in page
    assert "gave the same model, bit for bit" in page


def test_the_notebook_runs(tmp_path: Path) -> None:
    folder = tmp_path / "own-training"
    shutil.copytree(EXAMPLES / "own-training", folder)
    notebook = nbformat.read(folder / "notebook.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("shadow_targets=40", "shadow_targets=10")
    # By sockets with names: ports are chosen before the kernel has them. Such a path is short.
    limits = dict.fromkeys(("timeout", "startup_timeout", "iopub_timeout"), PATIENCE_SECONDS)
    resources = {"metadata": {"path": str(folder)}}
    with tempfile.TemporaryDirectory(prefix="xn-", dir="/tmp") as place:
        manager = {"transport": "ipc", "ip": f"{place}/kernel", "connection_dir": place}
        config = Config({"KernelManager": manager})
        nbclient.NotebookClient(notebook, config=config, resources=resources, **limits).execute()
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error"]
    printed = "".join(o.text for o in outputs if o.output_type == "stream")
    assert "report: notebook-run/report.html" in printed
    assert (folder / "notebook-run" / "report.html").is_file()
