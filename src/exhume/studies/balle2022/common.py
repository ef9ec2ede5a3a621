"""The common base of the parts of Balle et al. 2022: section V's defaults, and the scales."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exhume.studies.balle2022 import published
from exhume.studies.claims import Claim, ClaimRow, Needs, versus
from exhume.studies.part import Part, Size, Tables
from exhume.studies.plots import Histogram, Lines, PlotLine, of_attacks
from exhume.studies.reading import StudyReading


@dataclass(frozen=True, kw_only=True)
class InformedSize(Size):
    """The size of a study in which all records but one are known.

    ``fixed_set`` is the number of records that the adversary knows. ``phi_epochs`` and
    ``phi_width`` belong to the reconstructor network φ, ``jacobians`` and ``retries`` to trajectory
    inversion. ``inverted`` is the number of targets of trajectory inversion where it has a setting
    of its own (0: none, and it is run on all targets).
    """

    fixed_set: int = 10_000
    model: str = "mlp"
    epochs: int = 100
    phi_epochs: int = 100
    phi_width: int = 1000
    jacobians: int = 60
    retries: int = 6
    inverted: int = 0
    other_data: str = ""

    def describe(self) -> str:
        """Return the numbers of known records, shadow models and targets."""
        parts = [f"{self.fixed_set:,} known records", f"{self.shadow_targets:,} shadow models"]
        return ", ".join([*parts, super().describe()])


@dataclass(frozen=True, kw_only=True)
class InformedPart(Part[InformedSize]):
    """One table or figure of Balle et al. 2022."""

    paper: str = "balle2022"
    attacks: tuple[str, ...] = ("reconstructor", "ridge", "trajectory-inversion")


MNIST = InformedSize(data="mnist", fixed_set=10_000, shadow_targets=59_000, targets=1000)
"""Table V, the column of MNIST."""
CIFAR = InformedSize(
    data="cifar-10",
    fixed_set=5000,
    shadow_targets=54_000,
    targets=1000,
    model="cnn",
    learning_rate=0.01,
    phi_epochs=1000,
)
"""Table V, the column of CIFAR-10."""
MNIST_BOTH = replace(MNIST, inverted=200)
"""The same, where trajectory inversion, which takes a minute per target, has fewer of them."""
LAPTOP = InformedSize(
    data="mnist",
    fixed_set=300,
    shadow_targets=1000,
    targets=32,
    phi_epochs=40,
    phi_width=500,
    jacobians=0,
    retries=3,
)
LAPTOP_MANY = replace(LAPTOP, shadow_targets=8000, targets=64, phi_width=1000)
"""Enough shadow models for φ to beat the oracle; parts with this size share them."""
LAPTOP_QUICK = replace(LAPTOP, shadow_targets=500, targets=16, retries=1)
"""For parts with many settings."""
LAPTOP_CIFAR = replace(
    LAPTOP,
    data="cifar-10",
    fixed_set=200,
    shadow_targets=1000,
    targets=32,
    learning_rate=0.01,
    phi_epochs=8,
    phi_width=300,
)
"""A fully connected network instead of convolutions, whose training takes ten seconds."""
SMOKE = InformedSize(
    data="digits",
    fixed_set=60,
    shadow_targets=600,
    targets=10,
    epochs=20,
    phi_epochs=40,
    phi_width=150,
    jacobians=0,
    retries=1,
)
SLOW = replace(SMOKE, shadow_targets=100, targets=8, epochs=5, phi_epochs=40)
"""For shadow models with their own start, order or noise, which are trained one at a time."""

MANY = Needs("shadow_targets", 8000, "the paper's network needs this many to beat the oracle")
"""Figure 5c: from 8,000 shadow models on, φ is better than the nearest neighbour on average."""
LEARNED = (("reconstructor", "φ (RecoNN)"), ("ridge", "ridge"))
"""The attacks that learn from shadow models, with their names in figures."""
LEARNED_ONLY = ("reconstructor", "ridge")
INVERTED = "default, inverted"
"""The default setting on fewer targets, for trajectory inversion alone."""
SECOND = ("3",)
"""The second layer of a network with one hidden layer."""


def setting(
    size: InformedSize,
    name: str,
    *,
    data: Mapping[str, Any] | None = None,
    release: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    knowledge: Mapping[str, Any] | None = None,
    layers: tuple[str, ...] | None = None,
    shadows: int | None = None,
    **others: Any,
) -> Tables:
    """Return section V's default setting with the changes of a part.

    ``layers`` and ``shadows`` restrict the layers and the shadow models of the learned attacks.
    """
    network: dict[str, Any] = {"model": size.model}
    if size.model == "mlp":
        network["hidden"] = [size.width]
    rate, momentum, epochs = size.learning_rate, size.momentum, size.epochs
    trained = {"learning_rate": rate, "momentum": momentum, "epochs": epochs, **(training or {})}
    if trained.get("optimiser") == "adam":
        del trained["momentum"]
    learning: dict[str, Any] = {"shadows": shadows or max(8, size.shadow_targets)}
    if layers is not None:
        learning["layers"] = list(layers)
    phi = {"epochs": size.phi_epochs, "hidden": [size.phi_width, size.phi_width]}
    return {
        "name": name,
        "data": {
            "name": size.data,
            "whole": size.data in ("mnist", "cifar-10"),
            "fixed_set": size.fixed_set,
            "shadow_targets": size.shadow_targets,
            **(data or {}),
        },
        "release": {**network, **(release or {})},
        "knowledge": {"training": trained, **(knowledge or {})},
        "options": {
            "reconstructor": {**learning, **phi},
            "ridge": learning,
            "trajectory-inversion": {
                "jacobians": size.jacobians,
                "retries": size.retries,
                "retrainings": 6 if size.jacobians else 0,
            },
        },
        **others,
    }


def default(size: InformedSize) -> Sequence[Tables]:
    """Return section V's default setting, and trajectory inversion's own if it has one."""
    if not size.inverted:
        return [setting(size, "default")]
    few = min(size.inverted, size.targets)
    return [
        setting(size, "default", attacks=LEARNED_ONLY),
        setting(size, INVERTED, attacks=["trajectory-inversion"], targets=few),
    ]


def mse(name: str) -> StudyReading:
    """Return the mean squared error over the targets of a setting."""
    return StudyReading("mse.mean", name)


def oracle(name: str) -> StudyReading:
    """Return the mean squared error of the nearest known record."""
    return StudyReading("oracle", name)


def threshold(size: InformedSize, name: str) -> StudyReading | float:
    """Return the error below which an attack succeeds: one per data set, where there is a pool.

    That is the mean squared error of the nearest record in the largest pool there is. A part's own
    pool is smaller, and its nearest records are farther away.
    """
    return published.LARGEST_POOL.get(size.data) or oracle(name)


def success(
    size: InformedSize,
    label: str,
    published: float | str,
    name: str,
    *,
    needs: Needs | None = MANY,
) -> ClaimRow:
    """Return a row where the attack succeeds: it is better than the nearest record of all."""
    says = "better than the nearest record"
    claim = Claim(mse(name), "below", threshold(size, name), says, needs=needs)
    return ClaimRow(label, published, claim)


def failure(
    size: InformedSize, label: str, published: float | str, name: str, *, works_on: str
) -> ClaimRow:
    """Return a row where the attack fails: it is no better than the nearest record of all.

    This is evidence only if the attack succeeds in the setting ``works_on``.
    """
    says = "no better than the nearest record"
    given = success(size, "", "", works_on).claim
    return ClaimRow(
        label, published, Claim(mse(name), "above", threshold(size, name), says, given=given)
    )


def about(
    size: InformedSize,
    label: str,
    published: float | str,
    name: str,
    other: str,
    factor: float = 1.5,
) -> ClaimRow:
    """Return a row where the attack does about as well as in another setting, where it works."""
    given = success(size, "", "", other).claim
    says = "about the same"
    claim = Claim(mse(name), "about", mse(other), says, factor=factor, given=given)
    return ClaimRow(label, published, claim)


def worse(
    size: InformedSize, label: str, published: float | str, name: str, other: str
) -> ClaimRow:
    """Return a row where the attack does worse than in another setting, where it works."""
    given = success(size, "", "", other).claim
    return ClaimRow(
        label, published, Claim(mse(name), "above", mse(other), "a larger error", given=given)
    )


def inverted(label: str, name: str, *, published: float) -> ClaimRow:
    """Return a row for trajectory inversion, which is not in the paper, against its best figure."""
    attack = "trajectory-inversion"
    says = "without shadow models, better than the published figure"
    reading = StudyReading("mse.mean", name, attack)
    return versus(label, "–", reading, "below", published, says, attack=attack)


def curves(
    name: str,
    caption: str,
    across: str,
    points: Sequence[tuple[float, str]],
    *,
    quantity: str = "mse.mean",
    up: str = "mean squared error",
    log_x: bool = True,
) -> Lines:
    """Return a figure of the learned attacks over settings at their places, with the oracle."""
    lines = of_attacks(LEARNED, points, quantity)
    if quantity == "mse.mean":
        nearest = tuple((x, oracle(setting)) for x, setting in points)
        lines += (PlotLine("nearest known record", nearest, dashed=True),)
    return Lines(name, caption, across, up, lines, log_x=log_x)


def spread(caption: str, attack: str, *settings: str, name: str = "spread") -> Histogram:
    """Return a figure of an attack's squared errors over the targets, by setting."""
    groups = tuple((setting, setting, attack) for setting in settings)
    return Histogram(name, caption, "mean squared error", "mse", groups)


def to_first(values: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return the first value with each of the others."""
    return [(values[0], value) for value in values[1:]]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One number of the setting varied: a setting and a row per value, rows per pair, a curve.

    ``name`` and ``label`` are formats of a value, ``pair`` is one of two values. ``change`` gives
    the changes of a value in section V's default setting, ``published`` the paper's figures by
    value, or its statement about all of them. ``compared`` makes a row that compares the second
    value's setting with the first's, for all ``pairs``; ``expected`` is the paper's statement about
    them.
    """

    name: str
    change: Callable[[int], Tables]
    label: str = ""
    published: Mapping[int, float] | str = "–"
    pair: str
    pairs: Callable[[Sequence[int]], Iterable[tuple[int, int]]] = to_first
    compared: Callable[[InformedSize, str, str, str, str], ClaimRow] = about
    expected: str
    caption: str = ""
    across: str = ""
    log_x: bool = True

    def settings(self, size: InformedSize) -> list[Tables]:
        """Return a setting per value."""
        return [setting(size, self.name.format(n), **self.change(n)) for n in _whole(size)]

    def rows(self, size: InformedSize) -> list[ClaimRow]:
        """Return a row per value, then a row per pair."""
        found = self.published
        figures = {n: found if isinstance(found, str) else found.get(n, "–") for n in _whole(size)}
        label = self.label or self.name
        each = [success(size, label.format(n), f, self.name.format(n)) for n, f in figures.items()]
        two = [
            self.compared(
                size,
                *(self.pair.format(one, other), self.expected),
                *(self.name.format(other), self.name.format(one)),
            )
            for one, other in self.pairs(_whole(size))
        ]
        return [*each, *two]

    def plots(self, size: InformedSize) -> list[Lines]:
        """Return the errors over the values."""
        points = [(n, self.name.format(int(n))) for n in size.values]
        return [curves("curve", self.caption, self.across, points, log_x=self.log_x)]


def _whole(size: InformedSize) -> list[int]:
    return [int(value) for value in size.values]
