"""What the parts of Runkel et al. 2024 share: weights alone, and a search that begins somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exhume.studies.base import Scale, Size, Tables
from exhume.studies.claims import Claim, Row
from exhume.studies.run import Reading

PAPER = "runkel2024"


@dataclass(frozen=True, kw_only=True)
class WeightsSize(Size):
    """What a scale decides where weights alone are attacked.

    A network is trained on ``records`` of two ``classes`` (0 and 1) of the data. ``width`` is that
    of its hidden layer, ``steps`` an attack's iterations (``draws`` those of the row space's), and
    ``values`` the shares of the landscape.
    """

    data: str = "cifar-10"
    fixed_set: int = 0
    shadow_targets: int = 1000
    records: int = 500
    releases: int = 1
    width: int = 6144
    learning_rate: float = 0.02
    weight_decay: float = 1e-2
    epochs: int = 10_000
    steps: int = 10_000
    restarts: int = 1
    draws: int = 3000
    shrink: int = 1
    values: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)


FULL = WeightsSize()
"""Section 4: CIFAR-10's 3072 values, two classes, one hidden layer of 6144."""
LAPTOP = WeightsSize(
    shadow_targets=200, records=20, width=64, epochs=2000, steps=150, shrink=4, values=(0, 0.5, 1)
)
SMOKE = WeightsSize(
    data="fashion-mnist-small",
    shadow_targets=60,
    records=6,
    width=24,
    epochs=400,
    steps=40,
    shrink=4,
    values=(0, 1),
)

AFFINE: dict[str, Any] = {"model": "mlp", "hidden": []}
STARTS: dict[str, Tables] = {
    "random": {"noise": 1.0},
    "ground truth": {"truth": 1.0},
    "partition": {},
}
"""The three starts of section 4.3, as a setting's [start]."""


def hidden(size: Size) -> dict[str, Any]:
    """Return the network with one hidden layer."""
    return {"model": "mlp", "hidden": [size.width], "activation": "relu"}


def alone(
    size: Size, name: str, network: Mapping[str, Any], start: Tables | None, **others: Any
) -> Tables:
    """Return a setting of weights alone, whose searches begin at ``start``."""
    assert isinstance(size, WeightsSize)
    training = {
        "learning_rate": size.learning_rate,
        "momentum": size.momentum,
        "weight_decay": size.weight_decay,
        "epochs": size.epochs,
    }
    data = {"name": size.data, "classes": [0, 1], "shrink": size.shrink}
    tables = {
        "name": name,
        "targets": size.records * size.releases,
        "data": {**data, "shadow_targets": size.shadow_targets},
        "release": {**network, "batch_size": size.records},
        "knowledge": {"labels": True, "initial": False, "training": training},
        **others,
    }
    return tables if start is None else {**tables, "start": start}


def sizes(paper: Size, laptop: Size, smoke: Size) -> Mapping[Scale, Size]:
    """Return the three sizes by scale."""
    return {Scale.PAPER: paper, Scale.LAPTOP: laptop, Scale.SMOKE: smoke}


def minutes(paper: str, laptop: str, smoke: str = "under 1 min") -> Mapping[Scale, str]:
    """Return the expected times on two cores by scale."""
    return {Scale.PAPER: paper, Scale.LAPTOP: laptop, Scale.SMOKE: smoke}


def distance(name: str, what: str) -> Reading:
    """The median distance to the nearest record: of ``training``, of the ``shadow`` partition."""
    return Reading(f"nearest-{what}.median", name, ended=False)


def versus(
    label: str,
    published: float | str,
    left: Reading,
    relation: str,
    right: Reading | float,
    says: str,
    *,
    attack: str,
    times: float = 1.0,
) -> Row:
    """A row that shows ``left`` and claims something of it against ``right``."""
    claim = Claim(left, relation, right, says, times=times, attacks=(attack,))
    return Row(label, published, left, claim)


def nearer(label: str, published: float | str, name: str, *, attack: str, training: bool) -> Row:
    """A row that claims to which of the two sets reconstructions are nearer."""
    own, other = ("training", "shadow") if training else ("shadow", "training")
    left, right = distance(name, own), distance(name, other)
    says = "nearer to the training images" if training else "nearer to the partition's images"
    return versus(label, published, left, "below", right, says, attack=attack)
