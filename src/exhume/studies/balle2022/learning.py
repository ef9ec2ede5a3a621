"""Section VI-B a and appendix B: how much the reconstructor network has to learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from exhume.studies.balle2022.common import (
    LAPTOP,
    LAPTOP_MANY,
    LEARNED,
    MNIST,
    PAPER,
    SMOKE,
    curves,
    mse,
    oracle,
    setting,
    success,
)
from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Row
from exhume.studies.plots import Line, Lines, Plot
from exhume.studies.run import Reading

_PHI = "reconstructor"


def _shadows(size: Size) -> Sequence[Tables]:
    *fewer, most = (int(k) for k in size.values)
    learned = [name for name, _ in LEARNED]
    settings = [setting(size, f"k={k}", shadows=k, attacks=learned) for k in fewer]
    # Trajectory inversion needs none of them: once is enough.
    return [*settings, setting(size, f"k={most}", shadows=most)]


def _shadow_rows(size: Size) -> Sequence[Row]:
    ks = [int(k) for k in size.values]
    rows = [
        success(f"{k:,} shadow models", "below the oracle from 8K on", f"k={k}") for k in ks[-1:]
    ]
    for metric, figure in (("mse", "5c"), ("kl", "5d")):
        for fewer, more in pairwise(ks):
            here, there = (Reading(f"{metric}.mean", f"k={k}") for k in (more, fewer))
            says = "more shadow models, smaller error"
            claim = Claim(here, "below", there, says, every=True)
            label = f"{metric.upper()}, {fewer:,} → {more:,} shadow models"
            rows.append(Row(label, f"falls (Fig. {figure})", here, claim))
    return rows


def _shadow_plots(size: Size) -> Sequence[Plot]:
    points = [(k, f"k={int(k)}") for k in size.values]
    across = "shadow models"
    return [
        curves("mse", "Figure 5c: error by shadow models", across, points, log_x=True),
        curves(
            *("kl", "Figure 5d: KL by shadow models", across, points),
            quantity="kl.mean",
            up="KL",
            log_x=True,
        ),
    ]


SHADOWS = Part(
    paper=PAPER,
    name="shadows",
    reference="section VI-B a, Figures 5c and 5d",
    title="how many shadow models it takes",
    sizes=sizes(
        replace(MNIST, values=(100, 1000, 8000, 20_000, 59_000)),
        replace(LAPTOP_MANY, values=(100, 500, 2000, 8000)),
        replace(SMOKE, values=(40, 400)),
    ),
    minutes=minutes("2 days", "8 min"),
    settings=_shadows,
    rows=_shadow_rows,
    plots=_shadow_plots,
    metrics=("mse", "kl"),
    note=(
        "KL is between the answers of a public classifier on target and reconstruction (see "
        "metrics)."
    ),
)


def _transfer_counts(size: Size) -> tuple[list[int], int]:
    *few, many = (int(value) for value in size.values)
    return few, many


def _transfer(size: Size) -> Sequence[Tables]:
    few, many = _transfer_counts(size)
    pool = replace(size, shadow_targets=max(few) + many + size.fixed_set)
    own = ["reconstructor"]
    settings = [setting(pool, f"{k} from scratch", shadows=k, attacks=own) for k in (*few, many)]
    for k in few:
        moved = setting(pool, f"{k} fine-tuned", shadows=k, attacks=own)
        moved["options"]["reconstructor"]["first"] = many
        settings.append(moved)
    return settings


def _transfer_rows(size: Size) -> Sequence[Row]:
    few, many = _transfer_counts(size)
    rows = []
    for k in few:
        moved, scratch = mse(f"{k} fine-tuned"), mse(f"{k} from scratch")
        claim = Claim(moved, "below", scratch, "a smaller error", attacks=("reconstructor",))
        rows.append(Row(f"fine-tuned on {k} against {k} from scratch", "better", moved, claim))
    most = max(few)
    moved, scratch = mse(f"{most} fine-tuned"), mse(f"{many} from scratch")
    claim = Claim(
        *(moved, "about", scratch, "about the same"), factor=1.25, attacks=("reconstructor",)
    )
    label = f"fine-tuned on {most} against {many:,} from scratch"
    return [*rows, Row(label, "comparable", moved, claim)]


def _transfer_plots(size: Size) -> Sequence[Plot]:
    few, many = _transfer_counts(size)
    lines = (
        Line("fine-tuned", tuple((k, mse(f"{k} fine-tuned")) for k in few), attack=_PHI),
        Line(
            "from scratch",
            tuple((k, mse(f"{k} from scratch")) for k in (*few, many)),
            attack=_PHI,
        ),
        Line(
            "nearest known record",
            tuple((k, oracle(f"{k} from scratch")) for k in (*few, many)),
            dashed=True,
        ),
    )
    caption = "Figure 12: error of φ (RecoNN) by shadow models of the second fixed set"
    return [Lines("curve", caption, "shadow models", "mean squared error", lines, log_x=True)]


TRANSFER = Part(
    paper=PAPER,
    name="transfer",
    reference="appendix B, Figure 12",
    title="a reconstructor network trained for another fixed set",
    sizes=sizes(
        replace(MNIST, values=(100, 1000, 5000, 40_000)),
        replace(LAPTOP, values=(16, 64, 256, 1000)),
        replace(SMOKE, values=(64, 1000)),
    ),
    minutes=minutes("3 days", "2 min"),
    settings=_transfer,
    rows=_transfer_rows,
    plots=_transfer_plots,
    attacks=("reconstructor",),
    note=(
        "Two disjoint fixed sets of the same size; fine-tuning is all that the second one sees. "
        "Trajectory inversion needs no shadow models, so that there is nothing to transfer."
    ),
)

PARTS = (SHADOWS, TRANSFER)
