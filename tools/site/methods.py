"""A page for each attack, defence, metric and bound."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from tools.site.doctests import fenced
from tools.site.figures import leaderboard_of, sections_on
from tools.site.keys import keys, rows_of
from tools.site.page import GeneratedPage, table

from exhume import bounds, metrics
from exhume.attacks.catalogue import ATTACKS
from exhume.bounds import floors
from exhume.cli.listing import listed
from exhume.config import listed_defences
from exhume.metrics.names import names as metric_names
from exhume.protocol.metric import Metric

FACTS = Path(__file__).parents[2] / "docs/reference/methods.toml"
_BOUND_TYPES = ("Ceiling", "Floor", "SufficientNoise", "MembershipRisk", "KappaEstimate")


@dataclass(frozen=True)
class Method:
    """An attack, a defence, a metric or a bound: what it is called, and the object."""

    kind: str
    name: str
    home: str
    """The public package that exports it."""
    subject: Callable[..., Any]
    group: str = ""

    @property
    def facts(self) -> dict[str, str]:
        """Return what docs/reference/methods.toml says: needs, tells, source."""
        return cast(dict[str, str], facts().get(self.kind, {}).get(self.name, {}))

    @property
    def docstring(self) -> str:
        """Return the docstring as Markdown."""
        return fenced(inspect.getdoc(self.subject) or "")

    @property
    def path(self) -> str:
        """Return the path of its page below docs/."""
        return f"reference/{self.kind}/{self.name}.md"


@cache
def facts() -> dict[str, Any]:
    """Return what docs/reference/methods.toml says, by kind and name."""
    return tomllib.loads(FACTS.read_text(encoding="utf-8"))


@cache
def methods() -> tuple[Method, ...]:
    """Return every attack, defence, metric and bound."""
    groups = {(one.kind, one.name): one.group for one in listed()}
    attacks = [("attacks", one.name, "exhume.attacks", one) for one in ATTACKS]
    defences = [("defences", one.name, "exhume.defences", one) for one in listed_defences()]
    return (
        *(Method(*one, groups[one[0], one[1]]) for one in (*attacks, *defences)),
        *(Method("metrics", one.name, "exhume.metrics", one) for one in _metrics()),
        *_bounds(),
    )


def _metrics() -> Iterator[type[Metric]]:
    """Yield the metrics that a file can name, in the order of ``exhume.metrics.names``."""
    found = [getattr(metrics, name) for name in metrics.__all__]
    named = {getattr(one, "name", None): one for one in found if isinstance(one, type)}
    return (named[name] for name in metric_names())


def _bounds() -> Iterator[Method]:
    """Yield the functions that return a ceiling, a floor or the noise for one."""
    for room, group in ((bounds, "ceilings on success"), (floors, "floors on the error")):
        for name in room.__all__:
            made = getattr(room, name)
            if inspect.isfunction(made) and _returns_a_bound(made):
                yield Method("bounds", name, room.__name__, made, group)


def _returns_a_bound(function: Callable[..., Any]) -> bool:
    returned = str(inspect.signature(function).return_annotation)
    return _name_of_type(returned) in _BOUND_TYPES


def _name_of_type(annotation: str) -> str:
    """Return the type that an annotation names, None aside.

    >>> _name_of_type("Ceiling | None")
    'Ceiling'
    """
    return annotation.partition(" | ")[0].strip("'").rpartition(".")[2]


_TITLES = {
    "attacks": "Attacks",
    "defences": "Defences",
    "metrics": "Metrics",
    "bounds": "Bounds",
}
_SAID = {"needs": "What it needs", "tells": "What it tells", "source": "Source"}
_DEFENCES = {"needs": "What it protects", "tells": "What it guarantees"}


def pages() -> tuple[GeneratedPage, ...]:
    """Return an overview of each kind, followed by a page of each of its methods."""
    made: list[GeneratedPage] = []
    for kind, title in _TITLES.items():
        own = [one for one in methods() if one.kind == kind]
        made += [_overview(kind, title, own), *map(_page, own)]
    return tuple(made)


def _overview(kind: str, title: str, own: Sequence[Method]) -> GeneratedPage:
    heads = _heads(kind)
    parts = [f"# {title}", _INTRODUCTIONS[kind]]
    for group in dict.fromkeys(one.group for one in own):
        rows = [
            (f"[`{one.name}`]({one.name}.md)", one.facts.get("needs", ""), one.facts["tells"])
            for one in own
            if one.group == group and one.facts
        ]
        parts += [f"## {group[:1].upper()}{group[1:]}"] if group else []
        parts.append(table((kind.removesuffix("s"), heads["needs"], heads["tells"]), rows))
    return GeneratedPage(f"reference/{kind}/index.md", title, "\n\n".join(parts) + "\n")


def _heads(kind: str) -> dict[str, str]:
    return _SAID | (_DEFENCES if kind == "defences" else {})


def _page(one: Method) -> GeneratedPage:
    said = [(_heads(one.kind)[key], text) for key, text in one.facts.items()]
    parts = [
        f"# {one.name}",
        table(("", ""), [*((f"**{head}**", text) for head, text in said), *_places(one)]),
        "## What it does",
        one.docstring,
        *_settings(one),
        "## Figures",
        leaderboard_of(one.name),
        _links(one),
        "## In Python",
        _in_python(one),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return GeneratedPage(one.path, one.name, text)


def _places(one: Method) -> Iterator[tuple[str, str]]:
    """Yield what the catalogue says: where an attack is run unasked, where a defence goes."""
    if one.group:
        yield ("**Group**", one.group)
    if one.kind == "attacks":
        threat = cast(Any, one.subject).made_for
        where = "by name only" if threat is None else f"by default on {threat.value}"
        guess = cast(Any, one.subject).baseline
        yield ("**Audits run it**", "always, as a blind guess" if guess else where)


def _settings(one: Method) -> Iterator[str]:
    own = [key for key in keys() if key.table == one.kind.replace("attacks", "options")]
    own = [key for key in own if key.owner == one.name]
    if one.kind == "attacks" and own:
        yield f"## Options\n\nIn a file: keys of `[options.{one.name}]`."
        yield rows_of(own)
    if one.kind == "defences":
        settings = "".join(f", {key.example_line}" for key in own if key.example is not None)
        yield "## Settings"
        yield f'In a file: `defences = [{{ name = "{one.name}"{settings} }}]`.'
        yield rows_of(own) if own else ""


def _links(one: Method) -> str:
    """Return links to the sections that show the method at work."""
    names = (one.name, one.subject.__name__)
    found = sections_on(names)
    lines = [f"- [{title}](../../{path})" for title, path in found]
    if not lines:
        return "No page measures it alone; its tests hold it to theory." if one.facts else ""
    return "Measured and explained in:\n\n" + "\n".join(lines)


def _in_python(one: Method) -> str:
    anchor = f"../api/{one.home}.md#{one.home}.{one.subject.__name__}"
    return f"[`{one.home}.{one.subject.__name__}`]({anchor})"


_INTRODUCTIONS = {
    "attacks": """Every attack that an audit can run, by what the adversary has. An attack receives
a release and the knowledge of the adversary, never the truth. An attack that does not apply says
why; that is no evidence of safety. How to add one: [Write your own
attack](../../how-to/write-your-own-attack.md).""",
    "defences": """Every defence that a file can name, by where it goes. The adversary of an audit
knows the defences and their order. What they protect and what they cost:
[Trade-offs](../../explanation/trade-offs.md).""",
    "metrics": """A metric compares a record with its reconstruction. Only metrics see the truth.
Definitions and conventions: [Metrics](../../explanation/metrics.md).""",
    "bounds": """A bound holds for every attack that it names, whatever the attack does. Ceilings
limit the success ([Bounds](../../explanation/bounds.md)), floors limit the error from below
([Floors](../../explanation/floors.md)).""",
}
