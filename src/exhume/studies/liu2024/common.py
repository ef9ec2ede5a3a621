"""The common base of the parts of Liu et al. 2024: section 5.1's setup, and the scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from exhume.studies.part import Part, Size, Tables
from exhume.studies.reading import StudyReading


@dataclass(frozen=True, kw_only=True)
class GradientSize(Size):
    """The size of a study of attacks on gradients.

    ``values`` are the batch sizes, ``batches`` the number of each that is attacked, ``steps`` an
    attack's iterations, ``pixel_steps`` those of gradient inversion, which searches pixels.
    ``shrink`` averages blocks of pixels, ``warm_up`` is the number of training steps of the network
    before, ``wide_head`` the number of units before its classes (0: no wide head). ``columns`` is
    the number of Table 4's 15 defences that are run. ``rounds`` on ``records`` records,
    ``training_batch`` at a time, measure the cost of a defence.
    """

    data: str = "cifar-10"
    shadow_targets: int = 2000
    model: str = "resnet18"
    width: int = 64
    learning_rate: float = 0.05
    batches: int = 1
    steps: int = 10_000
    pixel_steps: int = 10_000
    shrink: int = 1
    warm_up: int = 782
    wide_head: int = 16_384
    generator_steps: int = 600
    columns: int = 15
    rounds: int = 0
    records: int = 0
    training_batch: int = 64
    training_rate: float = 0.1
    seeds: int = 1

    def describe(self) -> str:
        """Return the network, its width, and the number of batches; the steps where it has any."""
        text = f"{self.model}, width {self.width}, {self.batches} of each batch size"
        return text if self.model == "two-layer" else f"{text}, {self.steps:,} steps"


@dataclass(frozen=True, kw_only=True)
class GradientPart(Part[GradientSize]):
    """One table or figure of Liu et al. 2024."""

    paper: str = "liu2024"
    metrics: tuple[str, ...] = ()


RESNET = GradientSize(shadow_targets=45_000, batches=12, values=(4, 8))
"""Section 5.1 and appendix F: ResNet-18, an epoch of training, 50 images."""
LAPTOP = GradientSize(
    width=16,
    batches=5,
    steps=100,
    pixel_steps=200,
    shrink=2,
    warm_up=150,
    wide_head=512,
    values=(4, 8),
)
"""A quarter of the width and of the pixels; all attacks have about the same time."""
CONVNET = replace(
    *(LAPTOP,),
    model="convnet",
    warm_up=0,
    wide_head=0,
    steps=120,
    pixel_steps=400,
    values=(4,),
)
"""An untrained network of a few convolutions, whose gradient reveals much more."""
SMOKE = GradientSize(
    data="fashion-mnist-small",
    shadow_targets=300,
    model="convnet",
    width=8,
    steps=120,
    pixel_steps=120,
    shrink=2,
    warm_up=0,
    wide_head=0,
    generator_steps=150,
    columns=5,
    values=(2,),
)


def gradient(size: GradientSize, name: str, batch: int, **others: Any) -> Tables:
    """Return section 5.1's setting: a batch's gradient, its labels and statistics known."""
    normalised = size.model.startswith("resnet")
    release: dict[str, Any] = {"kind": "gradient", "model": size.model, "batch_size": batch}
    release["width"] = size.width
    if size.warm_up:
        release["warm_up"] = {"steps": size.warm_up, "learning_rate": size.learning_rate}
    if size.wide_head:
        release["wide_head"] = size.wide_head
    given = others.pop("release", {})
    return {
        "name": name,
        "targets": batch * size.batches,
        "data": data(size),
        "release": {**release, **given},
        "knowledge": {"labels": True, "batch_norm": normalised},
        **others,
    }


def data(size: GradientSize) -> Tables:
    """Return the source of the images."""
    shrink = size.shrink
    return {"name": size.data, "shadow_targets": size.shadow_targets, "shrink": shrink}


def matching(size: GradientSize, *attacks: str, **options: Any) -> Tables:
    """Return the attacks' options: their steps, and common options."""
    steps = {inversion(size): size.pixel_steps}
    found: Tables = {n: {"steps": steps.get(n, size.steps), **options} for n in attacks}
    if "generative-prior" in found:
        found["generative-prior"]["training_steps"] = size.generator_steps
    return found


def inversion(size: GradientSize) -> str:
    """Return the attack that the paper calls GradientInversion: Geiping's, with statistics."""
    return "batch-norm" if size.model.startswith("resnet") else "geiping"


def batches(size: GradientSize) -> list[int]:
    """Return the batch sizes."""
    return [int(value) for value in size.values]


def named(group: str, defence: str) -> str:
    """Return the name of a group's setting under a defence, "" where there is none."""
    return f"{group}, {defence}" if defence else group


def strongest(group: str, defence: str = "") -> StudyReading:
    """Return the smallest mean error of any attack, including guesses."""
    return StudyReading("strongest", named(group, defence))
