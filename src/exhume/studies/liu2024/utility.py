"""Table 5 and Figure 3: what the defences cost, beside what they protect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Row
from exhume.studies.liu2024.common import (
    CONVNET,
    PAPER,
    RESNET,
    SMOKE,
    GradientSize,
    batches,
    gradient,
    inversion,
    matching,
    versus,
)
from exhume.studies.liu2024.defences import grid
from exhume.studies.liu2024.published import TABLE_5
from exhume.studies.plots import Plane, Plot
from exhume.studies.run import Reading


def _settings(size: Size) -> Sequence[Tables]:
    assert isinstance(size, GradientSize)
    trained = {
        "rounds": size.rounds,
        "records": size.records,
        "test": 1000 if size.data == "cifar-10" else size.records // 5,
        "batch_size": size.training_batch,
        "learning_rate": size.training_rate,
        "momentum": size.momentum,
        "seeds": size.seeds,
    }
    names = ("liu", inversion(size))
    return [
        gradient(
            *(size, f"B={b}", b),
            attacks=list(names),
            options=matching(size, *names),
            grid=grid(size),
            utility=trained,
        )
        for b in batches(size)
    ]


def _loss(b: int, defence: str) -> Reading:
    return Reading("final_loss", f"B={b}, {defence}" if defence else f"B={b}")


def _rows(size: Size) -> Sequence[Row]:
    rows = []
    for b in batches(size):
        pruned, noisy = _loss(b, "prune .99"), _loss(b, "noise .1")
        for defence in grid(size):
            here, published = _loss(b, defence), TABLE_5[b][defence]
            label = f"final training loss, batch of {b}, {defence}"
            if defence == "noise .1":
                says = "noise costs more than pruning"
                rows.append(versus(label, published, here, "above", pruned, says))
            else:
                says = "less than noise .1"
                rows.append(versus(label, published, here, "below", noisy, says))
        rows += _front(size, b)
    return rows


def _front(size: Size, b: int) -> list[Row]:
    """Figure 3: at about the same loss, pruning leaves the largest error."""
    rows = []
    for pruned, other in (
        ("prune .9", "drop .9"),
        ("prune .99", "noise .01"),
        ("prune .99", "noise .1"),
    ):
        if not {pruned, other} <= set(grid(size)):
            continue
        here, there = (Reading("strongest", f"B={b}, {d}") for d in (pruned, other))
        label = f"RMSE, batch of {b}: {pruned} against {other}"
        rows.append(versus(label, "larger", here, "above", there, "protects better"))
    return rows


def _plots(size: Size) -> Sequence[Plot]:
    """Figure 3: each defence by what it costs and what it protects."""
    caption = "Figure 3: what a training ends at against what the strongest attack leaves"
    return [
        Plane(
            *(f"front-{b}", f"{caption}, batches of {b}"),
            *("final training loss", "RMSE of the strongest attack"),
            tuple(
                (
                    defence or "none",
                    _loss(b, defence),
                    Reading("strongest", _loss(b, defence).setting),
                )
                for defence in ("", *grid(size))
            ),
        )
        for b in batches(size)
    ]


UTILITY = Part(
    paper=PAPER,
    name="utility",
    reference="section 5.2, Table 5, Figure 3",
    title="what the defences cost",
    sizes=sizes(
        replace(RESNET, values=(2, 4, 8), rounds=156_200, records=45_000, shadow_targets=4000),
        replace(
            *(CONVNET,),
            batches=4,
            rounds=400,
            records=512,
            training_batch=16,
            training_rate=0.02,
            seeds=3,
        ),
        replace(
            *(SMOKE,),
            steps=30,
            pixel_steps=30,
            rounds=120,
            records=200,
            training_batch=16,
            training_rate=0.02,
        ),
    ),
    minutes=minutes("months", "5 min"),
    settings=_settings,
    rows=_rows,
    plots=_plots,
    attacks=("liu", "geiping"),
    metrics=(),
    note=(
        "Utility is the training loss at the end of a training that hears defended gradients "
        "alone, from new parameters, the same budget for every defence; ∞ where it diverged. "
        "Below the paper's scale the network is a small ConvNet, three trainings a defence, and "
        "two attacks, the paper's and gradient inversion, tell its strength; both know it."
    ),
)
