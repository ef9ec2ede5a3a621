"""English that is read once: what a machine can hold of it.

Looked at are docstrings, comments, messages, templates and pages, each joined to one line.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What is counted or measured, and what it is counted or measured by.
COUNTED = (
    "seconds|s|ms|minutes|hours|bytes|MB|GB|CPUs?|numbers|values|entries|records|models|rows|columns"
    "|lines|points|letters|pixels|images|pictures|colours|labels|batches|steps|trials|targets"
    "|tasks|threads|processes|trainings|releases|networks|verdicts|scores|sums|passes|pass|streams"
    "|heads|gradients|weights|(?:one|a) (?:process|model|head|array|number|row|column|label|verdict"
    "|thread|size|point|value|release|line)"
)
BY = (
    "target|core|record|batch|step|class|model|parameter|run|second|minute|row|column|setting"
    "|point|page|trial|image|picture|pixel|client|candidate|coordinate|layer|network|node|worker"
    "|process|unit|feature|epoch|round|seed|training|attack|defence|sample|restart|role|folder|cell"
    "|line"
)
A_FOR_PER = re.compile(rf"\b(?:{COUNTED}) an? (?:{BY})s?\b(?! (?:may|can|must|[a-z]+(?:ed|s))\b)")

# Each of these was once misunderstood, with what says the same at first reading.
INSTEAD = {
    r"\b(?:gone|goes?|going) on with\b|\bgoes on where\b": "resumed, resumes",
    r"\bit does not hold that\b": "contradicted: …",
    r"(?<!\")\b(?:cannot|can't|can not|none can) be told\b": "undecided",
    r"\b(?:the adversary|it) hasn't\b": "the adversary lacks …",
    r"\bthere to be asked for\b": "on request",
    r"\bdid(?:n't| not) (?:run|come) to an end\b|\bran to an end\b": "finished",
    r"\bread off\b": "inferred from, computed from",
    r"\bworth its name\b|\bsay so much\b": "say what it means",
    r"\b(?:is|are|was|were) (?:not )?told of\b|\btells of\b": "reports, describes, shows",
    r"\bto be had\b|\bare to be (?:had|found)\b": "need, are available",
    r"\brecords? of which (?:the target|one) is\b": "a list that holds the target",
    r"[,;] but for\b|\bis but for\b": "except, without",
    r"\bof (?:all|any) (?:of )?(?:them|these|those) the\b": "the subject first",
    r"\b(?:hereby|thereby|therein|thereof|whereof|whereby|hence|thence|lest)\b": "so, by this",
    r"\bas it were\b|\bso to say\b|\bby no means\b|\bat its own word\b": "say it plainly",
}


def sources() -> tuple[Path, ...]:
    """Every file that a reader sees; pages of results are rendered from strings in the source."""
    folders = ("src", "tests", "benchmarks", "tools", "docs")
    found = [p for name in folders for p in sorted((ROOT / name).rglob("*.py"))]
    found += [*sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("*.md")]
    found += [*sorted((ROOT / "src").rglob("*.html")), *sorted((ROOT / "src").rglob("*.toml"))]
    return tuple(p for p in found if p != Path(__file__))


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the text in a file with its line: strings and comments of Python, paragraphs else."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        at = 1
        for part in re.split(r"(\n\s*\n)", text):
            yield at, " ".join(part.split())
            at += part.count("\n")
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Constant(value=str(said)):
                yield node.lineno, " ".join(said.split())
            case ast.JoinedStr(values=values):
                said = "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in values)
                yield node.lineno, " ".join(said.split())
    comments = [
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    joined: list[tuple[int, int, str]] = []
    for line, said in comments:
        if joined and joined[-1][1] == line - 1:
            joined[-1] = (joined[-1][0], line, f"{joined[-1][2]} {said}")
        else:
            joined.append((line, line, said))
    yield from ((first, said) for first, _, said in joined)


@cache
def everything() -> tuple[tuple[Path, int, str], ...]:
    """Return all text with its places, read once."""
    return tuple((path, line, said) for path in sources() for line, said in prose(path))


def found(pattern: re.Pattern[str]) -> list[str]:
    """Return the places where a pattern occurs."""
    return [
        f"{path.relative_to(ROOT)}:{line}: …{said[max(hit.start() - 30, 0) : hit.end() + 30]}…"
        for path, line, said in everything()
        for hit in pattern.finditer(said)
    ]


def test_a_never_stands_for_per() -> None:
    places = found(A_FOR_PER)
    assert not places, "write 'per':\n" + "\n".join(places)


@pytest.mark.parametrize("pattern", INSTEAD)
def test_phrases_that_must_be_read_twice_are_not_there(pattern: str) -> None:
    places = found(re.compile(pattern, re.IGNORECASE))
    assert not places, f"write {INSTEAD[pattern]!r}:\n" + "\n".join(places)


@pytest.mark.parametrize(
    "text",
    ["0.5 seconds a target", "one process a core", "a verdict a row: one number a record, at most"],
)
def test_the_pattern_sees_a_for_per(text: str) -> None:
    assert A_FOR_PER.search(text)


@pytest.mark.parametrize(
    "text",
    ["seconds per target", "sends a server a record", "gives the network a record of its own"],
)
def test_the_pattern_lets_an_article_be_one(text: str) -> None:
    assert not A_FOR_PER.search(text)
