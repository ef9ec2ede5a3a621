"""The options that the bound commands share, each with its help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_MECHANISM = "The mechanism"
_GUARANTEE = "Or its privacy guarantee"
_PRIOR = "Success of a blind guess (kappa, or a prior that determines it)"

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

NoiseMultiplier = Annotated[
    float | None,
    typer.Option(
        help="Standard deviation of the noise over the clipping norm.", rich_help_panel=_MECHANISM
    ),
]
SampleRate = Annotated[
    float | None,
    typer.Option(
        help="Probability that a record takes part in a step (default 1: every step).",
        rich_help_panel=_MECHANISM,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(help="Number of steps (default 1).", rich_help_panel=_MECHANISM),
]
SolveFor = Annotated[
    str | None,
    typer.Option(
        help="Find this instead: noise-multiplier, for a given --gamma.",
        rich_help_panel=_MECHANISM,
    ),
]
Gamma = Annotated[
    float | None,
    typer.Option(
        help="The highest acceptable success probability, with --solve-for.",
        rich_help_panel=_MECHANISM,
    ),
]

Epsilon = Annotated[
    float | None,
    typer.Option(help="Epsilon of (epsilon, delta)-DP.", rich_help_panel=_GUARANTEE),
]
Delta = Annotated[
    float | None,
    typer.Option(help="Delta of (epsilon, delta)-DP (default 0).", rich_help_panel=_GUARANTEE),
]
Neighbours = Annotated[
    str | None,
    typer.Option(
        help="Neighbours of --epsilon: remove (a record is present or absent; default) or replace.",
        rich_help_panel=_GUARANTEE,
    ),
]
Rho = Annotated[
    float | None,
    typer.Option(help="Rho of zero-concentrated DP.", rich_help_panel=_GUARANTEE),
]
RdpOrder = Annotated[
    float | None,
    typer.Option(help="Order of Rényi DP, above 1 (may be inf).", rich_help_panel=_GUARANTEE),
]
RdpEpsilon = Annotated[
    float | None,
    typer.Option(help="Epsilon of Rényi DP at that order.", rich_help_panel=_GUARANTEE),
]

Kappa = Annotated[
    float | None,
    typer.Option(help="Success of the best blind guess, in [0, 1].", rich_help_panel=_PRIOR),
]
Prior = Annotated[
    str | None,
    typer.Option(help="gaussian, ball, finite, product, samples or pool.", rich_help_panel=_PRIOR),
]
Eta = Annotated[
    float | None,
    typer.Option(
        help="Euclidean distance at which a reconstruction counts as a success.",
        rich_help_panel=_PRIOR,
    ),
]
Dimension = Annotated[
    int | None,
    typer.Option(help="Number of values in a record (gaussian, ball).", rich_help_panel=_PRIOR),
]
Sigma = Annotated[
    float | None,
    typer.Option(help="Standard deviation of a coordinate (gaussian).", rich_help_panel=_PRIOR),
]
Radius = Annotated[
    float | None,
    typer.Option(help="Radius of the ball (ball).", rich_help_panel=_PRIOR),
]
Size = Annotated[
    int | None,
    typer.Option(help="Number of equally likely records (finite).", rich_help_panel=_PRIOR),
]
Probabilities = Annotated[
    str | None,
    typer.Option(
        help="Probabilities of the records, comma-separated: 0.5,0.3,0.2 (finite).",
        rich_help_panel=_PRIOR,
    ),
]
AttributeKappas = Annotated[
    str | None,
    typer.Option(
        help="Kappa of each attribute, comma-separated: 0.5,0.1 (product).", rich_help_panel=_PRIOR
    ),
]
AtLeast = Annotated[
    int | None,
    typer.Option(
        help="Number of attributes that must be right (product; default all).",
        rich_help_panel=_PRIOR,
    ),
]
File = Annotated[
    Path | None,
    typer.Option(
        help=".npy, or .npz with an array x: records drawn from the prior (samples), "
        "or all possible records (pool).",
        rich_help_panel=_PRIOR,
    ),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Confidence of the bound on kappa (samples; default 0.95).", rich_help_panel=_PRIOR
    ),
]
SampleMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="mean-distance (default) or doubled-radius (samples, pool).",
        rich_help_panel=_PRIOR,
    ),
]
