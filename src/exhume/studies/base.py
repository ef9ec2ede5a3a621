"""A part of a paper as a declared audit: settings in, published figures beside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from exhume.errors import InputError
from exhume.studies.claims import Row
from exhume.studies.plots import Plot

if TYPE_CHECKING:
    from exhume.config import Config

Tables = dict[str, Any]
"""One ``[[setting]]`` as its TOML tables."""


class Scale(StrEnum):
    """How large a study is run: in a minute, in a quarter of an hour, or as in the paper."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class Size:
    """What a scale decides, and what ``--set`` may change.

    ``values`` are what the part goes through (widths, epochs, noise multipliers …),
    ``phi_epochs`` and ``phi_width`` belong to the reconstructor network φ, ``jacobians``
    and ``retries`` to trajectory inversion.
    """

    data: str = "mnist"
    fixed_set: int = 10_000
    shadow_targets: int = 0
    targets: int = 1000
    model: str = "mlp"
    width: int = 10
    learning_rate: float = 0.2
    momentum: float = 0.9
    epochs: int = 100
    phi_epochs: int = 100
    phi_width: int = 1000
    jacobians: int = 60
    retries: int = 6
    membership: int = 0
    authenticity: int = 0
    values: tuple[float, ...] = ()
    other_data: str = ""

    def changed(self, texts: Sequence[str]) -> Size:
        """Return the size with ``key=value`` texts applied; values are read as the key's are."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        found: dict[str, Any] = {}
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals or key not in known:
                raise InputError(
                    f"--set {text}: give key=value with one of the keys {', '.join(known)}"
                )
            found[key] = _read(key, value, known[key])
        return replace(self, **found)

    def plain(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def sizes(paper: Size, laptop: Size, smoke: Size) -> Mapping[Scale, Size]:
    """Return the three sizes by scale."""
    return {Scale.PAPER: paper, Scale.LAPTOP: laptop, Scale.SMOKE: smoke}


def minutes(paper: str, laptop: str, smoke: str = "under 1 min") -> Mapping[Scale, str]:
    """Return the expected times on two cores by scale."""
    return {Scale.PAPER: paper, Scale.LAPTOP: laptop, Scale.SMOKE: smoke}


def _read(key: str, text: str, like: object) -> object:
    try:
        if isinstance(like, tuple):
            return tuple(float(part) for part in text.split(",") if part)
        if isinstance(like, int | float):
            return type(like)(text)
    except ValueError:
        kind = "numbers, one after the other with commas" if isinstance(like, tuple) else "a number"
        raise InputError(f"--set {key}={text}: {key} takes {kind}") from None
    return text


@dataclass(frozen=True)
class Picture:
    """Which reconstructions to show: those of ``attacks`` on the settings, beside the targets."""

    caption: str
    settings: tuple[str, ...]
    attacks: tuple[str, ...]
    order: str = "first"
    """``first`` shows the first targets, ``extremes`` the best and worst of the first attack."""


@dataclass(frozen=True)
class Embedding:
    """Which settings' released models to show as points, ``count`` of them, by t-SNE."""

    caption: str
    settings: tuple[str, ...]
    count: int


@dataclass(frozen=True, kw_only=True)
class Part:
    """One table or figure of a paper.

    ``settings`` makes the ``[[setting]]`` tables of a size, ``rows`` what the paper says of them,
    with the criterion that turns figures into a verdict. ``minutes`` is the expected time on two
    cores. The first of ``attacks`` is the paper's own.
    """

    paper: str
    name: str
    reference: str
    title: str
    sizes: Mapping[Scale, Size]
    minutes: Mapping[Scale, str]
    settings: Callable[[Size], Sequence[Tables]]
    rows: Callable[[Size], Sequence[Row]]
    attacks: tuple[str, ...] = ("reconstructor", "ridge", "trajectory-inversion")
    metrics: tuple[str, ...] = ("mse",)
    closeness: float = 1.0
    influence: bool = False
    note: str = ""
    pictures: tuple[Picture, ...] = field(default=())
    plots: Callable[[Size], Sequence[Plot]] = lambda size: ()
    embedding: Callable[[Size], Embedding] | None = None

    def size(self, scale: Scale, changes: Sequence[str] = ()) -> Size:
        """Return a scale's size, with changes as ``--set`` gives them."""
        return self.sizes[scale].changed(changes)

    def config(self, size: Size, *, seed: int) -> Config:
        """Return the audit that the part is at this size."""
        from exhume.config.reading import from_tables

        tables = {
            "setting": [self._fitted(tables) for tables in self.settings(size)],
            "audit": {
                "attacks": list(self.attacks),
                "targets": size.targets,
                "seed": seed,
                "metrics": list(self.metrics),
                "membership": size.membership,
                "authenticity": size.authenticity,
                "closeness": self.closeness,
                "influence": self.influence,
            },
        }
        return from_tables(tables, source=f"study {self.paper} {self.name}")

    def _fitted(self, tables: Tables) -> Tables:
        """Return a setting with options of those attacks alone that are run on it."""
        run = tables.get("attacks", self.attacks)
        options = {name: one for name, one in tables.get("options", {}).items() if name in run}
        return {**tables, "options": options}
