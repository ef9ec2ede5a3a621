"""Limits on membership inference from the same privacy-loss distribution.

They hold for every membership test, and need a mechanism that knows its privacy accounting.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from exhume.bounds.checks import require_probability
from exhume.bounds.privacy_loss import PrivacyLoss

if TYPE_CHECKING:
    import dp_accounting

    from exhume.bounds.privacy_loss import PrivacyLoss


@dataclass(frozen=True)
class MembershipRisk:
    """Ceilings for any attack that decides whether the target was in the data.

    ``true_positive_rate`` is at a false-positive rate of 1 %. ``advantage`` is the largest
    true-positive minus false-positive rate. ``balanced_accuracy`` is ½ plus half the advantage.
    """

    true_positive_rate: float
    advantage: float
    balanced_accuracy: float


def membership_risk(loss: PrivacyLoss) -> MembershipRisk:
    """The membership risk of a mechanism, from the distribution that bounds its reconstruction.

    A membership test with false-positive rate κ and a reconstruction with blind success κ are the
    same test: the true-positive rate is at most γ(κ), the advantage at most δ(0).

    >>> from exhume.bounds.event import dp_sgd, privacy_loss
    >>> risk = membership_risk(privacy_loss(dp_sgd(1.0, 1.0, 1)))
    >>> round(risk.true_positive_rate, 3), round(risk.advantage, 3)
    (0.092, 0.383)
    """
    advantage = loss.delta(0.0)
    return MembershipRisk(float(loss.gamma(0.01)), advantage, 0.5 + 0.5 * advantage)


_STEPS = 60
_FINE = 1.0 / 1024.0


@dataclass(frozen=True)
class PowerCeiling:
    """A ceiling on the true-positive rate at every false-positive rate, for every attack.

    γ(κ), the bound of ``exhume.bounds``, is the largest probability, with the challenge in the
    data, of an event that has probability κ without it. If the alternative is no record, this is
    the ceiling. If the alternative is another record, the bound is applied twice: from one record
    to none, and from none to the other. The probabilities are (1 − γ(1 − q), γ(q)) for some q. This
    is exact for Gaussian noise and otherwise errs upwards.
    """

    event: dp_accounting.DpEvent
    against: Against

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The ceiling at a false-positive rate in [0, 1].

        >>> import dp_accounting as dp
        >>> round(PowerCeiling(dp.GaussianDpEvent(1.0), Against.NOTHING).true_positive_rate(0.1), 5)
        0.38914
        """
        rate = require_probability("false_positive_rate", false_positive_rate)
        if self.against is Against.NOTHING:
            return self._gamma(rate)
        if 1.0 - self._gamma(0.0) < rate:
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_STEPS):
            middle = 0.5 * (low + high)
            enough = 1.0 - self._gamma(1.0 - middle) >= rate
            low, high = (low, middle) if enough else (middle, high)
        return self._gamma(high)

    @property
    def advantage(self) -> float:
        """The ceiling on true-positive minus false-positive rate: a total variation.

        Against nothing it is δ(0). Against another record, γ(q) + γ(1 − q) − 1 is concave in q and
        symmetric, so its maximum is at q = ½.

        >>> import dp_accounting as dp
        >>> ceiling = PowerCeiling(dp.GaussianDpEvent(1.0), Against.ANOTHER_RECORD)
        >>> round(ceiling.advantage, 4)
        0.6827
        """
        if self.against is Against.ANOTHER_RECORD:
            return max(0.0, 2.0 * self._gamma(0.5) - 1.0)
        from exhume.bounds import membership_risk, privacy_loss

        loss = privacy_loss(self.event)
        if loss is not None:
            return membership_risk(loss).advantage
        return self._widest_gap()

    def _widest_gap(self) -> float:
        """The largest γ(κ) − κ, from above: γ never falls, so on [a, b] it is at most γ(b) − a."""
        intervals = [(-self._gamma(1.0), 0.0, 1.0, self._gamma(1.0))]
        while True:
            gap, start, end, at_end = heapq.heappop(intervals)
            if end - start <= _FINE:
                return min(1.0, max(0.0, -gap))
            middle = 0.5 * (start + end)
            at_middle = self._gamma(middle)
            heapq.heappush(intervals, (start - at_middle, start, middle, at_middle))
            heapq.heappush(intervals, (middle - at_end, middle, end, at_end))

    @cached_property
    def _loss(self) -> PrivacyLoss | None:
        """The privacy-loss distribution, if the ceiling comes from it at every κ."""
        from exhume.bounds import Method, ceiling, privacy_loss

        found = ceiling(self.event, 0.5)
        by_loss = found is not None and found.method is Method.PLD
        return privacy_loss(self.event) if by_loss else None

    def _gamma(self, kappa: float) -> float:
        from exhume.bounds import ceiling

        if self._loss is not None:
            return float(self._loss.gamma(kappa))
        found = ceiling(self.event, kappa)
        return 1.0 if found is None else found.gamma


def power_ceiling(event: dp_accounting.DpEvent, against: Against) -> PowerCeiling | None:
    """Return the ceiling that ``event`` puts on distinguishing a record from nothing or another.

    None if no bound holds. The event is that of one record being present or absent, as mechanisms
    state it; replacing a record may move a release twice as far.
    """
    from exhume.bounds import ceiling

    return None if ceiling(event, 0.5) is None else PowerCeiling(event, against)


class Against(Enum):
    """What replaces the challenge when it was not trained on. The value is the report's text."""

    NOTHING = "nothing in its place"
    ANOTHER_RECORD = "another record in its place"
