"""Sections VI-B and VI-C with their appendices: what of the released model matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from exhume.studies.balle2022.common import (
    CIFAR,
    LAPTOP_CIFAR,
    LAPTOP_QUICK,
    MNIST,
    PAPER,
    SMOKE,
    curves,
    inverted,
    mse,
    setting,
    success,
)
from exhume.studies.base import Part, Size, Tables, minutes, sizes
from exhume.studies.claims import Claim, Row
from exhume.studies.plots import Histogram
from exhume.studies.run import Reading

LEARNED_ONLY = ("reconstructor", "ridge")
SECOND = ("3",)
"""The second layer of a network with one hidden layer."""


def about(label: str, published: float | str, name: str, other: str, factor: float) -> Row:
    """A row of which the paper says that it makes no difference."""
    says = "about the same"
    claim = Claim(mse(name), "about", mse(other), says, factor=factor)
    return Row(label, published, mse(name), claim)


def worse(label: str, published: float | str, name: str, other: str) -> Row:
    """A row of which the paper says that the attack does worse than in another setting."""
    claim = Claim(mse(name), "above", mse(other), "a larger error", every=True)
    return Row(label, published, mse(name), claim)


def better(label: str, published: float | str, name: str, other: str) -> Row:
    """A row of which the paper says that the attack does better than in another setting."""
    claim = Claim(mse(name), "below", mse(other), "a smaller error", every=True)
    return Row(label, published, mse(name), claim)


_WIDTHS = {1: 0.0079, 10: 0.0089, 100: 0.0079}


def _width(size: Size) -> Sequence[Tables]:
    whole = [setting(size, f"width {int(w)}", release={"hidden": [int(w)]}) for w in size.values]
    widest = int(max(size.values))
    second = setting(
        size, "second layer only", release={"hidden": [widest]}, layers=SECOND, attacks=LEARNED_ONLY
    )
    return [*whole, second]


def _width_rows(size: Size) -> Sequence[Row]:
    widths = [int(w) for w in size.values]
    rows = [success(f"width {w}", _WIDTHS.get(w, "–"), f"width {w}") for w in widths]
    first = f"width {widths[0]}"
    rows += [
        about(f"width {w} against {widths[0]}", "no significant effect", f"width {w}", first, 2.0)
        for w in widths[1:]
    ]
    widest = f"width {widths[-1]}"
    rows += [
        success(f"width {widths[-1]}, second layer only", 0.0124, "second layer only"),
        worse("second layer only, against all", "marginally worse", "second layer only", widest),
    ]
    return rows


WIDTH = Part(
    paper=PAPER,
    name="width",
    reference="appendix F, Table IV, Figure 16",
    title="how wide the released network is",
    sizes=sizes(
        replace(MNIST, values=(1, 10, 100)),
        replace(LAPTOP_QUICK, phi_epochs=20, retries=0, values=(1, 10, 100)),
        replace(SMOKE, values=(2, 10)),
    ),
    minutes=minutes("8 days", "4 min"),
    settings=_width,
    rows=_width_rows,
    plots=lambda size: [
        curves(
            *("curve", "Figure 16: error by width of the hidden layer", "width"),
            [(w, f"width {int(w)}") for w in size.values],
            log_x=True,
        )
    ],
)


def _fixed(size: Size) -> Sequence[Tables]:
    return [setting(replace(size, fixed_set=int(n)), f"n={int(n)}") for n in size.values]


def _fixed_rows(size: Size) -> Sequence[Row]:
    published = {1000: 0.0094, 10_000: 0.0089}
    names = [int(n) for n in size.values]
    rows = [success(f"fixed set of {n:,}", published.get(n, "–"), f"n={n}") for n in names]
    few, many = f"n={names[0]}", f"n={names[-1]}"
    label = f"fixed set of {names[-1]:,} against {names[0]:,}"
    rows.append(about(label, "a slight increase", many, few, 1.5))
    return rows


FIXED_SIZE = Part(
    paper=PAPER,
    name="fixed-size",
    reference="appendix H, Figure 18",
    title="how many records are known",
    sizes=sizes(
        replace(MNIST, values=(100, 1000, 10_000)),
        replace(LAPTOP_QUICK, values=(100, 300, 1000)),
        replace(SMOKE, values=(30, 60)),
    ),
    minutes=minutes("3 days", "2 min"),
    settings=_fixed,
    rows=_fixed_rows,
    plots=lambda size: [
        curves(
            *("curve", "Figure 18: error by size of the fixed set", "records known"),
            [(n, f"n={int(n)}") for n in size.values],
            log_x=True,
        )
    ],
)


def _epochs(size: Size) -> Sequence[Tables]:
    return [setting(size, f"{int(e)} epochs", training={"epochs": int(e)}) for e in size.values]


def _epoch_rows(size: Size) -> Sequence[Row]:
    counts = [int(e) for e in size.values]
    rows = [success(f"{e} epochs", "–", f"{e} epochs") for e in counts]
    for fewer, more in pairwise(counts):
        label = f"{fewer} → {more} epochs"
        rows.append(worse(label, "grows with the epochs", f"{more} epochs", f"{fewer} epochs"))
    return rows


EPOCHS = Part(
    paper=PAPER,
    name="epochs",
    reference="appendix K, Figure 20",
    title="how long the released model is trained",
    sizes=sizes(
        replace(CIFAR, values=(50, 100, 150, 200, 250, 300)),
        replace(LAPTOP_QUICK, values=(20, 100, 250)),
        replace(SMOKE, values=(5, 60)),
    ),
    minutes=minutes("a year", "2 min"),
    settings=_epochs,
    rows=_epoch_rows,
    plots=lambda size: [
        curves(
            *("curve", "Figure 20: error by epochs of the released model", "epochs"),
            [(e, f"{int(e)} epochs") for e in size.values],
        )
    ],
    note="Figure 20 is on CIFAR-10; below the paper's scale the data are MNIST.",
)

_TABLE_IX = {
    ("sgd", 1000, 100): (0.0041, 0.61),
    ("sgd", 1000, 250): (0.0126, 0.80),
    ("adam", 1000, 100): (0.0052, 0.87),
    ("adam", 1000, 250): (0.0065, 0.92),
    ("sgd", 5000, 100): (0.0049, 0.51),
    ("sgd", 5000, 250): (0.0201, 0.60),
    ("adam", 5000, 100): (0.0052, 0.63),
    ("adam", 5000, 250): (0.0062, 0.75),
}
"""(optimiser, fixed set, epochs): (mean squared error, membership AUC)."""
_SPELLED = {"sgd": "GD + momentum", "adam": "Adam"}


def _cells(size: Size) -> list[tuple[str, str, int]]:
    return [
        (f"{_SPELLED[optimiser]}, {int(e)} epochs", optimiser, int(e))
        for optimiser in ("sgd", "adam")
        for e in size.values
    ]


def _optimisers(size: Size) -> Sequence[Tables]:
    found = []
    for name, optimiser, epochs in _cells(size):
        training = {"optimiser": optimiser, "epochs": epochs}
        if optimiser == "adam":
            training["learning_rate"] = 0.002
        found.append(setting(size, name, training=training))
    return found


def _optimiser_rows(size: Size) -> Sequence[Row]:
    rows = []
    for name, optimiser, epochs in _cells(size):
        figure, auc = _TABLE_IX.get((optimiser, size.fixed_set, epochs), ("–", "–"))
        rows.append(success(name, figure, name))
        reading = Reading("loss_auc", name)
        says = "the loss tells members from others better than a coin"
        claim = Claim(reading, "above", 0.5, says, attacks=("",))
        rows.append(Row(f"{name}, membership AUC of the loss", auc, reading, claim))
    return rows


OPTIMISERS = Part(
    paper=PAPER,
    name="optimisers",
    reference="appendix J, Table IX",
    title="optimisers, epochs and overfitting",
    sizes=sizes(
        replace(CIFAR, values=(100, 250, 500)),
        replace(LAPTOP_CIFAR, shadow_targets=200, targets=16, retries=1, values=(40, 100)),
        replace(SMOKE, shadow_targets=200, targets=8, values=(20,)),
    ),
    minutes=minutes("a year", "3 min"),
    settings=_optimisers,
    rows=_optimiser_rows,
    note="Other fixed sets of the table: --set fixed_set=1000, 10000, 50000.",
)


def _black_box(size: Size) -> Sequence[Tables]:
    asked = int(size.values[0])
    answers = {"kind": "outputs", "queries": asked}
    white = setting(size, "weights")
    return [white, setting(size, "answers", release=answers, attacks=LEARNED_ONLY), *_asked(size)]


def _asked(size: Size) -> list[Tables]:
    """Trajectory inversion of answers, of few targets below the paper's scale, none at smoke."""
    if size.data != "mnist":
        return []
    deep = replace(size, jacobians=max(30, size.jacobians))
    targets = size.targets if size.jacobians else 6
    answers = {"kind": "outputs", "queries": int(size.values[0])}
    attacks = ["trajectory-inversion"]
    return [setting(deep, _INVERTED, release=answers, attacks=attacks, targets=targets)]


_INVERTED = "answers, inverted"


def _black_box_rows(size: Size) -> Sequence[Row]:
    rows = [
        success("only logits are released", 0.0110, "answers"),
        about("logits against weights", "only marginally worse", "answers", "weights", 1.5),
    ]
    if _asked(size):
        label = "only logits are released, by inverting the training"
        rows.append(inverted(label, _INVERTED, published=0.0110))
    return rows


BLACK_BOX = Part(
    paper=PAPER,
    name="blackbox",
    reference="section VI-C",
    title="answers instead of weights",
    sizes=sizes(
        replace(MNIST, values=(200,)),
        replace(LAPTOP_QUICK, values=(200,)),
        replace(SMOKE, values=(100,)),
    ),
    minutes=minutes("4 days", "3 min"),
    settings=_black_box,
    rows=_black_box_rows,
)


def _ood(size: Size) -> Sequence[Tables]:
    # Without a second data set of this shape, half of the classes stand for the first.
    own = {"classes": [0, 1, 2, 3, 4]} if size.other_data == size.data else {}
    other = {**own, "shadow_targets_from": size.other_data}
    return [
        setting(size, "in distribution", data=own),
        setting(size, "out of distribution", data=other),
    ]


OOD = Part(
    paper=PAPER,
    name="ood",
    reference="section VI-B b, Figure 6",
    title="shadow models from other data",
    sizes=sizes(
        replace(CIFAR, other_data="cifar-100"),
        replace(LAPTOP_CIFAR, other_data="cifar-100"),
        replace(SMOKE, shadow_targets=500, other_data="digits"),
    ),
    minutes=minutes("130 days", "3 min"),
    settings=_ood,
    rows=lambda size: [
        success("shadow targets from CIFAR-100", "–", "out of distribution"),
        about(
            "CIFAR-100 against CIFAR-10",
            "a negligible difference",
            "out of distribution",
            "in distribution",
            1.25,
        ),
    ],
    plots=lambda size: [
        Histogram(
            "spread",
            "Figure 6: errors of ridge over the targets, by where the shadow targets come from",
            *("mean squared error", "mse"),
            tuple((name, name, "ridge") for name in ("in distribution", "out of distribution")),
        )
    ],
    note="Each class of CIFAR-100 is given one of the ten labels, round and round.",
)

PARTS = (WIDTH, FIXED_SIZE, EPOCHS, OPTIMISERS, BLACK_BOX, OOD)
