"""The privacy-loss distribution of a composition, or else its Rényi curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from exhume.bounds import discretise
from exhume.bounds.flatten import Flat, Term, flatten
from exhume.bounds.privacy_loss import PrivacyLoss, nothing
from exhume.bounds.rdp import (
    RenyiCurve,
    curve_of_event,
    subsampled_gaussian_curve,
    sum_of_curves,
    zcdp_curve,
)
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import dp_accounting
    from dp_accounting.privacy_accountant import NeighboringRelation

_POINTS_A_SPREAD = 200
_SLOWER = 4.0
"""The factor by which a grid is coarser if the accountant must fill it, point by point."""
_MOST_POINTS_ONCE = 2**19
_MOST_POINTS_COMPOSED = 2**20


def loss_of(flat: Flat) -> PrivacyLoss | None:
    """The privacy-loss distribution of a composition, or None if no accountant has one."""
    from dp_accounting.pld import PLDAccountant

    for relation in _relations():
        accountant = PLDAccountant(relation)
        if all(accountant.supports(term.event) for term in flat.terms):
            return _loss_under(flat, relation)
    return None


def rdp_of(flat: Flat) -> RenyiCurve:
    """The Rényi curve of a composition; the InputError names an event without an accountant."""
    from dp_accounting.privacy_accountant import NeighboringRelation as Relation
    from dp_accounting.rdp import RdpAccountant

    others = [term for term in flat.terms if _subsampled_gaussian(term.event) is None]
    whole = _composed(others)
    for relation in _relations():
        if RdpAccountant(None, relation).supports(whole):
            return sum_of_curves([*_gaussian_curves(flat), curve_of_event(whole, relation)])
    terms = [*_gaussian_term(flat), *flat.terms]
    replaced = [term for term in map(_for_replacing, terms) if term is not None]
    if len(replaced) == len(terms):
        return curve_of_event(_composed(replaced), Relation.REPLACE_ONE)
    accountant = RdpAccountant(None, _relations()[1])
    culprit = next((t for t in others if not accountant.supports(t.event)), others[0])
    raise InputError(
        f"no accountant supports {culprit.event}; "
        "Gaussian, Laplace, Poisson-sampled and ZCDpEvent are among those that are supported"
    )


def _gaussian_curves(flat: Flat) -> list[RenyiCurve]:
    """The Rényi curves of the Gaussian parts, subsampled or not."""
    curves = [zcdp_curve(0.5 * flat.shift**2)]
    for term in flat.terms:
        gaussian = _subsampled_gaussian(term.event)
        if gaussian is not None:
            curves.append(subsampled_gaussian_curve(*gaussian, term.count))
    return curves


def _relations() -> tuple[NeighboringRelation, NeighboringRelation]:
    """Replacing the target by a record with weight 0 has the same effect as leaving it out."""
    from dp_accounting.privacy_accountant import NeighboringRelation as Relation

    return Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_SPECIAL


def _gaussian_term(flat: Flat) -> list[Term]:
    import dp_accounting as dp

    return [Term(dp.GaussianDpEvent(1.0 / flat.shift), 1)] if flat.shift else []


def _composed(terms: list[Term]) -> dp_accounting.DpEvent:
    import dp_accounting as dp

    return dp.ComposedDpEvent([dp.SelfComposedDpEvent(t.event, t.count) for t in terms])


def _for_replacing(term: Term) -> Term | None:
    """``term`` for data sets in which one record is replaced, or None if it is not known.

    Replacing a record moves a sum of clipped gradients by up to twice the clipping norm. The Rényi
    accountant leaves this to its caller: half the noise multiplier.
    """
    import dp_accounting as dp

    event = term.event
    if isinstance(event, dp.GaussianDpEvent):
        return Term(dp.GaussianDpEvent(0.5 * event.noise_multiplier), term.count)
    if isinstance(event, dp.RandomizedResponseDpEvent):
        return term
    if isinstance(event, dp.SampledWithoutReplacementDpEvent):
        inside = flatten(event.event)
        if not inside.private or inside.terms or not inside.shift:
            return None
        sampled = dp.SampledWithoutReplacementDpEvent(
            event.source_dataset_size, event.sample_size, dp.GaussianDpEvent(0.5 / inside.shift)
        )
        return Term(sampled, term.count)
    return None


@lru_cache(maxsize=16)
def _loss_under(flat: Flat, relation: NeighboringRelation) -> PrivacyLoss:
    interval = _interval(flat)
    parts = [_once(term.event, relation, interval).repeat(term.count) for term in flat.terms]
    if flat.shift:
        parts.append(discretise.subsampled_gaussian(1.0 / flat.shift, 1.0, interval))
    if not parts:
        return nothing(interval)
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return whole


def _once(
    event: dp_accounting.DpEvent, relation: NeighboringRelation, interval: float
) -> PrivacyLoss:
    gaussian = _subsampled_gaussian(event)
    if gaussian is not None:
        return discretise.subsampled_gaussian(*gaussian, interval)
    try:
        return discretise.from_accountant(event, relation, interval)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(f"{event} can't be accounted for: {error}") from error


def _subsampled_gaussian(event: dp_accounting.DpEvent) -> tuple[float, float] | None:
    """(noise multiplier, sampling rate) of a Poisson-subsampled Gaussian, else None."""
    import dp_accounting as dp

    if isinstance(event, dp.PoissonSampledDpEvent) and isinstance(event.event, dp.GaussianDpEvent):
        return event.event.noise_multiplier, event.sampling_probability
    return None


def _interval(flat: Flat) -> float:
    """A grid fine enough for the narrowest loss, and coarse enough to compute the widest."""
    scales = [(_scale(term.event), term.count) for term in flat.terms]
    if flat.shift:
        scales.append((_gaussian_scale(1.0 / flat.shift, 1.0), 1))
    if not scales:
        return 1.0
    finest = min(scale.narrow for scale, _ in scales) / _POINTS_A_SPREAD
    once = max(scale.reach for scale, _ in scales)
    composed = 10.0 * math.sqrt(sum(count * scale.wide**2 for scale, count in scales))
    return max(finest, once / _MOST_POINTS_ONCE, composed / _MOST_POINTS_COMPOSED)


@dataclass(frozen=True)
class _Scale:
    """The width of one run's privacy loss; it only determines how fine the grid is."""

    narrow: float
    wide: float
    reach: float


def _gaussian_scale(noise_multiplier: float, sample_rate: float) -> _Scale:
    narrow, wide = discretise.spreads(noise_multiplier, sample_rate)
    return _Scale(narrow, wide, discretise.reach(noise_multiplier, sample_rate))


def _scale(event: dp_accounting.DpEvent) -> _Scale:
    import dp_accounting as dp

    gaussian = _subsampled_gaussian(event)
    if gaussian is not None:
        return _gaussian_scale(*gaussian)
    if isinstance(event, dp.LaplaceDpEvent):
        largest = 1.0 / event.noise_multiplier
        return _Scale(min(1.0, largest), largest, 2.0 * largest)
    if isinstance(event, dp.PoissonSampledDpEvent):
        inner = _scale(event.event)
        narrow, wide = event.sampling_probability, math.sqrt(event.sampling_probability)
        return _Scale(narrow * inner.narrow, wide * inner.wide, inner.reach)
    if isinstance(event, dp.dp_event.TruncatedSubsampledGaussianDpEvent):
        plain = _gaussian_scale(event.noise_multiplier, event.sampling_probability)
        doubled = discretise.reach(0.5 * event.noise_multiplier, 1.0)
        return _Scale(_SLOWER * plain.narrow, 2.0 * plain.wide, doubled)
    if isinstance(event, dp.dp_event.MixtureOfGaussiansDpEvent):
        largest = max(abs(c) for c in event.sensitivities)
        pairs = zip(event.sensitivities, event.sampling_probs, strict=True)
        moved = sum(p for c, p in pairs if c != 0.0)
        plain = _gaussian_scale(event.standard_deviation / largest, min(1.0, moved))
        return _Scale(_SLOWER * plain.narrow, plain.wide, plain.reach)
    # The accountant rounds other losses up, without connecting dots: this needs more points.
    return _Scale(0.002, 0.1, 1.0)
