"""Tables 3 and 6, Figure 4: the paper's attack beside others, and without some of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from exhume.studies.claims import ClaimRow, versus
from exhume.studies.liu2024.common import (
    LAPTOP,
    RESNET,
    SMOKE,
    GradientPart,
    GradientSize,
    batches,
    gradient,
    inversion,
    matching,
)
from exhume.studies.liu2024.published import DEFENCES, TABLE_3, TABLE_6
from exhume.studies.part import Picture, Tables, minutes, sizes
from exhume.studies.plots import Plane
from exhume.studies.reading import StudyReading


def _compared(size: GradientSize) -> tuple[str, str, str]:
    """Return the attacks of Table 3: the paper's, Geiping's and Jeon's."""
    return "liu", inversion(size), "generative-prior"


def _compared_rows(size: GradientSize) -> Sequence[ClaimRow]:
    metric = "LPIPS" if size.data == "cifar-10" else "RMSE"
    rows = []
    for b in batches(size):
        ours, geiping, jeon = (
            StudyReading(f"{metric.lower()}.mean", f"B={b}", attack, ended=False)
            for attack in _compared(size)
        )
        first, second, third = TABLE_3.get(b, ("–", "–", "–"))
        label = f"{metric}, batch of {b}"
        rows += [
            versus(
                f"{label}: the paper's attack", first, ours, "below", geiping, "below Geiping's"
            ),
            versus(
                f"{label}: Geiping, with statistics", second, geiping, "above", jeon, "above Jeon's"
            ),
            versus(f"{label}: Jeon", third, jeon, "above", ours, "above the paper's"),
        ]
    return rows


ATTACKS = GradientPart(
    name="attacks",
    headlines=("LPIPS, batch of 4: the paper's attack",),
    reference="section 5.2, Table 3",
    title="the paper's attack beside others",
    sizes=sizes(replace(RESNET, batches=3, values=(16, 32)), replace(LAPTOP, values=(4,)), SMOKE),
    minutes=minutes("months", "6 min"),
    settings=lambda size: [
        gradient(
            *(size, f"B={b}", b),
            attacks=list(_compared(size)),
            options=matching(size, *_compared(size)),
        )
        for b in batches(size)
    ],
    rows=_compared_rows,
    attacks=("liu", "batch-norm", "generative-prior"),
    methods=("liu", "batch-norm", "generative-prior"),
    pictures=(
        Picture(
            "CIFAR-10 at 16 × 16, a batch of 4: target, the paper's attack, Geiping with "
            "statistics, Jeon, nearest image that the adversary had",
            ("B=4",),
            ("liu", "batch-norm", "generative-prior"),
        ),
    ),
    note=(
        "There is no defence; all attacks know the labels and batch-norm statistics. Below the "
        "paper's scale, the ResNet-18 has a quarter of the width, images have half the side, "
        "batches are smaller, and 100 steps (200 for Geiping's, which are cheaper) replace "
        "10,000. Jeon's generator is trained on the 2,000 images that the adversary has."
    ),
)

_BARE, _NO_FEATURES, _ALL = "without GR and FM", "without FM", "all parts"
_SWITCHES = {
    _BARE: {"reweighting": False, "feature_matching": False},
    _NO_FEATURES: {"feature_matching": False},
    _ALL: {},
}


def _figure_4(size: GradientSize) -> dict[str, Tables]:
    """Return the defences of Figure 4; none at smoke scale."""
    names = {"noise .01": "noise .01", "clipping 4": "clip 4"} if size.data == "cifar-10" else {}
    return {name: DEFENCES[published] for name, published in names.items()}


def _ablation(size: GradientSize) -> Sequence[Tables]:
    options = {name: matching(size, "liu", **switches) for name, switches in _SWITCHES.items()}
    return [
        gradient(size, f"B={b}, {name}", b, options=options[name])
        for b in batches(size)
        for name in _SWITCHES
    ] + [
        gradient(
            *(size, f"{defence}, {name}", batches(size)[0]),
            options=options[name],
            release={"defences": [table]},
        )
        for defence, table in _figure_4(size).items()
        for name in (_NO_FEATURES, _ALL)
    ]


def _psnr(group: str, name: str, attack: str | None = None) -> StudyReading:
    return StudyReading("psnr.mean", f"{group}, {name}", attack, ended=False)


def _ablation_rows(size: GradientSize) -> Sequence[ClaimRow]:
    rows = []
    for b in batches(size):
        bare, partly, whole = (_psnr(f"B={b}", name) for name in _SWITCHES)
        steps = ((bare, "below", partly), (partly, "below", whole), (whole, "above", bare))
        says = ("reweighting helps", "features help", "both together help")
        figures: tuple[float | str, ...] = TABLE_6.get(b, ("–", "–", "–"))
        rows += [
            versus(f"PSNR, batch of {b}: {name}", figure, *step, words, attack="liu")
            for name, figure, step, words in zip(_SWITCHES, figures, steps, says, strict=True)
        ]
    return rows + [
        versus(
            f"PSNR under {defence}, batch of {batches(size)[0]}: {_ALL}",
            *("above", _psnr(defence, _ALL), "above", _psnr(defence, _NO_FEATURES)),
            "feature matching helps under this defence",
            attack="liu",
        )
        for defence in _figure_4(size)
    ]


ABLATION = GradientPart(
    name="ablation",
    reference="appendix I, Table 6, Figure 4",
    title="the contribution of reweighting and features",
    sizes=sizes(
        replace(RESNET, values=(4, 8, 16, 32)),
        replace(LAPTOP, values=(4,)),
        SMOKE,
    ),
    minutes=minutes("months", "6 min"),
    settings=_ablation,
    rows=_ablation_rows,
    plots=lambda size: [
        Plane(
            *("features", "Figure 4: PSNR with feature matching against without"),
            *("PSNR without feature matching", "PSNR with it"),
            tuple(
                (group, _psnr(group, _NO_FEATURES, "liu"), _psnr(group, _ALL, "liu"))
                for group in (*(f"B={b}" for b in batches(size)), *_figure_4(size))
            ),
        )
    ],
    attacks=("liu",),
    note=(
        "GR is gradient reweighting, FM feature matching. The adversary knows the defences of "
        "Figure 4 and simulates them. Below the paper's scale the ResNet-18 has a quarter of "
        "the width, images half the side, and five batches of 100 steps replace 10,000."
    ),
)
