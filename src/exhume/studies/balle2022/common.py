"""What the parts of Balle et al. 2022 share: section V's defaults, and the sizes of the scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from exhume.studies.base import Size, Tables
from exhume.studies.claims import Claim, Needs, Row
from exhume.studies.plots import Line, Lines, of_attacks
from exhume.studies.run import Reading

PAPER = "balle2022"

MNIST = Size(data="mnist", fixed_set=10_000, shadow_targets=59_000, targets=1000)
"""Table V, the column of MNIST."""
CIFAR = Size(
    data="cifar-10",
    fixed_set=5000,
    shadow_targets=54_000,
    targets=1000,
    model="cnn",
    learning_rate=0.01,
    phi_epochs=1000,
)
"""Table V, the column of CIFAR-10."""
LAPTOP = Size(
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
"""As many shadow models as φ needs to beat the oracle; the parts that have it share them."""
LAPTOP_QUICK = replace(LAPTOP, shadow_targets=500, targets=16, retries=1)
"""For parts that go through many settings."""
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
"""A fully connected network in place of the convolutions: one of those takes ten seconds."""
SMOKE = Size(
    data="digits",
    fixed_set=60,
    shadow_targets=1000,
    targets=10,
    epochs=20,
    phi_epochs=60,
    phi_width=150,
    jacobians=0,
    retries=1,
)
SLOW = replace(SMOKE, shadow_targets=150, targets=8, epochs=5, phi_epochs=40)
"""Where every shadow model is trained alone: its start, order or noise is its own."""

MANY = Needs("shadow_targets", 8000, "the paper's network needs as many to beat the oracle")
"""Figure 5c: from 8,000 shadow models on, φ is better than the nearest neighbour on average."""


LEARNED = (("reconstructor", "φ (RecoNN)"), ("ridge", "ridge"))
"""The attacks that learn from shadow models, with their names in figures."""


def setting(
    size: Size,
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
    """Return section V's default setting with whatever a part changes in it.

    ``layers`` and ``shadows`` restrict what the learned attacks read and learn from.
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
            "trajectory-inversion": {"jacobians": size.jacobians, "retries": size.retries},
        },
        **others,
    }


def mse(name: str) -> Reading:
    """The mean squared error over the targets of a setting."""
    return Reading("mse.mean", name)


def oracle(name: str) -> Reading:
    """The mean squared error of the nearest known record."""
    return Reading("oracle", name)


def curves(
    name: str,
    caption: str,
    across: str,
    points: Sequence[tuple[float, str]],
    *,
    quantity: str = "mse.mean",
    up: str = "mean squared error",
    log_x: bool = False,
) -> Lines:
    """A figure of the learned attacks over settings at their places, beside the oracle."""
    nearest = tuple((x, oracle(setting)) for x, setting in points)
    beside = (Line("nearest known record", nearest, dashed=True),)
    lines = of_attacks(LEARNED, points, quantity)
    if quantity == "mse.mean":
        lines += beside
    return Lines(name, caption, across, up, lines, log_x=log_x)


def success(label: str, published: float | str, name: str, *, needs: Needs | None = MANY) -> Row:
    """A row of which the paper says that the attack succeeds: better than the nearest record."""
    says = "better than the nearest known record"
    return Row(
        label, published, mse(name), Claim(mse(name), "below", oracle(name), says, needs=needs)
    )


def failure(label: str, published: float | str, name: str, *, works_on: str) -> Row:
    """A row of which the paper says that the attack fails: no attack may do better.

    Only where one does succeed in the setting ``works_on`` does that say anything.
    """
    says = "no better than the nearest known record"
    given = success("", "", works_on).claim
    claim = Claim(mse(name), "above", oracle(name), says, every=True, given=given)
    return Row(label, published, mse(name), claim)


def inverted(label: str, name: str, *, published: float) -> Row:
    """A row for trajectory inversion, which the paper does not have, against its best figure."""
    attack = "trajectory-inversion"
    reading = Reading("mse.mean", name, attack)
    says = "without shadow models, better than the published figure"
    claim = Claim(reading, "below", published, says, attacks=(attack,))
    return Row(label, "–", reading, claim)
