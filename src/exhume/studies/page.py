"""A paper's page of results: rendered from stored summaries alone, never typed by hand."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from exhume.studies.base import Part, Scale, Size
from exhume.studies.catalogue import papers, parts
from exhume.studies.claims import Kind, Row, Verdict, judged
from exhume.studies.drawing import figure_file
from exhume.studies.publish import embedding_file, published
from exhume.studies.run import Run, shown

_NAMES = {"reconstructor": "φ (RecoNN)", "trajectory-inversion": "trajectory inversion"}


def render(paper: str, results: Path) -> str:
    """Return the page of a paper, in Markdown."""
    runs = published(results, paper)
    there = [part for part in parts(paper) if part.name in runs]
    absent = [part.name for part in parts(paper) if part.name not in runs]
    blocks = [
        f"# {papers()[paper]}",
        _introduction(paper),
        _overview([(part, runs[part.name]) for part in there]),
    ]
    blocks.append(_outcome([(part, runs[part.name]) for part in there]))
    if absent:
        blocks.append(f"Declared, and not run for this page yet: {', '.join(absent)}.")
    blocks += [_section(part, runs[part.name], results) for part in there]
    return "\n\n".join(blocks) + "\n"


def _introduction(paper: str) -> str:
    return "\n".join(
        [
            "The paper's tables and figures, run again as audits. Every figure below is read from "
            f"the stored summary of a run (`summaries/{paper}/`), and the verdicts follow from the "
            "figures by criteria that are declared beside the settings in "
            f"`src/exhume/studies/{paper}/`. This page is written by",
            "",
            "```",
            "exhume study --render docs/results --from RUN",
            "```",
            "",
            "and a test fails where page and summaries disagree. *Confirmed* means that the "
            "paper's direction was found at this size, with 95 % confidence; *not confirmed*, that "
            "the contrary was; *not testable at this size*, that the targets are too few to tell, "
            "or that the claim failed where the paper itself needs more. ± is half of the 95 % "
            "interval: of a figure, and behind a comparison of the difference between both sides. "
            "Intervals are over targets, those of one batch or network as one observation; what "
            "is trained once for all of them (the fixed set, a reconstructor network) is not "
            "varied. Where a claim is confirmed by another attack than the paper's, that is said. "
            "All runs used one or two cores.",
        ]
    )


def _overview(runs: list[tuple[Part, Run]]) -> str:
    lines = ["| part | of the paper | size | verdicts |", "|---|---|---|---|"]
    for part, run in runs:
        verdicts = [verdict for _, verdict in _verdicts(part, run)]
        found = Counter(verdict.kind for verdict in verdicts)
        counts = ", ".join(f"{found[kind]} {kind.value}" for kind in Kind if found[kind])
        others = Counter(verdict.by for verdict in verdicts if verdict.by)
        if others:
            counts += f" ({', '.join(f'{n} by {attack}' for attack, n in others.items())})"
        link = f"[{part.name}](#{_anchor(part)})"
        cells = [link, part.reference, _size(run), counts]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _outcome(runs: list[tuple[Part, Run]]) -> str:
    """Return how the rows of all parts end, and those that did not come out as published."""
    found = [(part, row, verdict) for part, run in runs for row, verdict in _verdicts(part, run)]
    counts = Counter(verdict.kind for *_, verdict in found)
    total = ", ".join(f"{counts[kind]} {kind.value}" for kind in Kind)
    failed = [
        f"- [{part.name}](#{_anchor(part)}), {row.label}: {verdict.reason}"
        for part, row, verdict in found
        if verdict.kind is Kind.NOT_CONFIRMED
    ]
    text = f"Of {len(found)} rows {total}."
    return text if not failed else "\n".join([f"{text} What was not confirmed:", "", *failed])


def _section(part: Part, run: Run, results: Path) -> str:
    blocks = [
        f"## {_heading(part)}",
        f"{part.reference}. Size: {_size(run)}. {part.note}".strip(),
        f"```\n{run.command()}\n```",
        _table(part, run),
    ]
    for caption, path in [*_plots(part, run, results), *_pictures(part, run, results)]:
        blocks.append(f"![{caption}](figures/{path})\n\n*{caption}*")
    return "\n\n".join(blocks)


def _table(part: Part, run: Run) -> str:
    lines = [
        "| | published | measured | other attacks | oracle | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row, verdict in _verdicts(part, run):
        own = part.attacks[0] if part.attacks else ""
        measured = run.read(row.measured, own)
        cells = [
            row.label,
            row.published if isinstance(row.published, str) else shown(row.published),
            "–" if measured is None else shown(measured) + _reach(row, run, own),
            _others(part, row, run),
            _oracle(row, run),
            verdict.describe(),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _reach(row: Row, run: Run, attack: str) -> str:
    """Return how far a figure may be off, with 95 % confidence."""
    reach = run.interval(row.measured, attack)
    return "" if reach is None or not 0 < reach.half < math.inf else f" ± {shown(reach.half)}"


def _others(part: Part, row: Row, run: Run) -> str:
    """Return the same figure of the part's other attacks, where they have it."""
    if row.measured.attack is not None or "." not in row.measured.quantity + ".":
        return ""
    found = []
    own = run.read(row.measured, part.attacks[0]) if part.attacks else None
    for attack in part.attacks[1:]:
        value = run.read(row.measured, attack)
        if value is not None and not _of_setting(run, row, value, own):
            found.append(f"{_NAMES.get(attack, attack)} {shown(value)}")
    return ", ".join(found)


def _of_setting(run: Run, row: Row, value: float, own: float | None) -> bool:
    """Tell whether a quantity is the setting's own, the same whichever attack is asked about."""
    return value == own and run.read(row.measured, "") == own


def _oracle(row: Row, run: Run) -> str:
    if not row.measured.quantity.startswith("mse."):
        return ""
    from exhume.studies.run import Reading

    value = run.read(Reading("oracle", row.measured.setting))
    return "" if value is None else shown(value)


def _verdicts(part: Part, run: Run) -> list[tuple[Row, Verdict]]:
    return judged(part.rows(size_of(part, run)), run)


def size_of(part: Part, run: Run) -> Size:
    """Return the size that a run was declared with."""
    return part.size(Scale(run.scale), run.changes)


def _size(run: Run) -> str:
    facts = run.summary["settings"]
    shadows = max(int(f["shadow_targets"]) for f in facts)
    fixed = sorted({int(f["fixed_set"]) for f in facts})
    known = shown(fixed[0]) if len(fixed) == 1 else f"{shown(fixed[0])}–{shown(fixed[-1])}"
    data = run.size["data"] or "tables"
    sizes = sorted({int(f["batch"]) for f in facts if f.get("batch")})
    text = f"{data}, {known} known records"
    if sizes:
        text = f"{data}, batches of {', '.join(map(str, sizes))}"
    if shadows:
        text += f", {shadows:,} shadow targets"
    counts = sorted({int(f["targets"]) for f in facts}) if sizes else [int(facts[0]["targets"])]
    targets = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,}–{counts[-1]:,}"
    return f"{text}, {targets} targets ({run.scale})"


def _heading(part: Part) -> str:
    return f"{part.name}: {part.title}"


def _anchor(part: Part) -> str:
    kept = "".join(c for c in _heading(part).lower() if c.isalnum() or c in " -")
    return kept.replace(" ", "-")


def _plots(part: Part, run: Run, results: Path) -> list[tuple[str, str]]:
    """Return the captions and files of the figures that were drawn."""
    names = [
        (plot.caption, figure_file(part.paper, part.name, plot))
        for plot in part.plots(size_of(part, run))
    ]
    return [(caption, name) for caption, name in names if (results / "figures" / name).is_file()]


def _pictures(part: Part, run: Run, results: Path) -> list[tuple[str, str]]:
    """Return the captions and files of the pictures that were drawn."""
    names = [(p.caption, f"{part.paper}-{part.name}-{i}.png") for i, p in enumerate(part.pictures)]
    if part.embedding is not None:
        names.append((part.embedding(size_of(part, run)).caption, embedding_file(part)))
    return [(caption, name) for caption, name in names if (results / "figures" / name).is_file()]
