"""The weaker question beside the audit's own: which of two records was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from exhume.attacks.catalogue import attack_named, membership_test
from exhume.audit.setting import ThreatSetting
from exhume.config import AuditTable, SettingTable
from exhume.protocol.errors import InputError
from exhume.protocol.seeds import stream
from exhume.runlog.setting import MembershipOutcome

if TYPE_CHECKING:
    from exhume.attacks.informed.membership import MembershipAttack


def membership_tests(table: SettingTable, audit: AuditTable) -> tuple[MembershipAttack, ...]:
    """Return the tests to try in turn on a setting: the named one, or the default ones.

    These are the strongest for the training: repeating it with each candidate if possible,
    otherwise shadow models (Balle et al. 2022, Algorithm 2).
    """
    models = audit.membership_models
    if audit.membership_test is None:
        return membership_test("retraining"), membership_test("shadow-models", models=models)
    attack = None
    if audit.membership_attack is not None:
        options = {one.attack: one.values() for one in table.options}
        attack = attack_named(audit.membership_attack, options.get(audit.membership_attack))
    return (membership_test(audit.membership_test, attack, models=models),)


def membership_outcome(
    setting: ThreatSetting, tests: Sequence[MembershipAttack], audit: AuditTable
) -> MembershipOutcome:
    """Play the membership game between pairs of targets, by the first of ``tests`` that applies."""
    from exhume.attacks.informed.membership import MembershipQuestion, membership_game

    if setting.targets is None or setting.batch is not None or setting.given is not None:
        return MembershipOutcome(
            "not played: it needs a training that can be run, and targets with a fixed set"
        )
    count = min(audit.membership_pairs, len(setting.targets) // 2)
    if not count:
        return MembershipOutcome("not played: a pair needs two targets")
    pairs = [
        MembershipQuestion.pair(setting.targets.take([2 * i, 2 * i + 1])) for i in range(count)
    ]
    reasons = []
    for attack in tests:
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
                trials=audit.membership,
                rng=stream(audit.seed, "membership", setting.name),
                value_range=setting.value_range,
                shadow_targets=setting.shadow_targets,
            )
        except InputError as error:
            reasons.append(str(error))
            continue
        advantage, auc = played.advantage.estimate, played.auc.estimate
        return MembershipOutcome(played.describe(), attack.name, advantage, auc)
    return MembershipOutcome(f"no test ran: {'; '.join(reasons)}")
