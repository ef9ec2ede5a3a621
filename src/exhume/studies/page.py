"""A paper's page of results: rendered from stored summaries alone, never written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from exhume.studies.catalogue import papers, parts
from exhume.studies.claims import ClaimRow, ClaimVerdict, Kind
from exhume.studies.drawing import figure_file
from exhume.studies.effort import effort
from exhume.studies.part import Part, Scale
from exhume.studies.publish import embedding_file, published
from exhume.studies.reading import StudyRun, shown
from exhume.studies.verdicts import JudgedPaper, JudgedPart, JudgedRow, judged_paper

_NAMES = {"reconstructor": "φ", "trajectory-inversion": "trajectory inversion"}
_MARKS = {
    Kind.CONFIRMED: "✓",
    Kind.NOT_CONFIRMED: "✗",
    Kind.UNDECIDED: "?",
    Kind.DID_NOT_WORK: "–",
}
_LINES = 4
"""A longer table is folded."""
_COLUMNS = {"own": "paper's method", "strongest": "strongest attack here"}


def render(paper: str, results: Path) -> str:
    """Return the page of a paper, in Markdown."""
    runs = published(results, paper)
    found = judged_paper(parts(paper), runs)
    absent = [part.name for part in parts(paper) if part.name not in runs]
    blocks = [f"# {papers()[paper]}", *_contradicted(found), _tallies(found), *_headlines(found)]
    blocks.append(_introduction(paper))
    blocks += [_confidence(found), _overview(found)]
    if absent:
        blocks.append(f"Declared, but not run for this page yet: {', '.join(absent)}.")
    blocks += [_section(one, results) for one in found.parts]
    return "\n\n".join(blocks) + "\n"


def _contradicted(found: JudgedPaper) -> list[str]:
    """Return what was not confirmed: it stands first."""
    lines = [
        f"- [{one.part.name}](#{_anchor(one.part)}), {row.row.label}, {column}: "
        f"{_attack(one, row, column)}contradicted, {verdict.reason}"
        for one in found.parts
        for row in one.rows
        for column, verdict in _columns(row)
        if verdict.kind is Kind.NOT_CONFIRMED
    ]
    if not lines:
        return ["No claim was contradicted."]
    return ["**Not confirmed.** The contrary of these claims holds here:", "\n".join(lines)]


def _columns(row: JudgedRow) -> Iterator[tuple[str, ClaimVerdict]]:
    for column, verdict in ((_COLUMNS["own"], row.own), (_COLUMNS["strongest"], row.strongest)):
        if verdict is not None:
            yield column, verdict


def _tallies(found: JudgedPaper) -> str:
    lines = [f"| | claims | {' | '.join(kind.value for kind in Kind)} |", "|---" * 6 + "|"]
    for column, title in _COLUMNS.items():
        if verdicts := found.verdicts(column):
            lines.append(_tally(title, verdicts))
    checks = [v for column in _COLUMNS for v in found.verdicts(column, checks=True)]
    if checks:
        lines.append(_tally("checks of our own", checks))
    return "\n".join(lines)


def _headlines(found: JudgedPaper) -> list[str]:
    """Return the claims that a reader comes for: the paper's figure and size, and ours."""
    lines = []
    for one in found.parts:
        sizes = [one.part.size(Scale.PAPER).describe(), one.part.size_of(one.run).describe()]
        words = [f"; {size}" for size in sizes] if sizes[0] != sizes[1] else ["", ""]
        for row in one.rows:
            if row.row.label not in one.part.headlines:
                continue
            claim = f"[{one.part.name}](#{_anchor(one.part)}): {_claim(row.row)}"
            figures = printed(row.row), measured(one.run, row)
            cells = [claim, *(figure + size for figure, size in zip(figures, words, strict=True))]
            cells += [v.kind.value if v else "" for v in (row.own, row.strongest)]
            seconds = sum(line.seconds for line in one.run.summary.rows)
            lines.append(f"| {' | '.join([*cells, f'`{one.run.command()}`', shown(seconds)])} |")
    if not lines:
        return []
    titles = ["headline claim", "the paper", "here", *_COLUMNS.values(), "command", "seconds"]
    head = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    note = "Seconds are those of all attacks of the command, without trainings."
    return ["\n".join([*head, *lines, "", note])]


def _tally(title: str, verdicts: Sequence[ClaimVerdict]) -> str:
    counts = Counter(verdict.kind for verdict in verdicts)
    cells = [title, str(len(verdicts)), *(str(counts[kind]) for kind in Kind)]
    return f"| {' | '.join(cells)} |"


def _introduction(paper: str) -> str:
    return "\n".join(
        [
            "The paper's tables and figures, reproduced as audits. A claim is judged twice: for "
            "the method that the paper makes it about, and for the strongest attack here, the one "
            "with the smallest mean error on the setting in question. *Undecided*: the interval "
            "holds both outcomes, there is no interval, or something that the claim depends on is "
            "missing. *Did not work at this size*: the attack itself reports no success on most "
            "targets, so that its figures say nothing about the claim. *Checks* are no evidence "
            "for a paper: proven inequalities, restatements, our own fits and starts at the truth. "
            "Criteria are declared with the settings in "
            f"`src/exhume/studies/{paper}/`; every figure is read from the stored summary of a "
            f"run (`summaries/{paper}/`) by",
            "",
            "```",
            "exhume study --render docs/results --from RUN",
            "```",
        ]
    )


def _confidence(found: JudgedPaper) -> str:
    return (
        "± is half of the interval of the difference between both sides, over targets; those of "
        "one batch or network count as one observation, and what was trained once for all targets "
        "(the fixed set, a reconstructor network) is not varied. The intervals are corrected for "
        "the number of claims in a column (Benjamini and Hochberg 1995, at most 5 % of the "
        f"decided ones wrong): {found.own:.2%} for the paper's methods, {found.strongest:.2%} for "
        "the strongest attacks. All runs used one or two cores."
    )


def _overview(found: JudgedPaper) -> str:
    lines = ["| part | of the paper | size | paper's method | strongest attack here |"]
    lines.append("|---" * 5 + "|")
    for one in found.parts:
        cells = [f"[{one.part.name}](#{_anchor(one.part)})", one.part.reference, _size(one.run)]
        cells += [_counts(one.verdicts(column)) or "–" for column in _COLUMNS]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _counts(verdicts: Sequence[ClaimVerdict]) -> str:
    counts = Counter(verdict.kind for verdict in verdicts)
    return ", ".join(f"{counts[kind]} {kind.value}" for kind in Kind if counts[kind])


def _section(one: JudgedPart, results: Path) -> str:
    part, run = one.part, one.run
    blocks = [f"## {_heading(part)}", _result(one), *_tables(one)]
    beside = [f"{part.reference}. Size: {_size(run)}. {part.note}".strip()]
    beside.append(f"```\n{run.command()}\n```")
    drawn = [*_plots(part, run, results), *_pictures(part, run, results)]
    beside += [f"![{caption}](figures/{path})\n\n*{caption}*" for caption, path in drawn]
    words = "Size, notes, command" + (f" and {_figures(len(drawn))}" if drawn else "")
    blocks.append(_folded(words, "\n\n".join(beside)))
    return "\n\n".join(blocks)


def _figures(count: int) -> str:
    return "one figure" if count == 1 else f"{count} figures"


def _result(one: JudgedPart) -> str:
    """Return the sentence that opens a section: what came of the claims, and by whom."""
    said = []
    for column, title in _COLUMNS.items():
        if found := one.verdicts(column):
            said.append(f"{title}: {_counts(found)}")
    if checks := [v for column in _COLUMNS for v in one.verdicts(column, checks=True)]:
        said.append(f"checks: {_counts(checks)}")
    text = "; ".join(said)
    return f"**{text[:1].upper()}{text[1:]}.**"


def _tables(one: JudgedPart) -> list[str]:
    """Return the table of the rows, and a matrix of those that have a place in one."""
    placed = [row for row in one.rows if row.row.cell is not None]
    rest = [row for row in one.rows if row.row.cell is None]
    found = [_matrix(one, placed)] if placed else []
    if len(rest) <= _LINES:
        return [*found, *([_table(one, rest)] if rest else [])]
    return [*found, _folded(f"The {len(rest)} rows", _table(one, rest))]


def _folded(title: str, inside: str) -> str:
    return f'<details markdown="1"><summary>{title}</summary>\n\n{inside}\n\n</details>'


def _matrix(one: JudgedPart, rows: Sequence[JudgedRow]) -> str:
    """Return rows by their two places: measured, the published figure, and a mark."""
    cells = {row.row.cell: _cell(one, row) for row in rows}
    places = [cell for cell in cells if cell is not None]
    down = list(dict.fromkeys(first for first, _ in places))
    across = list(dict.fromkeys(second for _, second in places))
    lines = [f"| | {' | '.join(across)} |", "|---" * (len(across) + 1) + "|"]
    for first in down:
        found = [cells.get((first, second), "") for second in across]
        lines.append(f"| {first} | {' | '.join(found)} |")
    marks = ", ".join(f"{mark} {kind.value}" for kind, mark in _MARKS.items())
    return "\n".join([*lines, "", f"Measured (published). {marks}."])


def _cell(one: JudgedPart, row: JudgedRow) -> str:
    verdict = row.own or row.strongest
    mark = "" if verdict is None else _MARKS[verdict.kind]
    return f"{mark} {measured(one.run, row)} ({printed(row.row)})"


def measured(run: StudyRun, row: JudgedRow) -> str:
    """Return the figure that a row shows, of the paper's own method or else the strongest."""
    value = run.read(row.row.measured, next((who for who in row.who if who), ""))
    return "–" if value is None else shown(value)


def _table(one: JudgedPart, rows: Sequence[JudgedRow]) -> str:
    there = [name for name in _COLUMNS if any(getattr(row, name) is not None for row in rows)]
    titles = ["claim", "published", *(_COLUMNS[name] for name in there)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        cells = [_claim(row.row), printed(row.row)]
        cells += [_verdict(one, row, name) for name in there]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _claim(row: ClaimRow) -> str:
    says = f": {row.claim.says}" if row.claim.says else ""
    check = f" *(check: {row.check})*" if row.check else ""
    return f"{row.label}{says}{check}"


def printed(row: ClaimRow) -> str:
    """Return the published figure as papers print it."""
    return row.published if isinstance(row.published, str) else shown(row.published)


def _verdict(one: JudgedPart, row: JudgedRow, name: str) -> str:
    """Return a verdict as a table's cell: its kind, who it is about, and the figures."""
    verdict: ClaimVerdict | None = getattr(row, name)
    if verdict is None:
        return ""
    text = f"{_attack(one, row, _COLUMNS[name])}{_shown(one, row, name)}{verdict.reason}"
    if verdict.idle is not None:
        text += effort(one.part, one.run, *verdict.idle)
    return f"**{verdict.kind.value}**: {text}"


def _attack(one: JudgedPart, row: JudgedRow, column: str) -> str:
    """Return the strongest attack's name where a verdict is about it."""
    who, verdict = row.who[1], row.strongest
    if column != _COLUMNS["strongest"] or who is None or verdict is None:
        return ""
    name = row.row.claim.judged_attack(one.run, who)
    if verdict.idle is not None:
        name = verdict.idle[1]
    return f"{_NAMES.get(name, name)}, " if name else ""


def _shown(one: JudgedPart, row: JudgedRow, name: str) -> str:
    """Return the figure that a row shows, where its claim is about another one."""
    if row.row.shows is None:
        return ""
    who = row.who[list(_COLUMNS).index(name)] or ""
    value = one.run.read(row.row.shows, who)
    return "" if value is None else f"{shown(value)}; "


def _size(run: StudyRun) -> str:
    settings = run.summary.settings
    shadows = max(one.data.shadow_targets for one in settings)
    fixed = sorted({one.data.fixed_set for one in settings})
    known = shown(fixed[0]) if len(fixed) == 1 else f"{shown(fixed[0])}–{shown(fixed[-1])}"
    data = run.data or "tables"
    sizes = sorted({one.batch for one in settings if one.batch})
    text = f"{data}, {known} known records"
    if sizes:
        text = f"{data}, batches of {', '.join(map(str, sizes))}"
    if shadows:
        text += f", {shadows:,} shadow targets"
    counts = sorted({one.data.targets for one in (settings if sizes else settings[:1])})
    targets = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,}–{counts[-1]:,}"
    return f"{text}, {targets} targets ({run.scale})"


def _heading(part: Part[Any]) -> str:
    return f"{part.name}: {part.title}"


def _anchor(part: Part[Any]) -> str:
    kept = "".join(c for c in _heading(part).lower() if c.isalnum() or c in " -")
    return kept.replace(" ", "-")


def _plots(part: Part[Any], run: StudyRun, results: Path) -> list[tuple[str, str]]:
    """Return the captions and files of the figures that were drawn."""
    names = [
        (plot.caption, figure_file(part.paper, part.name, plot))
        for plot in part.plots(part.size_of(run))
    ]
    return [(caption, name) for caption, name in names if (results / "figures" / name).is_file()]


def _pictures(part: Part[Any], run: StudyRun, results: Path) -> list[tuple[str, str]]:
    """Return the captions and files of the pictures that were drawn."""
    names = [(p.caption, f"{part.paper}-{part.name}-{i}.png") for i, p in enumerate(part.pictures)]
    if part.embedding is not None:
        names.append((part.embedding(part.size_of(run)).caption, embedding_file(part)))
    return [(caption, name) for caption, name in names if (results / "figures" / name).is_file()]
