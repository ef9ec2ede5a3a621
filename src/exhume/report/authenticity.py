"""Is it real? An attack's candidates beside the nearest records, with their verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.report.numbers import NOTHING, counted, number, percent, rate_text
from exhume.report.png import picture
from exhume.report.theme import MUTED, REACHED, Drawing, draw, paint_roc
from exhume.runlog.authenticity import Authenticity, Beside, JudgedCandidate, RocCurve
from exhume.runlog.setting import Setting
from exhume.runlog.store import Store
from exhume.runlog.summary import Rate

_SHOWN = {"real": 4, "invented": 2, "undecided": 2}
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
    """The part of one setting: the answer, candidates, the ROC, and notes on the method."""

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


def authenticity_part(store: Store, setting: Setting, *, redact: bool) -> AuthenticityPart | None:
    """Return the judged candidates of a setting; None if nothing was judged."""
    found = setting.authenticity
    if found is None:
        return None
    candidates, said = found.candidates, found.said
    chosen = _chosen(candidates)
    arrays = {} if redact or not setting.data.picture else _arrays(store, found.artefacts)
    return AuthenticityPart(
        answer=f"{said[:1].upper()}{said[1:]}.",
        tells=found.tells,
        attack=found.attack,
        shown=tuple(_judged(one, arrays, setting) for one in chosen),
        listed=tuple(_judged(one, {}, setting) for one in candidates[:_MOST_LISTED]),
        total=len(candidates),
        figure=roc_figure(found.claimed, found.measured, found.allowed),
        notes=_notes(found),
    )


def _chosen(candidates: Sequence[JudgedCandidate]) -> list[JudgedCandidate]:
    """Return some candidates of each verdict; if one has too few, others take their place."""
    order = sorted(candidates, key=lambda c: -(c.score or 0.0))
    first = [one for kind, most in _SHOWN.items() for one in _of(order, kind)[:most]]
    rest = [one for one in order if not any(one is kept for kept in first)]
    kept = [*first, *rest[: _MOST_SHOWN - len(first)]]
    return [one for kind in _SHOWN for one in _of(kept, kind)]


def _of(candidates: Sequence[JudgedCandidate], kind: str) -> list[JudgedCandidate]:
    return [one for one in candidates if one.verdict == kind]


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
    one: JudgedCandidate, arrays: Mapping[int, Mapping[str, Array]], setting: Setting
) -> Judged:
    training, held_out = one.training, one.held_out
    real, own = one.real, arrays.get(one.release, {})
    several = f"{one.release}." if one.release else ""
    return Judged(
        name=f"no. {several}{one.place}",
        verdict=one.verdict,
        score=_two(one.score),
        false_positives=_rate(one.false_positives),
        truth=NOTHING if real is None else ("real" if real else "invented"),
        right=_right(one.verdict, real),
        training=_correlation(training),
        distance=number(None if training is None else training.distance),
        ssim=_two(None if training is None else training.ssim),
        rank=NOTHING if one.rank is None else str(one.rank),
        held_out=_correlation(held_out),
        starting=_correlation(one.starting),
        starts=_two(one.starts),
        candidate=_picture(own, "samples", one.place, setting),
        training_picture=_beside(own, "training.records", training, setting),
        held_out_picture=_beside(own, "held_out.records", held_out, setting),
    )


def _correlation(near: Beside | None) -> str:
    return NOTHING if near is None else _two(near.ncc)


def _beside(
    own: Mapping[str, Array], name: str, near: Beside | None, setting: Setting
) -> str | None:
    return None if near is None else _picture(own, name, near.index, setting)


def _right(verdict: str, real: bool | None) -> bool | None:
    if real is None or verdict not in ("real", "invented"):
        return None
    return real == (verdict == "real")


def _picture(own: Mapping[str, Array], name: str, place: int, setting: Setting) -> str | None:
    records = own.get(name)
    if records is None or place >= len(records):
        return None
    if records.shape[1:] != setting.data.record_shape:
        return None
    span = setting.data.value_range or (float(records.min()), float(records.max()))
    return picture(records[place], span)


def _rate(found: Sequence[float] | None) -> str:
    if found is None:
        return NOTHING
    estimate, low, high = found
    return rate_text(Rate(0, 0, estimate, low, high, 0.95))


def _two(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def _notes(found: Authenticity) -> tuple[tuple[str, str], ...]:
    """Return notes on how the verdicts were reached, as pairs of a name and a sentence."""
    if found.claimed is None:
        return ()
    pairs = [
        ("Real", _real_text(found)),
        ("Judge", _judge_text(found)),
        ("Claimed", _curve_text(found.claimed, found.claimed.networks, "network")),
    ]
    if found.measured is not None:
        pairs.append(("In truth", _measured_text(found.measured, tells=found.tells)))
        pairs.append(("Given pictures", _given_text(found)))
    pairs.append(("Objective", _objective_text(found.objective)))
    return tuple((name, text) for name, text in pairs if text)


def _real_text(found: Authenticity) -> str:
    return (
        f"A candidate is real if it correlates above {found.level:g} with a training record and "
        "no held-out record is nearer; anything else is invented, including mixtures of "
        "records. Correlations are computed after the mean of the adversary's own records is "
        "subtracted."
    )


def _judge_text(found: Authenticity) -> str:
    return (
        f"The judge learned from {counted(found.networks, 'network')} that the adversary trained "
        f"on its own records and attacked in the same way. Its weights: {found.judge}. The "
        f"verdict is “real” where at most {percent(found.allowed)} of the inventions would get "
        "it, and “invented” where at most the same share of the real ones would get it, both "
        "with 95 % confidence."
    )


def _curve_text(curve: RocCurve, count: int, noun: str) -> str:
    return (
        f"Area under the ROC: {_area(curve)}, on {counted(count, noun)} that the adversary "
        "trained; each was judged after learning from the others. Of "
        f"{counted(curve.pictures, 'picture')} rebuilt there, {curve.recognised} would be "
        f"recognised, at a false-positive rate of {_alarms(curve)}. "
        "Intervals are over pictures and networks, not candidates."
    )


def _measured_text(curve: RocCurve, *, tells: bool) -> str:
    count = curve.networks
    where = "the release itself" if count == 1 else f"{counted(count, 'release')} themselves"
    text = f"Area under the ROC: {_area(curve)}, on {where}. "
    if not tells:
        return text.strip()
    return (
        f"{text}Of {counted(curve.pictures, 'picture')} that were rebuilt, {curve.recognised} "
        f"were recognised, at a false-positive rate of {_alarms(curve)}."
    )


def _given_text(found: Authenticity) -> str:
    """Say whether the candidates show if a given picture is a training record."""
    asked = [
        (curve, against)
        for curve, against in (
            (found.held_out, "against held-out pictures"),
            (found.without, "against networks trained without it"),
        )
        if curve is not None
    ]
    if not asked:
        return ""
    parts = [f"{_area(curve)} {against}" for curve, against in asked]
    told = min(curve.low for curve, _ in asked) > 0.5
    verdict = "The candidates show" if told else "The candidates do not show"
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
    end = "A small residual proves nothing." if better else ""
    return f"Residual of the weights (‖θ − Σλ∇f‖² / ‖θ‖²): {shown}. {end}".strip()


def _area(curve: RocCurve) -> str:
    if curve.area is None:
        return "not measurable"
    return f"{curve.area:.2f} [{curve.low:.2f}, {curve.high:.2f}]"


def _alarms(curve: RocCurve) -> str:
    rate = NOTHING if curve.alarms is None else percent(curve.alarms)
    return f"{rate} (at most {percent(curve.alarms_high)})"


def roc_figure(
    claimed: RocCurve | None, measured: RocCurve | None, allowed: float
) -> Drawing | None:
    """Draw the judge's ROC on the adversary's own networks, and on the release with the truth."""
    curves = [
        (curve, colour, label)
        for curve, colour, label in (
            (claimed, _CLAIMED, "the adversary's own networks"),
            (measured, REACHED, "this release, by the truth"),
        )
        if curve is not None and curve.area is not None
    ]
    if not curves:
        return None

    def paint(axes: Any) -> None:
        paint_roc(axes, [(label, colour, c.false_rate, c.true_rate) for c, colour, label in curves])
        axes.axvline(allowed, color=MUTED, linewidth=0.8, zorder=1)
        axes.legend(loc="lower right", borderaxespad=0.6)

    said = "; ".join(f"{label}: area {_area(curve)}" for curve, _, label in curves)
    caption = (
        f"The judge's ROC; every picture has one vote. {said[:1].upper()}{said[1:]}. The "
        "vertical line marks the allowed false-positive rate."
    )
    return draw(paint, alt=f"ROC of the judge. {said}.", caption=caption)
