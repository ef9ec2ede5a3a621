"""Settings of a grid as a run folder holds them, made by hand: known errors, known costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exhume.runlog.codec import decoded
from exhume.runlog.outcome import Outcome, Trial
from exhume.runlog.setting import Setting


def fact(defence: str, *, losses: Sequence[float] = (), batch: int = 1, **more: Any) -> Any:
    """What is known of one setting: its trainings end at ``losses`` and accuracies 1 − loss."""
    runs = [
        {"seed": i, "training_loss": v, "test_loss": v + 0.1, "accuracy": 1.0 - v}
        for i, v in enumerate(losses)
    ]
    name = f"grid, {defence}" if defence else "grid"
    return {
        "name": name,
        "title": name,
        "group": "grid",
        "defence": defence,
        "batch": batch,
        "trainings": runs,
        **more,
    }


def record(
    setting: str, attack: str, target: int, error: float | None, *, blind: bool = False
) -> Outcome:
    """One trial with its error; None where the attack could not run."""
    status = "CONVERGED" if error is not None else "REFUSED"
    return Outcome(
        Trial(setting, attack, target, 0, "{}"),
        status=status,
        message="",
        success=None if error is None else False,
        distance=error,
        threshold=0.1,
        scores={"rmse": error},
        baseline=blind,
    )


def records(
    errors: Mapping[str, Mapping[str, Sequence[float | None]]], *, blind: float | None = 0.3
) -> list[Outcome]:
    """Trials by setting's defence and attack; a blind guess with the same error everywhere."""
    found = []
    for defence, attacks in errors.items():
        name = f"grid, {defence}" if defence else "grid"
        for attack, values in attacks.items():
            found += [record(name, attack, i, value) for i, value in enumerate(values)]
        if blind is not None:
            count = max(map(len, attacks.values()))
            found += [record(name, "oblivious", i, blind, blind=True) for i in range(count)]
    return found


def by_name(*facts: Mapping[str, Any]) -> tuple[Setting, ...]:
    """Settings as a run has them."""
    return tuple(decoded(Setting, one) for one in facts)
