"""Two runs side by side: what attacks reached before and after, with the interval of the change."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.runlog.summary import Bracket, Rate, Summary
from exhume.stats.proportions import difference_of_shares


@dataclass(frozen=True)
class Change:
    """One setting of two runs; ``low`` to ``high`` is the interval of the change of the rate.

    Both rates are of the strongest attack; the interval is at the level of the wider of the two
    brackets, which allow for having selected it. None where nothing was judged in one run.
    """

    setting: str
    before: Rate | None
    after: Rate | None
    limit_before: float | None
    limit_after: float | None
    model: str
    model_before: float | None
    model_after: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        """Whether attacks reach less, more, or whether the interval contains no change."""
        if self.low is None or self.high is None:
            return "not known"
        if self.high < 0:
            return "less is rebuilt"
        return "more is rebuilt" if self.low > 0 else "undecided"


@dataclass(frozen=True)
class RunComparison:
    """The settings that two runs share, and the names of those that only one has."""

    changes: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


def compare(before: Summary, after: Summary) -> RunComparison:
    """Compare settings of the same name; of two runs with one setting each, those two."""
    first = {bracket.setting: bracket for bracket in before.brackets}
    second = {bracket.setting: bracket for bracket in after.brackets}
    if len(first) == len(second) == 1:
        ((name, one),), ((new, other),) = first.items(), second.items()
        shown = name if name == new else f"{name} → {new}"
        return RunComparison((_change(shown, one, other, before, after),), (), ())
    return RunComparison(
        tuple(
            _change(name, one, second[name], before, after)
            for name, one in first.items()
            if name in second
        ),
        tuple(name for name in first if name not in second),
        tuple(name for name in second if name not in first),
    )


def _change(name: str, one: Bracket, other: Bracket, before: Summary, after: Summary) -> Change:
    was, is_now = one.reached, other.reached
    found = None
    if was is not None and is_now is not None:
        level = max(was.confidence, is_now.confidence)
        found = difference_of_shares(
            (is_now.successes, is_now.trials), (was.successes, was.trials), confidence=level
        )
    model, other_model = _model(before, one.setting), _model(after, other.setting)
    return Change(
        name,
        was,
        is_now,
        one.ceiling,
        other.ceiling,
        model[0] or other_model[0],
        model[1],
        other_model[1],
        *(() if found is None else (found.estimate, found.low, found.high)),
    )


def _model(summary: Summary, setting: str) -> tuple[str, float | None]:
    model = next(one.model for one in summary.settings if one.name == setting)
    return model.name, model.value
