"""What the parts of Runkel et al. 2024 share: weights alone, and a search that begins somewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exhume.studies.base import Size, Tables
from exhume.studies.claims import Claim, Row
from exhume.studies.run import Reading

PAPER = "runkel2024"


@dataclass(frozen=True, kw_only=True)
class WeightsSize(Size):
    """What a scale decides where weights alone are attacked.

    ``releases`` networks are trained on ``records`` each of two ``classes`` (0 and 1) of the data.
    ``width`` is that of every hidden layer, ``steps`` the bilevel search's iterations,
    ``kkt_steps`` the KKT search's, ``excess`` its candidates a record, ``draws`` the row space's
    searches, and ``values`` the shares of the landscape.
    """

    data: str = "cifar-10"
    fixed_set: int = 0
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


FULL = WeightsSize()
"""Section 4.3: CIFAR-10's 3072 values, two classes, one hidden layer of 6144."""
DECORECO = WeightsSize(width=1000, excess=2)
"""Section 4.4: as Buzaglo et al. have it, two hidden layers of 1000, two candidates a record."""
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
LOWER_STEPS = 15
"""Of a training in the bilevel search: times ten, after which 3000 steps change nothing."""
RATE = 0.01
"""Of the KKT search: of .002, .005 and .01 the one with the smallest residuals, on seed 100."""


def hidden(size: Size, layers: int = 1) -> dict[str, Any]:
    """Return the network with that many hidden layers."""
    return {"model": "mlp", "hidden": [size.width] * layers, "activation": "relu"}


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


def bilevel(size: Size, name: str, network: Tables, start: Tables) -> Tables:
    """Return a setting of the bilevel search."""
    assert isinstance(size, WeightsSize)
    options = {"bilevel": {"steps": size.steps, "warm": False, "lower_steps": LOWER_STEPS}}
    return alone(size, name, network, start, attacks=["bilevel"], options=options)


def kkt(size: Size, name: str, start: Tables, *, within_span: bool = False) -> Tables:
    """Return a setting of the KKT search, of two hidden layers and among all pixels by default."""
    assert isinstance(size, WeightsSize)
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


def distance(name: str, what: str, attack: str | None = None) -> Reading:
    """The mean distance to the nearest of ``training``, the ``shadow`` partition, the ``noise``."""
    return Reading(f"nearest-{what}.mean", name, attack, ended=False)


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


_SETS = {
    "training": "the training images",
    "shadow": "the partition's images",
    "noise": "the noise",
}


def nearer(
    label: str, published: float | str, name: str, what: str, than: str, *, attack: str
) -> Row:
    """A row that claims that reconstructions are nearer to one set of images than to another."""
    left, right = (distance(name, one, attack) for one in (what, than))
    says = f"nearer to {_SETS[what]} than to {_SETS[than]}"
    return versus(label, published, left, "below", right, says, attack=attack)
