"""A DpEvent in its parts: compositions expanded, Gaussians merged, events without cost dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.bounds.checks import require_count, require_probability
from exhume.protocol.errors import InputError

if TYPE_CHECKING:
    import dp_accounting


@dataclass(frozen=True)
class Term:
    """One mechanism of a composition, and how often it runs."""

    event: dp_accounting.DpEvent
    count: int

    @property
    def key(self) -> str:
        """A key that only equal mechanisms share (some events can't be hashed)."""
        return repr(self.event)


@dataclass(frozen=True, eq=False)
class Flat:
    """A composition: a Gaussian part, other terms, and whether there is any guarantee at all.

    ``shift`` is √Σ1/σ² over every Gaussian mechanism in it: together they are one.
    """

    shift: float
    terms: tuple[Term, ...]
    private: bool

    @property
    def key(self) -> str:
        """A text that two compositions share only if they are the same mechanism."""
        terms = sorted(f"{term.key}*{term.count}" for term in self.terms)
        return f"{self.private} {self.shift!r} " + " ".join(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flat) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def flatten(event: dp_accounting.DpEvent) -> Flat:
    """Split ``event``; InputError for negative noise, odd counts or an improper sampling rate.

    >>> import dp_accounting as dp
    >>> flatten(dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 16)).shift
    2.0
    """
    import dp_accounting

    if not isinstance(event, dp_accounting.DpEvent):
        raise InputError(f"expected a dp_accounting.DpEvent, got {type(event).__name__}")
    leaves = _merged(_leaves(event, 1))
    gaussian = [leaf for leaf in leaves if isinstance(leaf.event, dp_accounting.GaussianDpEvent)]
    variance = [_precision(leaf.event.noise_multiplier) * leaf.count for leaf in gaussian]
    shift = math.sqrt(math.fsum(variance)) if math.inf not in variance else math.inf
    others = tuple(leaf for leaf in leaves if leaf not in gaussian)
    private = math.isfinite(shift) and not any(_gives_all_away(term.event) for term in others)
    return Flat(shift if private else 0.0, others if private else (), private)


def _leaves(event: dp_accounting.DpEvent, count: int) -> list[Term]:
    import dp_accounting as dp

    if count == 0 or _costs_nothing(event):
        return []
    if isinstance(event, dp.SelfComposedDpEvent):
        return _leaves(event.event, count * require_count("count", event.count, at_least=0))
    if isinstance(event, dp.ComposedDpEvent):
        return [leaf for part in event.events for leaf in _leaves(part, count)]
    if isinstance(event, dp.PoissonSampledDpEvent):
        return _sampled(event, count)
    return [Term(event, count)]


def _sampled(event: dp_accounting.PoissonSampledDpEvent, count: int) -> list[Term]:
    """Poisson sampling of all inner events together: all of them see the same sample."""
    import dp_accounting as dp

    rate = require_probability("sampling_probability", event.sampling_probability)
    inside = flatten(event.event)
    if rate == 0.0 or (inside.private and not inside.terms and inside.shift == 0.0):
        return []
    if rate == 1.0:
        return _leaves(event.event, count)
    if not inside.private:
        return [Term(dp.NonPrivateDpEvent(), count)]
    if not inside.terms:
        together = dp.GaussianDpEvent(1.0 / inside.shift)
        return [Term(dp.PoissonSampledDpEvent(rate, together), count)]
    if len(inside.terms) == 1 and inside.terms[0].count == 1 and inside.shift == 0.0:
        return [Term(dp.PoissonSampledDpEvent(rate, inside.terms[0].event), count)]
    return [Term(event, count)]


def _merged(leaves: list[Term]) -> list[Term]:
    """Count equal mechanisms together, in the order of first appearance."""
    counts: dict[str, Term] = {}
    for leaf in leaves:
        seen = counts.get(leaf.key)
        counts[leaf.key] = Term(leaf.event, leaf.count + (seen.count if seen else 0))
    return list(counts.values())


def _precision(noise_multiplier: float) -> float:
    """1/σ²: 0 for infinite noise, infinite for none."""
    if not noise_multiplier >= 0.0:
        raise InputError(f"noise_multiplier must be at least 0, got {noise_multiplier:g}")
    return math.inf if noise_multiplier == 0.0 else noise_multiplier**-2.0


def _costs_nothing(event: dp_accounting.DpEvent) -> bool:
    """Whether the release does not depend on the data at all."""
    import dp_accounting as dp

    if isinstance(event, dp.RandomizedResponseDpEvent):
        return bool(event.num_buckets == 1 or event.noise_parameter == 1.0)
    if isinstance(event, dp.GaussianDpEvent | dp.LaplaceDpEvent):
        return bool(event.noise_multiplier == math.inf)
    return isinstance(event, dp.NoOpDpEvent)


def _gives_all_away(event: dp_accounting.DpEvent) -> bool:
    """Whether no finite epsilon holds for ``event``: it promises none, or has no noise."""
    import dp_accounting as dp

    if isinstance(event, dp.NonPrivateDpEvent):
        return True
    for name in ("noise_multiplier", "noise_parameter", "standard_deviation"):
        noise = getattr(event, name, None)
        if noise is None:
            continue
        if not noise >= 0.0:
            raise InputError(f"{name} must be at least 0, got {noise:g}")
        if noise == 0.0:
            return True
    inner = getattr(event, "event", None)
    return inner is not None and _gives_all_away(inner)
