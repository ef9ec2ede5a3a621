"""Tables 4, 7 and 8, Figure 2: four attacks under seven defences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Picture, Size, Tables
from exhume.studies.claims import Row
from exhume.studies.liu2024.common import (
    LAPTOP,
    PAPER,
    RESNET,
    SMOKE,
    GradientSize,
    batches,
    gradient,
    inversion,
    matching,
    minutes,
    sizes,
    versus,
)
from exhume.studies.liu2024.published import (
    AGGREGATED,
    DEFENCES,
    INVERSION,
    LOCAL_STEPS,
    OURS,
    ROBBING,
    TABLE_4,
    UNDEFENDED,
)
from exhume.studies.run import Reading

_BINS = 256
_ORDER = (
    *("clip 2", "drop .9", "noise .1", "prune .3", "prune .99"),
    *("noise .01", "prune .9", "drop .5", "prune .7", "noise .001"),
    *("clip 4", "clip 8", "drop .3", "drop .7", "prune .5"),
)


def grid(size: Size) -> dict[str, list[Tables]]:
    """Return as many defences of Table 4 as the size has columns, those that differ most first."""
    assert isinstance(size, GradientSize)
    return {n: [t] for n, t in DEFENCES.items() if n in _ORDER[: size.columns]}


def _local(size: Size) -> dict[str, list[Tables]]:
    rate = {"learning_rate": 0.1}
    assert isinstance(size, GradientSize)
    steps = LOCAL_STEPS if size.columns == len(DEFENCES) else LOCAL_STEPS[:1]
    return {f"{n} local steps": [{"name": "local-steps", "steps": n, **rate}] for n in steps}


def _settings(size: Size) -> Sequence[Tables]:
    found = []
    attacks = ["liu", inversion(size), "feature-inversion"]
    for b in batches(size):
        found += [
            gradient(
                *(size, f"B={b}", b),
                attacks=attacks,
                options=matching(size, *attacks),
                grid={**grid(size), **_local(size)},
            ),
            gradient(
                *(size, f"robbing, B={b}", b),
                attacks=["imprint"],
                release={"imprint": {"bins": _BINS}},
                grid=grid(size),
            ),
        ]
    return found


def _rmse(group: str, defence: str, attack: str) -> Reading:
    name = f"{group}, {defence}" if defence else group
    return Reading("rmse.mean", name, attack or None, ended=False)


def _rows(size: Size) -> Sequence[Row]:
    rows: list[Row] = []
    for b in batches(size):
        rows += [*_table(size, b), *_robbed(size, b), *_strongest(size, b)]
    return rows


def _table(size: Size, b: int) -> list[Row]:
    """Table 4, 7 and 8: the paper's attack beats gradient inversion under every defence."""
    columns = {"": UNDEFENDED[OURS][b], **{d: TABLE_4[b][OURS][d] for d in grid(size)}}
    for name, figure in zip(_local(size), AGGREGATED[OURS][b], strict=False):
        columns[name] = figure
    rows = []
    for defence, published in columns.items():
        group, says = f"B={b}", "below gradient inversion's"
        ours, theirs = _rmse(group, defence, ""), _rmse(group, defence, inversion(size))
        label = f"RMSE, batch of {b}, {defence or 'no defence'}"
        row = versus(label, published, ours, "below", theirs, says)
        rows.append(replace(row, claim=replace(row.claim, attacks=("liu",))))
    return rows


def _robbed(size: Size, b: int) -> list[Row]:
    """Robbing the Fed: nothing to clipping, much to random or chosen zeros."""
    group, rows = f"robbing, B={b}", []
    none = Reading("strongest", group)
    for defence in grid(size):
        here = Reading("strongest", f"{group}, {defence}")
        figure = TABLE_4[b][ROBBING][defence]
        label = f"RMSE, batch of {b}, {defence}: {ROBBING}"
        if defence.startswith("clip"):
            row = versus(label, figure, here, "about", none, "as without", factor=1.2)
        elif defence.startswith(("drop", "prune")):
            row = versus(label, figure, here, "above", none, "worse than without")
        else:
            continue
        rows.append(row)
    return rows


def _strongest(size: Size, b: int) -> list[Row]:
    """Section 5.2: much pruning and much noise protect best, whoever attacks."""
    rows = []
    for strong, weak in (
        ("prune .99", "prune .3"),
        ("prune .99", "drop .9"),
        ("noise .1", "clip 2"),
        ("noise .1", "drop .9"),
    ):
        here, there = (Reading("strongest", f"B={b}, {d}") for d in (strong, weak))
        published = min(TABLE_4[b][attack][strong] for attack in TABLE_4[b])
        label = f"strongest attack, batch of {b}: {strong} against {weak}"
        rows.append(versus(label, published, here, "above", there, "protects better"))
    clip, none = (Reading("strongest", n) for n in (f"B={b}, clip 2", f"B={b}"))
    published = min(TABLE_4[b][attack]["clip 2"] for attack in TABLE_4[b])
    label = f"strongest attack, batch of {b}: clip 2 against no defence"
    rows.append(versus(label, published, clip, "below", none, "no protection", factor=1.2))
    return rows


_CONVNET = replace(LAPTOP, model="convnet", width=16, warm_up=0, wide_head=0)

PART = Part(
    paper=PAPER,
    name="defences",
    reference="section 5.2, Tables 4, 7 and 8, Figure 2",
    title="four attacks under the defences",
    sizes=sizes(
        replace(RESNET, values=(2, 4, 8)),
        replace(_CONVNET, values=(4,)),
        replace(SMOKE, steps=60),
    ),
    minutes=minutes("months", "8 min"),
    settings=_settings,
    rows=_rows,
    attacks=("liu", "geiping", "feature-inversion"),
    metrics=(),
    pictures=(
        Picture(
            "CIFAR-10 at 16 × 16 under pruning .7: target, the paper's attack, gradient "
            "inversion, CPA's features inverted, nearest image that the adversary had",
            ("B=4, prune .7",),
            ("liu", "geiping", "feature-inversion"),
        ),
    ),
    note=(
        f"{INVERSION} is Geiping's attack, CPA the inversion of unmixed features, Robbing the Fed "
        "an imprint of 256 bins. All know the defence and simulate it, which the paper's don't. "
        "The strongest attack has the smallest mean RMSE, a blind guess among them. Below the "
        "paper's scale the network is an untrained ConvNet, ten of the fifteen columns are run, "
        "and one batch and 120 steps stand for 50 images and 10,000. The paper's RMSE "
        "can't be on [0, 1], where ours is: compare defences, not figures."
    ),
)
