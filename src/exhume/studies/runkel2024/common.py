"""The common base of the parts of Runkel et al. 2024: weights alone, and starts of searches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exhume.studies.claims import ClaimRow, versus
from exhume.studies.part import Part, Size, Tables
from exhume.studies.reading import StudyReading


@dataclass(frozen=True, kw_only=True)
class WeightsSize(Size):
    """The size of a study of attacks on weights alone.

    ``releases`` networks are trained on ``records`` each of two ``classes`` (0 and 1) of the data.
    ``width`` is that of every hidden layer, ``steps`` the bilevel search's iterations,
    ``kkt_steps`` the KKT search's, ``excess`` its candidates per record, ``draws`` the row space's
    searches, and ``values`` the shares of the landscape.
    """

    data: str = "cifar-10"
    shadow_targets: int = 1000
    records: int = 500
    releases: int = 1
    width: int = 6144
    learning_rate: float = 0.05
    weight_decay: float = 1e-2
    epochs: int = 10_000
    steps: int = 10_000
    kkt_steps: int = 50_000
    restarts: int = 1
    excess: int = 1
    draws: int = 3000
    shrink: int = 1
    values: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)

    def describe(self) -> str:
        """Return the networks, their records, and the steps of both searches."""
        networks = "a network" if self.releases == 1 else f"{self.releases} networks"
        parts = [f"{networks} of {self.records} records", f"width {self.width:,}"]
        return ", ".join([*parts, f"{self.steps:,} bilevel and {self.kkt_steps:,} KKT steps"])


@dataclass(frozen=True, kw_only=True)
class WeightsPart(Part[WeightsSize]):
    """One table or figure of Runkel et al. 2024."""

    paper: str = "runkel2024"


FULL = WeightsSize()
"""Section 4.3: CIFAR-10's 3072 values, two classes, one hidden layer of 6144."""
BUZAGLO = WeightsSize(width=1000, excess=2)
"""Section 4.4: as in Buzaglo et al., two hidden layers of 1000, two candidates per record."""
LAPTOP = WeightsSize(
    shadow_targets=200, records=20, width=64, epochs=2000, steps=150, kkt_steps=1000, shrink=4
)
SMOKE = WeightsSize(
    data="fashion-mnist-small",
    shadow_targets=60,
    records=6,
    width=24,
    epochs=400,
    steps=30,
    kkt_steps=60,
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
TABLE_1 = {
    "affine": {"random": 1.1214e-3, "ground truth": 1.3888e-3, "partition": 2.9749e-3},
    "hidden": {"random": 6.1157e-5, "ground truth": 1.7055e-3, "partition": 6.3629e-3},
}
"""Squared distance of the parameters at the end, by network and start, as printed."""
LOWER_STEPS = 15
"""Tens of steps of a training in the bilevel search: 3000 steps change nothing more."""
RATE = 0.01
"""Of the KKT search: of .002, .005 and .01 the one with the smallest residuals, on seed 100."""


def hidden(size: WeightsSize, layers: int = 1) -> dict[str, Any]:
    """Return the network with that many hidden layers."""
    return {"model": "mlp", "hidden": [size.width] * layers, "activation": "relu"}


def alone(
    size: WeightsSize, name: str, network: Mapping[str, Any], start: Tables | None, **others: Any
) -> Tables:
    """Return a setting of weights alone whose searches start at ``start``."""
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


def bilevel(size: WeightsSize, name: str, network: Tables, start: Tables) -> Tables:
    """Return a setting of the bilevel search."""
    options = {"bilevel": {"steps": size.steps, "warm": False, "lower_steps": LOWER_STEPS}}
    return alone(size, name, network, start, attacks=["bilevel"], options=options)


def kkt(size: WeightsSize, name: str, start: Tables, *, within_span: bool = False) -> Tables:
    """Return a setting of the KKT search, of two hidden layers and among all pixels by default."""
    options = {
        "steps": size.kkt_steps,
        "rate": RATE,
        "restarts": size.restarts,
        "draws": 0,
        "excess": size.excess,
        "within_span": within_span,
    }
    network = hidden(size, layers=2)
    return alone(size, name, network, start, attacks=["kkt"], options={"kkt": options})


def distance(name: str, what: str, attack: str | None = None) -> StudyReading:
    """The mean distance to the nearest of ``training``, the ``shadow`` partition, the ``noise``."""
    return StudyReading(f"nearest-{what}.mean", name, attack, ended=False)


AT_THE_TRUTH = "starts at the truth"
"""Why a row is no evidence: the search is given the training images."""
_SETS = {
    "training": "the training images",
    "shadow": "the partition's images",
    "noise": "the noise",
}


def nearer(
    label: str,
    published: float | str,
    name: str,
    what: str,
    than: str,
    *,
    attack: str,
    check: str = "",
) -> ClaimRow:
    """Return a row where reconstructions are nearer to one set of images than to another."""
    left, right = (distance(name, one, attack) for one in (what, than))
    says = f"nearer to {_SETS[what]} than to {_SETS[than]}"
    return versus(label, published, left, "below", right, says, attack=attack, check=check)
