"""What the parts of Liu et al. 2024 share: section 5.1's setup, and the sizes of the scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from exhume.studies.base import Size, Tables
from exhume.studies.claims import Claim, Row
from exhume.studies.run import Reading

PAPER = "liu2024"


@dataclass(frozen=True, kw_only=True)
class GradientSize(Size):
    """What a scale decides where gradients are attacked.

    ``values`` are the batch sizes, ``batches`` how many of each are attacked, ``steps`` an attack's
    iterations, ``pixel_steps`` those of gradient inversion, which searches pixels. ``shrink`` takes
    pixels together, ``warm_up`` is how many steps the network was trained before, ``wide_head`` how
    many units stand before its classes (0: none do). ``columns`` is how many of Table 4's 15
    defences are run. ``rounds`` on ``records`` of them, ``training_batch`` at a time, tell what a
    defence costs.
    """

    data: str = "cifar-10"
    fixed_set: int = 0
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
"""A quarter of the width and of the pixels; attacks have about as many seconds as one another."""
CONVNET = replace(
    *(LAPTOP,),
    model="convnet",
    warm_up=0,
    wide_head=0,
    steps=120,
    pixel_steps=400,
    values=(4,),
)
"""An untrained network of a few convolutions, whose gradient tells much more."""
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


def gradient(size: Size, name: str, batch: int, **others: Any) -> Tables:
    """Return section 5.1's setting: a batch's gradient, its labels and statistics known."""
    assert isinstance(size, GradientSize)
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


def data(size: Size) -> Tables:
    """Return where the images come from."""
    assert isinstance(size, GradientSize)
    shrink = size.shrink
    return {"name": size.data, "shadow_targets": size.shadow_targets, "shrink": shrink}


def matching(size: Size, *attacks: str, **options: Any) -> Tables:
    """Return the attacks' options: their steps, and what is said of all of them."""
    assert isinstance(size, GradientSize)
    steps = {inversion(size): size.pixel_steps}
    found: Tables = {n: {"steps": steps.get(n, size.steps), **options} for n in attacks}
    if "generative-prior" in found:
        found["generative-prior"]["training_steps"] = size.generator_steps
    return found


def inversion(size: Size) -> str:
    """Return the attack that the paper calls GradientInversion: Geiping's, with statistics."""
    assert isinstance(size, GradientSize)
    return "batch-norm" if size.model.startswith("resnet") else "geiping"


def batches(size: Size) -> list[int]:
    """Return the batch sizes."""
    return [int(value) for value in size.values]


def versus(
    label: str,
    published: float | str,
    left: Reading,
    relation: str,
    right: Reading | float,
    says: str,
    *,
    factor: float = 1.0,
) -> Row:
    """A row that shows ``left`` and claims something of it against ``right``."""
    claim = Claim(left, relation, right, says, factor=factor, attacks=("",))
    return Row(label, published, left, claim)
