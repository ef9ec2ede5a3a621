"""From run folders to the pages of results: summaries copied, pictures drawn, pages rendered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from exhume.errors import InputError
from exhume.studies.base import Part, Size
from exhume.studies.catalogue import find, papers
from exhume.studies.run import RECORD, Run, read_record, write_record
from exhume.studies.scores import collect


def note(
    part: Part, size: Size, scale: str, seed: int, changes: tuple[str, ...], folder: Path
) -> Run:
    """Write into a finished run folder which part it is, with what is stored there."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    run = Run(part.paper, part.name, scale, size.plain(), seed, changes, summary, collect(folder))
    write_record(run, folder / RECORD)
    return run


def publish(results: Path, folders: Sequence[Path]) -> list[Path]:
    """Take over run folders into a folder of results, and render its pages anew."""
    from exhume.studies.embedding import draw_embedding
    from exhume.studies.page import render
    from exhume.studies.pictures import draw

    written = []
    for folder in folders:
        if not (folder / RECORD).is_file():
            raise InputError(f"{folder} is no finished study: it has no {RECORD}")
        run = read_record(folder / RECORD)
        if not run.summary["complete"]:
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
    """Draw the declared figures of all runs that a folder of results holds of a paper."""
    from exhume.studies.drawing import draw_plots
    from exhume.studies.page import size_of

    written = []
    for name, run in published(results, paper).items():
        part = find(paper, name)
        written += draw_plots(run, part.plots(size_of(part, run)), results / "figures")
    return written


def embedding_file(part: Part) -> str:
    """Return the name of the file with a part's released models as points."""
    return f"{part.paper}-{part.name}-tsne.png"


def summaries(results: Path, paper: str) -> Path:
    """Return the folder of a paper's committed summaries."""
    return results / "summaries" / paper


def published(results: Path, paper: str) -> dict[str, Run]:
    """Return the runs that a folder of results holds of a paper, by part."""
    found = [read_record(path) for path in sorted(summaries(results, paper).glob("*.json"))]
    return {run.part: run for run in found}
