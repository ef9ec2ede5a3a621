"""The weaker question beside the audit's own: which of two records was trained on."""

from __future__ import annotations

from dataclasses import dataclass

from exhume.audit.setting import Setting
from exhume.errors import InputError
from exhume.seeds import stream

_PAIRS = 10
"""Questions that the trials are drawn from: each needs an adversary's preparation."""


@dataclass(frozen=True)
class Outcome:
    """How the game ended, in a sentence and in numbers; None where it was not played."""

    text: str = ""
    test: str = ""
    advantage: float | None = None
    auc: float | None = None


def membership_outcome(setting: Setting, trials: int, seed: int) -> Outcome:
    """Play the membership game between pairs of targets.

    The strongest test is used that the training allows: training again with each candidate where
    that can be repeated, shadow models where it can't (Balle et al. 2022, Algorithm 2).
    """
    from exhume.membership import Candidates, Retraining, ShadowModels, membership_game

    if setting.targets is None or setting.batch is not None or setting.given is not None:
        return Outcome(
            "not asked: it needs a training that can be run, and targets beside a fixed set"
        )
    count = min(_PAIRS, len(setting.targets) // 2)
    if not count:
        return Outcome("not asked: a pair needs two targets")
    pairs = [Candidates.pair(setting.targets.take([2 * i, 2 * i + 1])) for i in range(count)]
    reasons = []
    for attack in (Retraining(), ShadowModels()):
        reason = attack.accepts(setting.knowledge(0), pairs[0])
        if reason is not None:
            reasons.append(reason)
            continue
        try:
            played = membership_game(
                setting.mechanism,
                setting.fixed_set,
                pairs,
                attack,
                trials=trials,
                rng=stream(seed, "membership", setting.name),
                value_range=setting.value_range,
                shadow_targets=setting.shadow_targets,
            )
        except InputError as error:
            reasons.append(str(error))
            continue
        advantage, auc = played.advantage.estimate, played.auc.estimate
        return Outcome(played.describe(), attack.name, advantage, auc)
    return Outcome(f"no test ran: {'; '.join(reasons)}")
