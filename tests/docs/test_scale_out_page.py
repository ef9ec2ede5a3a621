"""The page about clusters: its cluster file is one, its Python runs, its options are there."""

from __future__ import annotations

import re

import pytest
from tests.cli.command import invoke
from tests.docs.pages import blocks

PAGE = "docs/how-to/scale-out.md"


def test_the_cluster_file_is_valid() -> None:
    """By Ray's own schema."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'exhume[ray]'")
    import yaml
    from ray.autoscaler._private.util import prepare_config, validate_config

    (text,) = (block.text for block in blocks(PAGE) if block.language == "yaml")
    config = prepare_config(yaml.safe_load(text))
    validate_config(config)
    assert config["max_workers"] == 2


def test_the_python_runs() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'exhume[ray]'")
    names: dict[str, object] = {}
    for block in blocks(PAGE):
        if block.language == "python":
            exec(compile(block.text, PAGE, "exec"), names)
    assert names["executor"].gpus == 0.25  # type: ignore[attr-defined]


def test_the_options_are_there() -> None:
    shown = invoke("audit", "--help").out
    text = "\n".join(block.text for block in blocks(PAGE) if block.language in ("sh", "console"))
    for line in re.findall(r"exhume audit .*", text):
        for option in re.findall(r"--[a-z]+", line):
            assert option in shown, option
