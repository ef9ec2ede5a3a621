"""Every example on the pages for users runs, and shows what the page says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, Session, agree, blocks, commands
from tools.site.pages import generated

PAGES = (
    *("README.md", "docs/tutorials/tour.md"),
    *("docs/how-to/write-your-own-attack.md", "docs/explanation/threat-models.md"),
    *("docs/tutorials/scikit-learn.md", "docs/tutorials/pytorch.md"),
    *("docs/tutorials/federated.md", "docs/tutorials/research.md", "docs/how-to/dp-training.md"),
    "docs/how-to/training-frameworks.md",
)
PROSE = (
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
WIDE = ("docs/how-to/gate.md", "docs/how-to/data.md")
"""Pages that show JSON, XML and errors, which are not set in columns."""
ELSEWHERE = ("exhume audit\n", "SOLVERS = [", "from tests.contract")
"""What the blocks hold that are too long to run as they are: each has a test of its own."""


@pytest.mark.parametrize("page", PAGES)
def test_a_reader_can_follow(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = Session()
    todo = [b for b in blocks(page) if not any(mark in b.text for mark in ELSEWHERE)]
    for block in todo:
        session.run(block)
    assert sum(block.language == "python" for block in todo) >= 1
    assert sum(block.language == "console" for block in todo) >= 1


def test_what_is_left_to_other_tests_is_there():
    everything = [block.text for page in PAGES for block in blocks(page)]
    for mark in ELSEWHERE:
        assert any(mark in text for text in everything), mark


@pytest.mark.parametrize("page", PROSE)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text(encoding="utf-8"))
    for link in links:
        target, _, heading = link.partition("#")
        if "://" in target:
            continue
        path = (folder / target) if target else ROOT / page
        if path.resolve() in _generated():
            continue  # the site's own build checks what leads to its anchors
        assert path.is_file(), f"{page}: {link}"
        assert not heading or heading in _anchors(path), f"{page}: {link}"


@cache
def _generated() -> set[Path]:
    """Pages that the site makes from the code."""
    return {(ROOT / "docs" / page.path).resolve() for page in generated()}


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PROSE)
def test_make_knows_its_targets(page):
    known = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    text = "\n".join(block.text for block in blocks(page))
    for target in re.findall(r"\bmake (\w+)", text):
        assert target in known, f"{page}: make {target}"


@pytest.mark.parametrize("page", PROSE)
def test_files_that_are_named_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in re.findall(r"`((?:src|tests|docs|benchmarks|tools)/[\w/.\-]+)`", text):
        # A newcomer's own file, in the steps for adding one.
        if "your_" not in name:
            assert (ROOT / name).exists(), f"{page}: {name}"


VERDICT = re.compile(r"(pass|FAIL|fail|INCONCLUSIVE|inconclusive)\b")


@pytest.mark.parametrize("page", [page for page in PROSE if page not in WIDE])
def test_terminal_output_fits_eighty_columns(page):
    """The verdicts' lines are sentences, and may be longer."""
    for block in blocks(page):
        if block.language == "console":
            lines = [line for command in commands(block) for line in command.output]
            tables = [line for line in lines if not VERDICT.match(line)]
            assert all(len(line) <= 80 for line in tables), str(block)


class TestAgreement:
    """The comparison itself must tell right from wrong."""

    @pytest.mark.parametrize(
        ("shown", "expected"),
        [
            (["a", "b"], ("a", "b")),
            (["", "a", "b", ""], ("a", "b")),
            (["a", "b", "c"], ("a", "…")),
            (["a", "b", "c", "d"], ("a", "…", "d")),
            ([], ()),
            (["1+1 (x)"], ("1+1 (x)",)),
        ],
    )
    def test_agrees(self, shown, expected):
        assert agree(shown, expected)

    @pytest.mark.parametrize(
        ("shown", "expected"),
        [
            (["a"], ("a", "b")),
            (["a", "b"], ("a",)),
            (["a", "b", "c"], ("a", "…", "d")),
            (["a"], ()),
            (["97 %"], ("98 %",)),
        ],
    )
    def test_disagrees(self, shown, expected):
        assert not agree(shown, expected)
