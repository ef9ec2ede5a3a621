"""An attack of one's own on a part of a paper, beside the attacks that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from exhume.attacks import Attack
from exhume.studies.base import Scale
from exhume.studies.catalogue import find
from exhume.studies.publish import note
from exhume.studies.run import Run


def compete(
    attack: Attack,
    paper: str,
    part: str,
    *,
    out: Path,
    scale: str = "laptop",
    seed: int = 0,
    changes: Sequence[str] = (),
) -> Run:
    """Run a part with ``attack`` on every setting, into the run folder ``out``.

    ``exhume study --render RESULTS --from OUT`` puts it on the page and on the leaderboard.
    """
    from exhume.audit import Serial, make_plan, run

    chosen = find(paper, part)
    size = chosen.size(Scale(scale), changes)
    plan = make_plan(chosen.config(size, seed=seed), extra=[attack])
    run(plan, out, Serial(), command=f"compete: {attack.name}")
    return note(chosen, size, scale, seed, tuple(changes), out)
