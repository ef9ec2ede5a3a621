"""The gate: decides for a pipeline, from the records, whether a model may be released."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from exhume.protocol.errors import InputError
from exhume.runlog.summary import Bracket, Summary, rate

_MOST_TARGETS = 10**6
"""More targets than this are not asked for: no audit has them."""


class GateOutcome(StrEnum):
    """Whether a setting is below the limit, above it, or whether the audit can't tell."""

    PASS = "pass"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Verdict:
    """The gate's verdict on one setting, and the reason in one line."""

    setting: str
    outcome: GateOutcome
    upper: float | None
    reason: str

    @property
    def passed(self) -> bool:
        """Whether the setting is shown to be below the limit."""
        return self.outcome is GateOutcome.PASS


def judge(summary: Summary, max_success: float) -> tuple[Verdict, ...]:
    """Judge every setting against a limit on the success of the strongest attack."""
    if not 0.0 <= max_success <= 1.0:
        raise InputError(
            f"--max-success must be from 0 to 1, or a percentage such as 5%, got {max_success}"
        )
    if not summary.brackets:
        raise InputError("the run has no settings: nothing was audited")
    if not summary.complete:
        done, expected = summary.trials, summary.expected
        reason = f"the audit is not finished ({done} of {expected} trials): run it again to resume"
        return tuple(_untold(bracket, reason) for bracket in summary.brackets)
    return tuple(_judged(bracket, max_success) for bracket in summary.brackets)


def _judged(bracket: Bracket, limit: float) -> Verdict:
    reached, ceiling = bracket.reached, bracket.ceiling
    if ceiling is not None and reached is not None and reached.low > ceiling:
        reason = (
            f"{bracket.attack} reached {reached.rate:.1%}, more than the bound of {ceiling:.1%} "
            "allows: the training cannot be the described one"
        )
        return Verdict(bracket.setting, GateOutcome.FAIL, reached.high, reason)
    if ceiling is not None and ceiling <= limit:
        reason = f"no attack can exceed {ceiling:.1%} (bound), the limit is {limit:.1%}"
        return Verdict(bracket.setting, GateOutcome.PASS, ceiling, reason)
    if reached is None:
        return _untold(bracket, _why_unknown(bracket))
    upper = _upper(bracket)
    text = f"{bracket.attack} reached {reached.rate:.1%}, at most {upper:.1%} by the interval"
    if bracket.unanswered:
        text += f" ({bracket.unanswered} targets on which no attack ran count as rebuilt)"
    if upper <= limit:
        reason = f"{text}; the limit is {limit:.1%}"
        return Verdict(bracket.setting, GateOutcome.PASS, upper, reason)
    if reached.rate > limit:
        reason = f"{text}; above the limit of {limit:.1%}"
        return Verdict(bracket.setting, GateOutcome.FAIL, upper, reason)
    reason = (
        f"{bracket.attack} rebuilt {reached.successes} of {reached.trials} targets, at most "
        f"{upper:.1%} by the interval; {_what_is_needed(bracket, limit)}"
    )
    return Verdict(bracket.setting, GateOutcome.INCONCLUSIVE, upper, reason)


def _untold(bracket: Bracket, reason: str) -> Verdict:
    return Verdict(bracket.setting, GateOutcome.INCONCLUSIVE, None, reason)


def _what_is_needed(bracket: Bracket, limit: float) -> str:
    """Say what would show a share of rebuilt targets like this one to be below the limit."""
    if bracket.unanswered:
        return f"{bracket.unanswered} targets on which no attack ran count as rebuilt"
    assert bracket.reached is not None
    needed = targets_needed(bracket.reached.rate, limit, bracket.reached.confidence)
    if needed is None:
        return f"too close to the limit of {limit:.1%} for any number of targets to tell"
    how = "at this rate" if bracket.reached.successes else "none of them rebuilt"
    return f"{needed:,} targets, {how}, would show less than {limit:.1%}"


def targets_needed(share: float, limit: float, confidence: float) -> int | None:
    """Return how many targets show a share of successes to be at most ``limit``; None if too many.

    >>> targets_needed(0.0, 0.05, 0.95)
    72
    """

    def enough(targets: int) -> bool:
        found = rate(math.ceil(share * targets - 1e-9), targets, confidence=confidence)
        return found is not None and found.high <= limit

    if share >= limit or not enough(_MOST_TARGETS):
        return None
    low, high = 0, _MOST_TARGETS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _why_unknown(bracket: Bracket) -> str:
    if bracket.unanswered < bracket.targets:
        return (
            "attacks ran, but the truth is not known, so their errors are unknown: give audit.truth"
        )
    return "no attack really ran: that is no evidence of safety"


def _upper(bracket: Bracket) -> float:
    """The interval's upper end, counting targets on which no attack ran as rebuilt."""
    reached = bracket.reached
    assert reached is not None
    if not bracket.unanswered:
        return reached.high
    worst = rate(
        reached.successes + bracket.unanswered,
        reached.trials + bracket.unanswered,
        confidence=reached.confidence,
    )
    assert worst is not None
    return worst.high
