"""From a part to a run folder, and from run folders to the pages of results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exhume.protocol.errors import InputError
from exhume.runlog.codec import decoded
from exhume.runlog.summary import Summary
from exhume.studies.catalogue import find, papers
from exhume.studies.part import Part, Scale, Size
from exhume.studies.reading import RECORD, StudyRun, read_record, write_record
from exhume.studies.scores import collect

if TYPE_CHECKING:
    from exhume.attacks import Attack


def note(
    part: Part[Any], size: Size, scale: str, seed: int, changes: tuple[str, ...], folder: Path
) -> StudyRun:
    """Record in a finished run folder which part it is, with the stored results."""
    plain = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary = decoded(Summary, plain)
    run = StudyRun(
        part.paper, part.name, scale, size.plain(), seed, changes, summary, collect(folder)
    )
    write_record(run, folder / RECORD)
    return run


def compete(
    attack: Attack,
    paper: str,
    part: str,
    *,
    out: Path,
    scale: str = "laptop",
    seed: int = 0,
    changes: Sequence[str] = (),
) -> StudyRun:
    """Run a part with ``attack`` on every setting, into the run folder ``out``.

    ``exhume study --render RESULTS --from OUT`` puts it on the page and on the leaderboard.
    """
    from exhume.audit import Serial, make_plan, run

    chosen = find(paper, part)
    size = chosen.size(Scale(scale), changes)
    plan = make_plan(chosen.config(size, seed=seed), extra=[attack])
    run(plan, out, Serial(), command=f"compete: {attack.name}")
    return note(chosen, size, scale, seed, tuple(changes), out)


def publish(results: Path, folders: Sequence[Path]) -> list[Path]:
    """Copy run folders into a folder of results, and render its pages again."""
    from exhume.studies.page import render
    from exhume.studies.pictures import draw, draw_embedding

    written = []
    for folder in folders:
        if not (folder / RECORD).is_file():
            raise InputError(f"{folder} is not a finished study: it has no {RECORD}")
        run = read_record(folder / RECORD)
        if not run.summary.complete:
            raise InputError(f"{folder} is not complete: run its command again")
        path = summaries(results, run.paper) / f"{run.part}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(run, path)
        path.chmod(0o644)
        written.append(path)
        part = find(run.paper, run.part)
        written += draw(part, folder, results / "figures")
        points = results / "figures" / embedding_file(part)
        if draw_embedding(part, run, points):
            written.append(points)
    for paper in papers():
        if summaries(results, paper).is_dir():
            written += _drawn(paper, results)
            page = results / f"{paper}.md"
            page.write_text(render(paper, results), encoding="utf-8")
            written.append(page)
    from exhume.studies.leaderboard import leaderboard

    board = results / "leaderboard.md"
    board.write_text(leaderboard(results), encoding="utf-8")
    return [*written, board]


def _drawn(paper: str, results: Path) -> list[Path]:
    """Draw the declared figures of all runs of a paper in a folder of results."""
    from exhume.studies.drawing import draw_plots

    written = []
    for name, run in published(results, paper).items():
        part = find(paper, name)
        written += draw_plots(run, part.plots(part.size_of(run)), results / "figures")
    return written


def embedding_file(part: Part[Any]) -> str:
    """Return the name of the file with a part's released models as points."""
    return f"{part.paper}-{part.name}-tsne.png"


def summaries(results: Path, paper: str) -> Path:
    """Return the folder of a paper's committed summaries."""
    return results / "summaries" / paper


def published(results: Path, paper: str) -> dict[str, StudyRun]:
    """Return the runs of a paper in a folder of results, by part."""
    found = [read_record(path) for path in sorted(summaries(results, paper).glob("*.json"))]
    return {run.part: run for run in found}
