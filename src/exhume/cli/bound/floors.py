"""``exhume bound floor`` and ``exhume bound rates``: how small a reconstruction error can be."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    from exhume.bounds.floors import Floor
    from exhume.bounds.floors.liu import Rates

_KNOWN = "Known facts about the release (one or more)"
_RECORD = "The record"
_DEFENCE = "Strength of each defence"


def _option(help_text: str, panel: str | None = None, name: str | None = None) -> Any:
    return typer.Option(*([name] if name else []), help=help_text, rich_help_panel=panel)


NoiseMultiplier = Annotated[
    float | None, _option("Noise of DP-SGD over its clipping norm.", _KNOWN)
]
SampleRate = Annotated[float, _option("Sampling probability of DP-SGD per step.", _KNOWN)]
Steps = Annotated[int, _option("Number of steps of DP-SGD.", _KNOWN)]
OrderTwo = Annotated[
    float | None,
    _option(
        "Rényi divergence of order 2 between the releases on two possible records.",
        _KNOWN,
        "--rdp-order-2",
    ),
]
Fisher = Annotated[
    float | None,
    _option("Fisher information leakage per coordinate: tr(JᵀJ) / (σ² · dimension).", _KNOWN),
]
Information = Annotated[
    float | None,
    _option("Mutual information of record and release, in nats. Needs --dimension.", _KNOWN),
]
Dimension = Annotated[int | None, _option("Number of values in a record.", _RECORD)]
ValueRange = Annotated[
    tuple[float, float], _option("Smallest and largest possible value.", _RECORD, "--range")
]
PriorStd = Annotated[
    float | None,
    _option("Standard deviation of a Gaussian prior (default: uniform on --range).", _RECORD),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

NetworkDimension = Annotated[int, _option("Number of values in a record (d).")]
Width = Annotated[int, _option("Hidden units of the two-layer network (m).")]
Batch = Annotated[int, _option("Records in the batch (B).")]
ObservationNoise = Annotated[
    float, _option("Noise on the gradient before any defence (σ). It scales the lower rates.")
]
Noise = Annotated[float | None, _option("Added noise (σ₀).", _DEFENCE)]
ClipRatio = Annotated[
    float | None, _option("The gradient's norm over the clipping threshold.", _DEFENCE)
]
Drop = Annotated[float | None, _option("Drop probability of dropout (p).", _DEFENCE)]
PrunedShare = Annotated[
    float | None,
    _option("Share of the Jacobian's squared norm in pruned coordinates (p̂).", _DEFENCE),
]
Clients = Annotated[int | None, _option("Number of clients in secure aggregation.", _DEFENCE)]

_STRENGTH = {
    "gradient noise": ("--noise",),
    "gradient clipping": ("--clip-ratio",),
    "DP-SGD": ("--noise", "--clip-ratio"),
    "secure aggregation": ("--clients",),
    "dropout": ("--drop",),
    "gradient pruning": ("--pruned-share",),
}
"""The options that state the strength of a defence; without any, the defence is not shown."""


def floor(
    noise_multiplier: NoiseMultiplier = None,
    sample_rate: SampleRate = 1.0,
    steps: Steps = 1,
    rdp_order_2: OrderTwo = None,
    fisher: Fisher = None,
    information: Information = None,
    dimension: Dimension = None,
    value_range: ValueRange = (0.0, 1.0),
    prior_std: PriorStd = None,
    as_json: Json = False,
) -> None:
    """Print the smallest possible mean squared error, and which attacks the floor binds."""
    from exhume.bounds.floors import fisher_floor, renyi_floor
    from exhume.bounds.floors.base import require_amount

    record = _Record(dimension, value_range, prior_std)
    floors: list[Floor] = []
    if noise_multiplier is not None:
        floors += _dp_sgd_floors(noise_multiplier, sample_rate, steps, record)
    elif sample_rate != 1.0 or steps != 1:
        raise InputError("--sample-rate and --steps need --noise-multiplier")
    if rdp_order_2 is not None:
        floors.append(
            renyi_floor(require_amount("--rdp-order-2", rdp_order_2), ranges=record.width)
        )
    if fisher is not None:
        floors.append(fisher_floor(require_amount("--fisher", fisher)))
    if information is not None:
        floors.append(record.entropy_floor(information))
    if not floors:
        raise InputError(
            "give what is known about the release: --noise-multiplier, --rdp-order-2, --fisher or "
            "--information"
        )
    if as_json:
        typer.echo(json.dumps({"floors": [_floor_fields(f) for f in floors]}, indent=2))
    else:
        _print_floors(floors)


def rates(
    dimension: NetworkDimension,
    width: Width,
    batch: Batch = 1,
    observation_noise: ObservationNoise = 1.0,
    noise: Noise = None,
    clip_ratio: ClipRatio = None,
    drop: Drop = None,
    pruned_share: PrunedShare = None,
    clients: Clients = None,
    as_json: Json = False,
) -> None:
    """Show how the error scales under seven gradient defences (Liu et al. 2024, Table 1).

    A defence is shown where its strength is given.
    """
    from exhume.bounds.floors.liu import Strengths, TwoLayerBatch, all_rates

    network = TwoLayerBatch(
        dimension=dimension, width=width, batch=batch, observation_noise=observation_noise
    )
    given = {
        "--noise": noise,
        "--clip-ratio": clip_ratio,
        "--drop": drop,
        "--pruned-share": pruned_share,
        "--clients": clients,
    }
    stated = {flag for flag, value in given.items() if value is not None}
    strengths = Strengths(
        noise=noise or 0.0,
        clip_ratio=1.0 if clip_ratio is None else clip_ratio,
        drop=drop or 0.0,
        pruned_share=pruned_share or 0.0,
        clients=1 if clients is None else clients,
    )
    table = all_rates(network, strengths)
    if as_json:
        typer.echo(json.dumps({"rates": [_rate_fields(r) for r in table]}, indent=2))
        return
    from rich.console import Console

    needs = {row.defence: _STRENGTH.get(row.defence, ()) for row in table}
    absent = [name for name, flags in needs.items() if flags and not stated.intersection(flags)]
    _print_rates([row for row in table if row.defence not in absent])
    if absent:
        wanted = [f"{name} ({' or '.join(needs[name])})" for name in absent]
        Console(highlight=False).print(f"Not shown, as no strength is given: {', '.join(wanted)}.")


class _Record:
    """The options about the record: its size, its values, its prior."""

    def __init__(
        self, dimension: int | None, value_range: tuple[float, float], prior_std: float | None
    ) -> None:
        from exhume.bounds.checks import require_count, require_positive
        from exhume.bounds.floors import uniform_entropy_power

        if dimension is not None:
            require_count("--dimension", dimension, at_least=1)
        self.dimension = dimension
        self.width = value_range[1] - value_range[0]
        self.entropy_power = uniform_entropy_power(*value_range)
        if prior_std is not None:
            self.entropy_power = require_positive("--prior-std", prior_std) ** 2

    def entropy_floor(self, information: float) -> Floor:
        from exhume.bounds.floors import entropy_floor

        if self.dimension is None:
            raise InputError("--information needs --dimension, the number of values in a record")
        return entropy_floor(
            information, dimension=self.dimension, entropy_power=self.entropy_power
        )


def _dp_sgd_floors(noise: float, rate: float, steps: int, record: _Record) -> list[Floor]:
    import dp_accounting as dp

    from exhume.bounds.checks import require_not_negative, require_probability, require_steps
    from exhume.bounds.floors import event_information, renyi_floor_of_event

    require_not_negative("--noise-multiplier", noise)
    require_probability("--sample-rate", rate)
    require_steps("--steps", steps, at_least=1)
    step = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    event = dp.SelfComposedDpEvent(step, steps)
    floors = [renyi_floor_of_event(event, ranges=record.width)]
    if record.dimension is not None:
        floors.append(record.entropy_floor(event_information(event)))
    return floors


def _print_floors(floors: list[Floor]) -> None:
    from rich.console import Console
    from rich.table import Table

    from exhume.bounds.floors import FloorBinds

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("MSE ≥", "RMSE ≥"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("binds", no_wrap=True)
    table.add_column("from")
    for one in floors:
        root = one.root()
        table.add_row(f"{one.value:.4g}", f"{root.value:.4g}", one.binds.value, one.method)
    console = Console(highlight=False)
    console.print(table)
    console.print()
    console.print("Mean squared error per coordinate, and its root.")
    if any(one.binds is FloorBinds.UNBIASED for one in floors):
        console.print("Unbiased attacks are right on average; an attack with a prior may be lower.")
    if any(one.binds is FloorBinds.ALL for one in floors):
        console.print("All attacks: on average over records drawn from the prior.")
    elif all(one.binds is FloorBinds.UNBIASED for one in floors):
        console.print("For a floor that binds all attacks, give --dimension and")
        console.print("--noise-multiplier or --information.")
    for note in sorted({one.note for one in floors if math.isinf(one.value) and one.note}):
        console.print(f"Infinite: {note}.")


def _print_rates(table: Sequence[Rates]) -> None:
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column("defence", no_wrap=True)
    for heading in ("upper", "× none", "lower", "× none"):
        grid.add_column(heading, justify="right", no_wrap=True)
    grid.add_column("from")
    none = table[0]
    for row in table:
        grid.add_row(
            row.defence,
            _shown(row.upper),
            _shown(None if row.upper is None else _over(row.upper, none.upper or 0.0)),
            _shown(row.lower),
            _shown(_over(row.lower, none.lower)),
            f"{row.upper_source}, {row.lower_source}",
        )
    console = Console(highlight=False)
    console.print(grid)
    console.print()
    console.print(
        "Rates of ‖x - x̂‖, up to constants and logarithms: for comparison, not as errors."
    )
    console.print("upper: a tensor attack comes this close.")
    console.print(f"lower: no attack comes closer; binds {none.binds.value}.")
    for text in dict.fromkeys(text for row in table for text in row.violated):
        rows = [row.defence for row in table if text in row.violated]
        whose = "" if rows[0] == none.defence else f" ({', '.join(rows)})"
        console.print(f"Not proven here{whose}: the upper rate needs {text}.")


def _over(value: float, base: float) -> float | None:
    return value / base if base > 0 else None


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _floor_fields(one: Floor) -> dict[str, Any]:
    """JSON has no infinity: an infinite ``value`` is null, and ``infinite`` is true."""
    return {
        "value": _finite(one.value),
        "infinite": math.isinf(one.value),
        "unit": one.unit.value,
        "binds": one.binds.value,
        "method": one.method,
        "note": one.note,
    }


def _rate_fields(row: Rates) -> dict[str, Any]:
    return {
        "defence": row.defence,
        "upper": row.upper,
        "lower": row.lower,
        "lower_binds": row.binds.value,
        "upper_source": row.upper_source,
        "lower_source": row.lower_source,
        "assumptions": row.assumptions,
        "violated": list(row.violated),
        "up_to_a_constant": True,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
