"""Defences at equal utility, in words: a table of points, the winner at each loss, the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from exhume.report.numbers import NOTHING, counted, listed, percent, short
from exhume.report.theme import Drawing
from exhume.report.tradeoff_figure import (
    label_of,
    spread_text,
    strength_figure,
    tradeoff_figure,
)
from exhume.runlog.strongest import ERROR_RULE
from exhume.runlog.tradeoff import Measure, Point, Tradeoff, UtilityLoss, Winner

_ACCURACY = Measure.ACCURACY.value
_MOST_NAMED = 5


@dataclass(frozen=True)
class PointLine:
    """One defence: the error of its strongest attack, and its cost."""

    defence: str
    error: str
    attack: str
    loss: str
    value: str
    front: str
    floor: str
    known: bool
    on_front: bool


@dataclass(frozen=True)
class WinnerLine:
    """The best defence at one loss of utility, with its probability."""

    loss: str
    sentence: str
    contenders: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class TradeoffPart:
    """One trade-off as the page shows it."""

    metric: str
    measure: str
    unit: str
    figure: Drawing
    lines: tuple[PointLine, ...]
    winners: tuple[WinnerLine, ...]
    note: str
    floors: str


def tradeoff_part(tradeoff: Tradeoff) -> TradeoffPart:
    """Return one trade-off: the picture, and its content as text."""
    measured = tradeoff.measure != ""
    paint = tradeoff_figure if measured else strength_figure
    return TradeoffPart(
        metric=tradeoff.metric,
        measure=tradeoff.measure,
        unit=_unit(tradeoff.measure),
        figure=paint(tradeoff, alt=_alt(tradeoff), caption=_caption(tradeoff)),
        lines=tuple(_line(point, tradeoff) for point in tradeoff.points),
        winners=tuple(_winner_line(winner, tradeoff) for winner in tradeoff.winners),
        note=_note(tradeoff),
        floors=_floors(tradeoff),
    )


def answer(tradeoff: Tradeoff) -> str:
    """Say in a sentence which defence protects best against its strongest attack, at what cost."""
    base = next((p for p in tradeoff.points if not p.defence), None)
    known = [p for p in tradeoff.points if p.defence and p.strength.answered]
    if not known:
        return "No attack finished against any of the defences, so the best one is undecided."
    best = max(known, key=lambda point: point.strength.mean)
    of = f"Of {counted(len(known), 'defence')} against which attacks ran"
    if base is not None and best.strength.mean <= base.strength.mean:
        return f"{of}, none protected better than no defence."
    alike = [p for p in known if p.strength.blind]
    if len(alike) > 1:
        return f"{of}, {_no_better(alike, base, tradeoff)}."
    under = f"under {best.strength.attack}"
    if best.strength.blind:
        under = "where no attack did better than a blind guess"
    text = f"{of}, {best.defence} protects best: {_error(best)} {under}"
    cost = _at_cost(best.utility, tradeoff.measure)
    return f"{text}{_without(base)}, {cost}{_rival(best, known)}."


def _no_better(alike: Sequence[Point], base: Point | None, tradeoff: Tradeoff) -> str:
    """Of several that leave attacks no better than a blind guess, name the cheapest."""
    text = (
        f"{len(alike)} left attacks no better than a blind guess, "
        f"{_error(alike[0])}{_without(base)}"
    )
    costed = [p for p in alike if p.utility is not None]
    if not costed:
        names = [p.defence for p in alike]
        shown = names if len(names) <= _MOST_NAMED else [*names[:_MOST_NAMED], "others"]
        return f"{text}, at a cost that was not measured: {listed(shown)}"
    cheapest = min(costed, key=lambda p: p.utility.mean if p.utility else math.inf)
    cost = _at_cost(cheapest.utility, tradeoff.measure)
    return f"{text}; the cheapest is {cheapest.defence}, {cost}"


def _error(point: Point) -> str:
    strength = point.strength
    return f"an error of {spread_text(strength.mean, strength.low, strength.high)}"


def _without(base: Point | None) -> str:
    if base is None:
        return ""
    return f", against {short(base.strength.mean)} without a defence"


def cautions(tradeoff: Tradeoff) -> str:
    """Name the defences against which no attack finished; empty if there is none."""
    silent = [label_of(p) for p in tradeoff.points if not p.strength.answered]
    if not silent:
        return ""
    return f"Against {listed(silent)} no attack finished: that is no evidence of safety."


def _at_cost(loss: UtilityLoss | None, measure: str) -> str:
    if loss is None:
        return "at a cost that was not measured"
    if not math.isfinite(loss.mean):
        return "but training diverged with it"
    return f"at a cost of {_loss_text(loss, measure)} {_unit(measure)}"


def _rival(best: Point, known: Sequence[Point]) -> str:
    """Name the others whose interval overlaps with the best one's: the difference is undecided."""
    low = best.strength.low
    close = [
        p.defence
        for p in known
        if p is not best and low is not None and (p.strength.high or p.strength.mean) >= low
    ]
    if not close:
        return ""
    if len(close) > 3:
        return f"; {len(close)} others are not distinguishable from it"
    return f"; {listed(close)} {'is' if len(close) == 1 else 'are'} not distinguishable from it"


def _loss_text(loss: UtilityLoss, measure: str) -> str:
    """Return what training loses, in percentage points of accuracy or in loss."""
    if not math.isfinite(loss.mean):
        return "diverged"
    scale = 100.0 if measure == _ACCURACY else 1.0
    if loss.low is None or loss.high is None:
        return _plain(scale * loss.mean)
    low, high = _plain(scale * loss.low), _plain(scale * loss.high)
    return f"{_plain(scale * loss.mean)} [{low} to {high}]"


def _unit(measure: str) -> str:
    return "points of accuracy" if measure == _ACCURACY else f"of {measure}"


def _plain(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def _line(point: Point, tradeoff: Tradeoff) -> PointLine:
    known = point.strength.answered
    strength, loss = point.strength, point.utility
    return PointLine(
        defence=label_of(point),
        error=spread_text(strength.mean, strength.low, strength.high),
        attack=_attack_text(point, known=known),
        loss=NOTHING if loss is None else _loss_text(loss, tradeoff.measure),
        value=NOTHING if loss is None else _value_text(loss, tradeoff.measure),
        front=NOTHING if point.front_probability is None else percent(point.front_probability),
        floor=NOTHING if point.floor is None else short(point.floor),
        known=known,
        on_front=bool(point.on_front),
    )


def _attack_text(point: Point, *, known: bool) -> str:
    if not known:
        return "none finished"
    attack = point.strength.attack
    return f"{attack}: no attack did better" if point.strength.blind else attack


def _value_text(loss: UtilityLoss, measure: str) -> str:
    if not math.isfinite(loss.value):
        return NOTHING
    return percent(loss.value) if measure == _ACCURACY else short(loss.value)


def _winner_line(winner: Winner, tradeoff: Tradeoff) -> WinnerLine:
    limit = f"{winner.utility_loss:g} of {tradeoff.measure}"
    if tradeoff.measure == _ACCURACY:
        share = 100 * winner.utility_loss
        limit = f"{share:g} {'point' if share == 1 else 'points'} of accuracy"
    names = [contender.defence or "no defence" for contender in winner.contenders]
    if winner.told:
        sentence = f"{names[0]} protects best"
    else:
        sentence = f"undecided between {listed(names)}" if names else "undecided"
    return WinnerLine(
        limit,
        sentence,
        tuple(
            (name, percent(contender.probability))
            for name, contender in zip(names, winner.contenders, strict=True)
        ),
    )


def _note(tradeoff: Tradeoff) -> str:
    text = (
        f"{ERROR_RULE} Intervals of errors are at 95 %, over {counted(tradeoff.batches, 'release')}"
    )
    if not tradeoff.measure:
        return f"{text}. The cost of the defences was not measured in this run."
    return f"{text}, those of utility over {counted(tradeoff.seeds, 'training seed')}."


def _floors(tradeoff: Tradeoff) -> str:
    binds = dict.fromkeys(p.floor_binds for p in tradeoff.points if p.floor is not None)
    texts = [f"A floor binds {text}." for text in binds if text]
    if any(p.rate is not None for p in tradeoff.points):
        texts.append(
            "Diamonds are the rates of Liu et al. 2024, Table 1, times the error without a "
            "defence: the growth of errors by theory, not a limit."
        )
    return " ".join(texts)


def _alt(tradeoff: Tradeoff) -> str:
    what = "Utility lost against error" if tradeoff.measure else "Error"
    return f"{what} under the strongest attack, one point per defence. {answer(tradeoff)}"


def _caption(tradeoff: Tradeoff) -> str:
    if not tradeoff.measure:
        return (
            "The error of the strongest attack under each defence: further right is safer. "
            "Hollow: no attack finished, so the error is no evidence."
        )
    return (
        "Up is safer, left is cheaper: no defence below or right of the line is worth choosing. "
        "Bars are 95 % intervals. Hollow: no attack finished, so the error is no evidence. "
        "Triangles at the right edge: training diverged."
    )
