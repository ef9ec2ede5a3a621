"""Is it real? An attack's candidates beside what they might be, and what may be said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.arrays import Array
from exhume.audit.store import Store
from exhume.audit.summary import Rate
from exhume.errors import InputError
from exhume.report.facts import Facts
from exhume.report.pictures import picture
from exhume.report.theme import MUTED, REACHED, Drawing, draw
from exhume.report.words import NOTHING, counted, number, percent, rate_text

_SHOWN = {"real": 4, "invented": 2, "cannot be told": 2}
"""Candidates in the gallery by verdict, those with the highest scores first."""
_MOST_SHOWN = 8
_MOST_LISTED = 200
_CLAIMED = "#7b4a9e"


@dataclass(frozen=True)
class Judged:
    """One candidate as the page shows it; pictures are data URIs, None where there are none."""

    name: str
    verdict: str
    score: str
    false_positives: str
    truth: str
    right: bool | None
    training: str
    distance: str
    ssim: str
    rank: str
    held_out: str
    starting: str
    starts: str
    candidate: str | None = None
    training_picture: str | None = None
    held_out_picture: str | None = None


@dataclass(frozen=True)
class AuthenticityPart:
    """What the page says of one setting: the answer, candidates, the ROC, and by what right."""

    answer: str
    tells: bool
    attack: str
    shown: tuple[Judged, ...]
    listed: tuple[Judged, ...]
    total: int
    figure: Drawing | None
    notes: tuple[tuple[str, str], ...]

    @property
    def pictured(self) -> bool:
        """Whether candidates can be seen."""
        return any(one.candidate is not None for one in self.shown)

    @property
    def known(self) -> bool:
        """Whether the truth is known."""
        return any(one.right is not None for one in self.listed)

    @property
    def started(self) -> bool:
        """Whether the search began at given records."""
        return any(one.starting != NOTHING for one in self.listed)


def authenticity_part(store: Store, facts: Facts, *, redact: bool) -> AuthenticityPart | None:
    """Return what was judged of a setting; None where nothing was."""
    found = store.facts()[facts.name].get("authenticity")
    if not found:
        return None
    candidates, said = found["candidates"], found["said"]
    chosen = _chosen(candidates)
    arrays = {} if redact or not facts.picture else _arrays(store, found["artefacts"])
    return AuthenticityPart(
        answer=f"{said[:1].upper()}{said[1:]}.",
        tells=bool(found["tells"]),
        attack=found["attack"],
        shown=tuple(_judged(one, arrays, facts) for one in chosen),
        listed=tuple(_judged(one, {}, facts) for one in candidates[:_MOST_LISTED]),
        total=len(candidates),
        figure=roc_figure(found["claimed"], found["measured"], found["allowed"]),
        notes=_notes(found),
    )


def _chosen(candidates: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return some of each verdict; where one has too few, the others fill up."""
    order = sorted(candidates, key=lambda c: -(c["score"] or 0.0))
    first = [one for kind, most in _SHOWN.items() for one in _of(order, kind)[:most]]
    rest = [one for one in order if not any(one is kept for kept in first)]
    kept = [*first, *rest[: _MOST_SHOWN - len(first)]]
    return [one for kind in _SHOWN for one in _of(kept, kind)]


def _of(candidates: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [one for one in candidates if one["verdict"] == kind]


def _arrays(store: Store, names: Sequence[str]) -> dict[int, dict[str, Array]]:
    """Return each release's candidates and records; a report without them is still a report."""
    found = {}
    for place, name in enumerate(names):
        try:
            found[place] = store.arrays(name)
        except InputError:
            continue
    return found


def _judged(
    one: Mapping[str, Any], arrays: Mapping[int, Mapping[str, Array]], facts: Facts
) -> Judged:
    training, held_out, starting = (
        one[side] or {} for side in ("training", "held_out", "starting")
    )
    real, own = one["real"], arrays.get(one["release"], {})
    several = "" if not one["release"] else f"{one['release']}."
    return Judged(
        name=f"no. {several}{one['place']}",
        verdict=one["verdict"],
        score=NOTHING if one["score"] is None else f"{one['score']:.2f}",
        false_positives=_rate(one["false_positives"]),
        truth=NOTHING if real is None else ("real" if real else "invented"),
        right=_right(one["verdict"], real),
        training=_two(training.get("ncc")),
        distance=number(training.get("distance")),
        ssim=_two(training.get("ssim")),
        rank=NOTHING if one["rank"] is None else str(one["rank"]),
        held_out=_two(held_out.get("ncc")),
        starting=_two(starting.get("ncc")),
        starts=_two(one["starts"]),
        candidate=_picture(own, "samples", one["place"], facts),
        training_picture=_picture(own, "training.records", training.get("index"), facts),
        held_out_picture=_picture(own, "held_out.records", held_out.get("index"), facts),
    )


def _right(verdict: str, real: bool | None) -> bool | None:
    if real is None or verdict not in ("real", "invented"):
        return None
    return real == (verdict == "real")


def _picture(own: Mapping[str, Array], name: str, place: int | None, facts: Facts) -> str | None:
    records = own.get(name)
    if records is None or place is None or place >= len(records):
        return None
    if records.shape[1:] != facts.record_shape:
        return None
    span = facts.value_range or (float(records.min()), float(records.max()))
    return picture(records[place], span)


def _rate(found: Sequence[float] | None) -> str:
    if found is None:
        return NOTHING
    estimate, low, high = found
    return rate_text(Rate(0, 0, estimate, low, high, 0.95))


def _two(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _notes(found: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return by what right the verdicts are given, as pairs of a name and a sentence."""
    if found["claimed"] is None:
        return ()
    pairs = [
        ("Real", _real_text(found)),
        ("Judge", _judge_text(found)),
        ("Claimed", _curve_text(found["claimed"], found["claimed"]["networks"], "network")),
    ]
    if found["measured"] is not None:
        pairs.append(("In truth", _measured_text(found)))
        pairs.append(("Given pictures", _given_text(found)))
    pairs.append(("Objective", _objective_text(found["objective"])))
    return tuple((name, text) for name, text in pairs if text)


def _real_text(found: Mapping[str, Any]) -> str:
    return (
        f"A candidate is real if it correlates above {found['level']:g} with a training record and "
        "no held-out record is nearer; anything else is invented, mixtures of records included. "
        "Correlations are of what is left after the mean of the adversary's own records."
    )


def _judge_text(found: Mapping[str, Any]) -> str:
    return (
        f"Learned from {counted(found['networks'], 'network')} that the adversary trained on its "
        f"own records and attacked in the same way; it weighs {found['judge']}. “Real” is said "
        f"where at most {percent(found['allowed'])} of inventions would be, “invented” where at "
        "most as many real ones would be, both with 95 % confidence."
    )


def _curve_text(curve: Mapping[str, Any], count: int, noun: str) -> str:
    return (
        f"Area under the ROC {_area(curve)} on {counted(count, noun)} of the adversary's own, each "
        f"judged by what the others taught. Of {counted(curve['pictures'], 'picture')} that came "
        f"out there {curve['recognised']} would be recognised, at a false-positive rate of "
        f"{_alarms(curve)}. Intervals are over pictures and networks, not candidates."
    )


def _measured_text(found: Mapping[str, Any]) -> str:
    curve = found["measured"]
    count = curve["networks"]
    where = "the release itself" if count == 1 else f"{counted(count, 'release')} themselves"
    text = f"Area under the ROC {_area(curve)} on {where}. "
    if not found["tells"]:
        return text.strip()
    return (
        f"{text}Of {counted(curve['pictures'], 'picture')} that came out {curve['recognised']} "
        f"were recognised, at a false-positive rate of {_alarms(curve)}."
    )


def _given_text(found: Mapping[str, Any]) -> str:
    """Say whether a picture at hand can be told to be a training record by the candidates."""
    parts = [
        f"{_area(found[key])} {against}"
        for key, against in (
            ("held_out", "against held-out pictures"),
            ("without", "against networks trained without it"),
        )
        if found[key] is not None
    ]
    if not parts:
        return ""
    lows = [found[key]["low"] for key in ("held_out", "without") if found[key] is not None]
    verdict = "It can be told" if min(lows) > 0.5 else "It cannot be told"
    return f"{verdict} whether a given picture was trained on: area {' and '.join(parts)}."


def _objective_text(pairs: Sequence[Sequence[float | None]]) -> str:
    known = [(at, truth) for at, truth in pairs if at is not None and truth is not None]
    if not known:
        return ""
    shown = "; ".join(
        f"{number(at)} at the candidates, {number(truth)} at the training records"
        for at, truth in known[:3]
    )
    better = sum(at < truth for at, truth in known)
    end = "A small one certifies nothing." if better else ""
    return f"What is left of the weights (‖θ − Σλ∇f‖² / ‖θ‖²): {shown}. {end}".strip()


def _area(curve: Mapping[str, Any]) -> str:
    if curve["area"] is None:
        return "can't be measured"
    return f"{curve['area']:.2f} [{curve['low']:.2f}, {curve['high']:.2f}]"


def _alarms(curve: Mapping[str, Any]) -> str:
    rate = NOTHING if curve["alarms"] is None else percent(curve["alarms"])
    return f"{rate} (at most {percent(curve['alarms_high'])})"


def roc_figure(
    claimed: Mapping[str, Any] | None, measured: Mapping[str, Any] | None, allowed: float
) -> Drawing | None:
    """Draw the judge's ROC on the adversary's own networks, and on the release with the truth."""
    curves = [
        (curve, colour, label)
        for curve, colour, label in (
            (claimed, _CLAIMED, "the adversary's own networks"),
            (measured, REACHED, "this release, in truth"),
        )
        if curve is not None and curve["area"] is not None
    ]
    if not curves:
        return None

    def paint(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=":", label="chance")
        for curve, colour, label in curves:
            false, true = [0.0, *curve["false_rate"]], [0.0, *curve["true_rate"]]
            axes.step(false, true, where="post", color=colour, label=label)
        axes.axvline(allowed, color=MUTED, linewidth=0.8, zorder=1)
        ticks = [0, 0.25, 0.5, 0.75, 1]
        for axis in (axes.set_xticks, axes.set_yticks):
            axis(ticks, [f"{tick:.0%}".replace("%", " %") for tick in ticks])
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.02, 1.03))
        axes.set(xlabel="inventions called real", ylabel="real ones called real")
        axes.legend(loc="lower right", borderaxespad=0.6)

    said = "; ".join(f"{label}: area {_area(curve)}" for curve, _, label in curves)
    caption = (
        f"The judge's ROC, every picture with one vote. {said[:1].upper()}{said[1:]}. The vertical "
        "line marks the false-positive rate that is allowed."
    )
    return draw(paint, alt=f"ROC of the judge. {said}.", caption=caption)
