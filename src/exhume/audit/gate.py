"""The gate: may this be released? Reads the records, and answers for a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.audit.summary import Bracket, Summary, rate
from exhume.errors import InputError


@dataclass(frozen=True)
class Verdict:
    """What the gate says of one setting, and why in one line."""

    setting: str
    passed: bool
    upper: float | None
    reason: str


def judge(summary: Summary, max_success: float) -> tuple[Verdict, ...]:
    """Judge every setting against a limit on the success of the strongest attack."""
    if not 0.0 <= max_success <= 1.0:
        raise InputError(f"--max-success must be from 0 to 1, got {max_success}")
    if not summary.brackets:
        raise InputError("the run has no settings: nothing was audited")
    if not summary.complete:
        done, expected = summary.trials, summary.expected
        reason = f"the audit is not finished ({done} of {expected} trials): run it again to go on"
        return tuple(Verdict(b.setting, False, None, reason) for b in summary.brackets)
    return tuple(_judged(bracket, max_success) for bracket in summary.brackets)


def _judged(bracket: Bracket, limit: float) -> Verdict:
    reached, ceiling = bracket.reached, bracket.ceiling
    if ceiling is not None and reached is not None and reached.low > ceiling:
        reason = (
            f"{bracket.attack} reached {reached.rate:.1%}, more than the bound of {ceiling:.1%} "
            "allows: the training can't be what was described"
        )
        return Verdict(bracket.setting, False, reached.high, reason)
    if ceiling is not None and ceiling <= limit:
        reason = f"no attack can exceed {ceiling:.1%} (bound), the limit is {limit:.1%}"
        return Verdict(bracket.setting, True, ceiling, reason)
    if reached is None:
        return Verdict(bracket.setting, False, None, _why_unknown(bracket))
    upper = _upper(bracket)
    text = f"{bracket.attack} reached {reached.rate:.1%}, at most {upper:.1%} by the interval"
    if bracket.unanswered:
        text += f" ({bracket.unanswered} targets that no attack ran on count against it)"
    if upper <= limit:
        return Verdict(bracket.setting, True, upper, f"{text}; the limit is {limit:.1%}")
    return Verdict(bracket.setting, False, upper, f"{text}; above the limit of {limit:.1%}")


def _why_unknown(bracket: Bracket) -> str:
    if bracket.unanswered < bracket.targets:
        return (
            "attacks ran, but the truth is not known, so that nothing says how close they came: "
            "give audit.truth"
        )
    return "no attack really ran: that is no evidence of safety"


def _upper(bracket: Bracket) -> float:
    """The interval's upper end, with targets that no attack ran on counted as rebuilt."""
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
