"""A part of a paper as a declared audit, with the published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from exhume.protocol.errors import InputError
from exhume.studies.claims import ClaimRow
from exhume.studies.plots import Plot
from exhume.studies.reading import StudyRun

if TYPE_CHECKING:
    from exhume.config import Config

Tables = dict[str, Any]
"""One ``[[setting]]`` as its TOML tables."""


class Scale(StrEnum):
    """The scale of a study: a minute, a quarter of an hour, or as in the paper."""

    SMOKE = "smoke"
    LAPTOP = "laptop"
    PAPER = "paper"


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size of a study, which ``--set`` may change.

    Every paper adds its own fields. ``values`` are the values that the part varies: widths, epochs,
    batch sizes, noise multipliers.
    """

    data: str = "mnist"
    shadow_targets: int = 0
    targets: int = 1000
    width: int = 10
    learning_rate: float = 0.2
    momentum: float = 0.9
    membership: int = 0
    authenticity: int = 0
    values: tuple[float, ...] = ()

    def changed(self, texts: Sequence[str]) -> Self:
        """Return the size with ``key=value`` texts applied; values have the type of the key."""
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

    def describe(self) -> str:
        """Return what a reader has to know of the size, in a few words."""
        return f"{self.targets:,} targets"

    def plain(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


SizeT = TypeVar("SizeT", bound=Size)


def sizes(paper: SizeT, laptop: SizeT, smoke: SizeT) -> Mapping[Scale, SizeT]:
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
        kind = "numbers, separated by commas" if isinstance(like, tuple) else "a number"
        raise InputError(f"--set {key}={text}: {key} takes {kind}") from None
    return text


@dataclass(frozen=True)
class Picture:
    """Which reconstructions to show: those of ``attacks`` on the settings, with the targets.

    ``beside`` names a setting with the same first targets, which other attacks were run on.
    """

    caption: str
    settings: tuple[str, ...]
    attacks: tuple[str, ...]
    beside: str = ""
    order: str = "first"
    """``first`` shows the first targets, ``extremes`` the best and worst of the first attack."""


@dataclass(frozen=True)
class Embedding:
    """Which settings' released models to show as points, ``count`` of them, by t-SNE."""

    caption: str
    settings: tuple[str, ...]
    count: int


@dataclass(frozen=True, kw_only=True)
class Part(Generic[SizeT]):
    """One table or figure of a paper.

    ``settings`` makes the ``[[setting]]`` tables of a size, ``rows`` the paper's claims about them,
    with the criterion of the verdict; both take the paper's own kind of size. ``minutes`` is the
    expected time on two cores. The first of ``attacks`` is the paper's own; ``methods`` are all
    that the paper has figures of, if there are more. ``headlines`` are the labels of the rows that
    open the paper's page, with the paper's size beside the one that was run.
    """

    paper: str
    name: str
    reference: str
    title: str
    sizes: Mapping[Scale, SizeT]
    minutes: Mapping[Scale, str]
    settings: Callable[[SizeT], Sequence[Tables]]
    rows: Callable[[SizeT], Sequence[ClaimRow]]
    attacks: tuple[str, ...]
    methods: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("mse",)
    closeness: float = 1.0
    influence: bool = False
    note: str = ""
    headlines: tuple[str, ...] = ()
    pictures: tuple[Picture, ...] = field(default=())
    plots: Callable[[SizeT], Sequence[Plot]] = lambda size: ()
    embedding: Callable[[SizeT], Embedding] | None = None

    def size(self, scale: Scale, changes: Sequence[str] = ()) -> SizeT:
        """Return a scale's size, with changes as ``--set`` gives them."""
        return self.sizes[scale].changed(changes)

    def size_of(self, run: StudyRun) -> SizeT:
        """Return the size that a run was declared with."""
        return self.size(Scale(run.scale), run.changes)

    def config(self, size: SizeT, *, seed: int) -> Config:
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
        """Return a setting with the options of only those attacks that run on it."""
        run = tables.get("attacks", self.attacks)
        options = {name: one for name, one in tables.get("options", {}).items() if name in run}
        return {**tables, "options": options}
