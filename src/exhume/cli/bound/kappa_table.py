"""The ceiling if the success of a blind guess is not given: a small table over kappa."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import dp_accounting

    from exhume.bounds import Ceiling

KAPPAS = (0.5, 0.1, 0.01, 0.001, 1e-6)
DELTA = 1e-5
"""The default δ for reporting ε: that of Opacus' examples."""

HOW_TO_CHOOSE = (
    "kappa is the success of a blind guess, made without the release. Choose it by what the "
    "adversary knows. With a list of K possible records, kappa is 1/K (0.5 for a yes or no, as in "
    "a membership test). A guess seldom comes close to a picture or a row: kappa is then usually "
    "far below 0.001. Bound it from a file of similar records with --prior samples --file "
    "RECORDS.npy --eta DISTANCE. Then give --kappa."
)


@dataclass(frozen=True)
class PrivacyEpsilon:
    """What a mechanism guarantees in the usual terms."""

    epsilon: float
    delta: float


def privacy_epsilon(event: dp_accounting.DpEvent, delta: float | None) -> PrivacyEpsilon | None:
    """Return ε at a δ from the privacy-loss distribution, as Opacus' accountants report it."""
    import math

    from exhume.bounds import privacy_loss

    at = DELTA if delta is None else delta
    loss = privacy_loss(event)
    epsilon = math.inf if loss is None else float(loss.epsilon(at))
    return PrivacyEpsilon(epsilon, at) if math.isfinite(epsilon) else None


def show_table(
    ceiling_at: Callable[[float], Ceiling | None], epsilon: PrivacyEpsilon | None, as_json: bool
) -> None:
    """Print the ceiling at each kappa, or say that there is none."""
    found = [(kappa, ceiling_at(kappa)) for kappa in KAPPAS]
    if as_json:
        gammas = [
            {"kappa": kappa, "gamma": 1.0 if one is None else one.gamma} for kappa, one in found
        ]
        usual = None if epsilon is None else {"epsilon": epsilon.epsilon, "delta": epsilon.delta}
        typer.echo(json.dumps({"gamma": gammas, "privacy": usual, "how": HOW_TO_CHOOSE}))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    if found[0][1] is None:
        console.print("Proven limit: none. This is not differentially private.")
        return
    table = Table("kappa", "gamma", "times", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for kappa, one in found:
        assert one is not None
        table.add_row(f"{kappa:g}", f"{one.gamma:.5g}", f"{one.gamma / kappa:.3g}")
    console.print(table)
    console.print()
    if epsilon is not None:
        console.print(f"epsilon {epsilon.epsilon:.4g} at delta {epsilon.delta:g}")
        console.print()
    console.print(
        "No attack succeeds with a probability above gamma, where a blind guess succeeds with "
        f"kappa. {HOW_TO_CHOOSE}"
    )
