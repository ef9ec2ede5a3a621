"""Table 3: the paper's attack beside Geiping's and Jeon's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.base import Part, Picture, Size, Tables, minutes, sizes
from exhume.studies.claims import Row
from exhume.studies.liu2024.common import (
    LAPTOP,
    PAPER,
    RESNET,
    SMOKE,
    batches,
    gradient,
    inversion,
    matching,
    versus,
)
from exhume.studies.run import Reading

_TABLE_3 = {
    16: {"geiping": 0.41, "jeon": 0.17, "ours": 0.14},
    32: {"geiping": 0.45, "jeon": 0.24, "ours": 0.15},
}
"""LPIPS by batch size."""


def _settings(size: Size) -> Sequence[Tables]:
    names = ("liu", inversion(size), "generative-prior")
    return [
        gradient(size, f"B={b}", b, attacks=list(names), options=matching(size, *names))
        for b in batches(size)
    ]


def _rows(size: Size) -> Sequence[Row]:
    metric = "LPIPS" if size.data == "cifar-10" else "RMSE"
    rows = []
    for b in batches(size):
        name, published = f"B={b}", _TABLE_3.get(b, {})
        ours, geiping, jeon = (
            Reading(f"{metric.lower()}.mean", name, attack, ended=False)
            for attack in ("liu", inversion(size), "generative-prior")
        )
        label = f"{metric}, batch of {b}"
        rows += [
            versus(
                f"{label}: the paper's attack",
                published.get("ours", "–"),
                *(ours, "below", geiping),
                "below Geiping's",
            ),
            versus(
                f"{label}: Geiping, with statistics",
                published.get("geiping", "–"),
                *(geiping, "above", jeon),
                "above Jeon's",
            ),
            versus(
                f"{label}: Jeon",
                published.get("jeon", "–"),
                *(jeon, "above", ours),
                "above the paper's",
            ),
        ]
    return rows


ATTACKS = Part(
    paper=PAPER,
    name="attacks",
    reference="section 5.2, Table 3",
    title="the paper's attack beside others",
    sizes=sizes(replace(RESNET, batches=3, values=(16, 32)), replace(LAPTOP, values=(4,)), SMOKE),
    minutes=minutes("months", "6 min"),
    settings=_settings,
    rows=_rows,
    attacks=("liu", "batch-norm", "generative-prior"),
    metrics=(),
    pictures=(
        Picture(
            "CIFAR-10 at 16 × 16, a batch of 4: target, the paper's attack, Geiping with "
            "statistics, Jeon, nearest image that the adversary had",
            ("B=4",),
            ("liu", "batch-norm", "generative-prior"),
        ),
    ),
    note=(
        "No defence; labels and batch-norm statistics are known to all. Below the paper's scale "
        "the ResNet-18 has a quarter of the width, images half the side, batches are smaller, "
        "and 100 steps (200 of Geiping's, which are cheaper) stand for 10,000. "
        "Jeon's generator is trained on the 2,000 images that the adversary has."
    ),
)
