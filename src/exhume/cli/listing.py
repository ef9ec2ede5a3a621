"""``exhume list``: the names that a TOML file can use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from exhume.protocol.errors import InputError
from exhume.protocol.names import no_such

if TYPE_CHECKING:
    from exhume.protocol.attack import Attack


class ReleaseKind(StrEnum):
    """What may be released, as ``release.kind`` says it, or as ``release.estimator``."""

    WEIGHTS = "weights"
    OUTPUTS = "outputs"
    GRADIENT = "gradient"
    UPDATE = "update"
    TRANSCRIPT = "transcript"
    ESTIMATOR = "estimator"


_MODELS = (ReleaseKind.WEIGHTS, ReleaseKind.OUTPUTS)
_BATCHES = (ReleaseKind.GRADIENT, ReleaseKind.UPDATE)
_EVERY = tuple(ReleaseKind)
_TRAINED = tuple(kind for kind in ReleaseKind if kind is not ReleaseKind.ESTIMATOR)
_THREATS = {
    "linear": ("linear models", _MODELS),
    "informed": ("networks, all other records known", _MODELS),
    "estimators": ("fitted scikit-learn estimators", (ReleaseKind.ESTIMATOR,)),
    "gradients": ("gradients and updates", _BATCHES),
    "weights_only": ("weights alone, no record known", (ReleaseKind.WEIGHTS,)),
}
"""The folders of attacks: what the adversary holds."""


@dataclass(frozen=True)
class ListedName:
    """A name that a file can use, its description, and the kinds of release that it applies to."""

    kind: str
    group: str
    name: str
    releases: tuple[str, ...]
    text: str = ""


def list_all(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="Describe what has these words in its name or group."),
    ] = None,
    release: Annotated[
        ReleaseKind | None, typer.Option(help="Only what goes with this kind of release.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the attacks, defences, models, metrics and data sets that a TOML file can name.

    Words, such as "defences" or "geiping", describe what they name.
    """
    every = [one for one in listed() if release is None or release in one.releases]
    found = _matching(every, words or [])
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=1, ensure_ascii=False))
    elif words:
        _describe(found)
    else:
        _overview(found)


def listed() -> tuple[ListedName, ...]:
    """Return every name that a file can use."""
    from exhume.attacks.catalogue import ATTACKS
    from exhume.config import NETWORKS, OPTIMISERS, SCHEDULES, listed_defences
    from exhume.data import names as data_names
    from exhume.metrics.names import names as metric_names
    from exhume.models import Activation
    from exhume.protocol.defence import Place
    from exhume.training import Family

    goes_with = {Place.ANY: _EVERY, Place.PARAMETERS: _MODELS}
    return (
        *(_attack(attack) for attack in ATTACKS),
        *(
            ListedName(
                *("defences", one.place.value, one.name),
                goes_with.get(one.place, _BATCHES),
                _first_line(one),
            )
            for one in listed_defences()
        ),
        *_plain("models", "linear", ["ridge", *(family.value for family in Family)], _MODELS),
        *_plain("models", "networks", (*NETWORKS, "package.module:function"), _TRAINED),
        *_plain("models", "activations", (activation.value for activation in Activation), _TRAINED),
        *_plain("training", "optimisers", OPTIMISERS, (*_MODELS, ReleaseKind.UPDATE)),
        *_plain("training", "schedules", SCHEDULES, _MODELS),
        *_plain("metrics", "", metric_names(), _EVERY),
        *_plain("data sets", "", data_names(), _EVERY),
    )


def _attack(attack: type[Attack]) -> ListedName:
    from exhume.protocol.attack import ThreatModel

    # The folder says what the adversary holds: exhume.attacks.<folder>.
    folder = attack.__module__.split(".")[2]
    group, releases = _THREATS.get(folder, ("blind guesses", _EVERY))
    if attack.made_for is ThreatModel.TRANSCRIPT:
        group, releases = "steps of private training", (ReleaseKind.TRANSCRIPT,)
    return ListedName("attacks", group, attack.name, releases, _first_line(attack))


def _plain(
    kind: str, group: str, names: Iterable[str], releases: tuple[ReleaseKind, ...]
) -> list[ListedName]:
    return [ListedName(kind, group, name, releases) for name in names]


def _first_line(subject: type) -> str:
    return (subject.__doc__ or "").strip().splitlines()[0].replace("``", "")


def _matching(every: Sequence[ListedName], words: Sequence[str]) -> list[ListedName]:
    """Return what has all words in its kind, group or name; if nothing has, in its description."""

    def holds(*texts: str) -> bool:
        text = " ".join(texts).lower()
        return all(word.lower().replace("defens", "defenc") in text for word in words)

    named = [one for one in every if holds(one.kind, one.group, one.name)]
    found = named or [one for one in every if holds(one.kind, one.group, one.name, one.text)]
    if not found:
        raise InputError(no_such("name or group", " ".join(words), [one.name for one in every]))
    return found


def _overview(found: Sequence[ListedName]) -> None:
    """Print all names, in a line for each group."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(max_width=25)
    table.add_column(ratio=1)
    for kind in dict.fromkeys(one.kind for one in found):
        own = [one for one in found if one.kind == kind]
        table.add_row(f"[bold]{kind}[/]", "")
        for group in dict.fromkeys(one.group for one in own):
            names = ", ".join(one.name for one in own if one.group == group)
            table.add_row(Padding(group, (0, 0, 0, 1)), names)
    Console(highlight=False).print(table)
    typer.echo("\n`exhume list WORD` describes what has the word in its name or group, such as")
    typer.echo("`exhume list defences`; --release gradient shows what goes with a gradient.")
    typer.echo("`exhume audit --show-example` prints an example file.")


def _describe(found: Sequence[ListedName]) -> None:
    """Print each name with its kind and what it does."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), show_header=False)
    for one in found:
        table.add_row(one.kind.removesuffix("s"), one.name, one.text or one.group)
    Console(highlight=False).print(table)
