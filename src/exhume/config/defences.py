"""Defences as tables: each is put around what the ones before it release."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from exhume.config.base import Count, Positive, Table

Share = Annotated[float, Field(gt=0, lt=1)]


class RoundingTable(Table):
    """Round every released number."""

    name: Literal["rounding"]
    decimals: Annotated[int, Field(ge=0, le=17)]


class OutputPerturbationTable(Table):
    """Gaussian noise on the parameters, calibrated to what one record can change."""

    name: Literal["output-perturbation"]
    noise_multiplier: Positive
    norm_bound: Positive


class NoiseTable(Table):
    """Gaussian noise of a stated size on every released number.

    A guarantee follows where something before it bounds what one record can change.
    """

    name: Literal["noise"]
    size: Positive


class GradientClippingTable(Table):
    """Scale the whole gradient down to ``norm`` where it is longer."""

    name: Literal["clipping"]
    norm: Positive


class RecordClippingTable(Table):
    """Scale every record's own gradient down to ``norm`` where it is longer."""

    name: Literal["record-clipping"]
    norm: Positive


class DPSGDTable(Table):
    """Clip every record's gradient to ``norm`` and add noise of norm · ``noise_multiplier``."""

    name: Literal["dp-sgd"]
    norm: Positive
    noise_multiplier: Positive


class PruningTable(Table):
    """Set the ``share`` of smallest entries to 0, of each parameter or of all together."""

    name: Literal["pruning"]
    share: Share
    scope: Literal["layer", "global"] = "layer"


class TopKTable(Table):
    """Send the ``count`` largest entries only."""

    name: Literal["top-k"]
    count: Count


class GradientDropoutTable(Table):
    """Set entries to 0 at random, each with probability ``rate``."""

    name: Literal["gradient-dropout"]
    rate: Share


class ActivationDropoutTable(Table):
    """Drop inputs of the fully connected layers at random, each with probability ``rate``."""

    name: Literal["activation-dropout"]
    rate: Share


class SignTable(Table):
    """Send signs only, and one size a parameter."""

    name: Literal["sign"]


class QuantisedTable(Table):
    """Send whole multiples of a step, 2^``bits`` levels a parameter, rounded at random or not."""

    name: Literal["quantised"]
    bits: Annotated[int, Field(ge=1, le=16)]
    stochastic: bool = False


class MixUpTable(Table):
    """Train on mixtures of two records, in shares drawn from Beta(``alpha``, ``alpha``)."""

    name: Literal["mixup"]
    alpha: Positive = 1.0


class LocalStepsTable(Table):
    """Send the change of several steps; ``different`` deals the records out over them."""

    name: Literal["local-steps"]
    steps: Annotated[int, Field(ge=2)]
    learning_rate: Positive
    different: bool = False


class SecureAggregationTable(Table):
    """Send the mean of several clients' releases only; the records are dealt to them."""

    name: Literal["secure-aggregation"]
    clients: Annotated[int, Field(ge=2)]


class RoundsTable(Table):
    """The same records are sent in several rounds: no defence, but what it must withstand."""

    name: Literal["rounds"]
    rounds: Annotated[int, Field(ge=2)]


DefenceTable = Annotated[
    RoundingTable
    | OutputPerturbationTable
    | NoiseTable
    | GradientClippingTable
    | RecordClippingTable
    | DPSGDTable
    | PruningTable
    | TopKTable
    | GradientDropoutTable
    | ActivationDropoutTable
    | SignTable
    | QuantisedTable
    | MixUpTable
    | LocalStepsTable
    | SecureAggregationTable
    | RoundsTable,
    Field(discriminator="name"),
]

DEFENCES: tuple[type[Table], ...] = get_args(get_args(DefenceTable)[0])
"""Every defence that a file can name."""
