"""``exhume list``: what there is to choose from."""

from __future__ import annotations

from typing import get_args

import typer


def list_all() -> None:
    """List the attacks, defences, models, metrics and data sets that a TOML file can name."""
    from rich.console import Console
    from rich.table import Table

    from exhume.audit.names import known_attacks
    from exhume.config import NETWORKS
    from exhume.config.defences import DEFENCES
    from exhume.data import names as data_names
    from exhume.metrics.names import names as metric_names
    from exhume.models import Activation
    from exhume.training import Family

    table = Table(box=None, padding=(0, 1), show_header=False)
    for attack in known_attacks():
        kind = "baseline" if attack.baseline else "attack"
        table.add_row(kind, attack.name, _first_line(type(attack)))
    for defence in DEFENCES:
        (name,) = get_args(defence.model_fields["name"].annotation)
        table.add_row("defence", name, _first_line(defence))
    table.add_row("models", "", ", ".join(["ridge", *(family.value for family in Family)]))
    table.add_row("networks", "", f"{', '.join(NETWORKS)}, or package.module:function")
    table.add_row("activations", "", ", ".join(activation.value for activation in Activation))
    table.add_row("metrics", "", ", ".join(metric_names()))
    table.add_row("data sets", "", ", ".join(data_names()))
    Console(highlight=False).print(table)
    typer.echo("\n`exhume audit --show-example` prints a file to start from.")


def _first_line(subject: type) -> str:
    return (subject.__doc__ or "").strip().splitlines()[0].replace("``", "")
