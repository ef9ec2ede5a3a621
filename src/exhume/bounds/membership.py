"""What the same privacy-loss distribution says about membership inference."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.bounds.privacy_loss import PrivacyLoss


@dataclass(frozen=True)
class MembershipRisk:
    """Ceilings on telling whether the target was in the data, for every attack.

    ``true_positive_rate`` at a false-positive rate of 1 %; ``advantage`` is the largest
    true-positive minus false-positive rate, ``balanced_accuracy`` half of that above one half.
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
