"""Which attacks a configuration runs on a setting, and with which options."""

from __future__ import annotations

from exhume.attacks.catalogue import attack_named, names_for
from exhume.audit.load_data import has_columns
from exhume.config import AuditTable, EstimatorReleaseTable, NetworkReleaseTable, SettingTable
from exhume.protocol.attack import Attack, ThreatModel
from exhume.protocol.errors import InputError


def threat_of(table: SettingTable) -> ThreatModel:
    """Return the threat model of a setting's adversary."""
    if table.batch is not None:
        alone = table.release.kind == "weights"
        return ThreatModel.WEIGHTS_ALONE if alone else ThreatModel.GRADIENT
    if table.release.kind == "transcript":
        return ThreatModel.TRANSCRIPT
    if isinstance(table.release, EstimatorReleaseTable):
        return ThreatModel.ESTIMATOR
    network = isinstance(table.release, NetworkReleaseTable)
    return ThreatModel.NETWORK if network else ThreatModel.LINEAR_MODEL


def attack_names(table: SettingTable, audit: AuditTable) -> tuple[str, ...]:
    """Return the attacks to run on a setting by name, its blind guesses among them.

    Those that it or the audit names; by default all for its threat model.
    """
    chosen = audit.attacks if table.attacks is None else table.attacks
    if chosen is None:
        threat = threat_of(table)
        chosen = names_for(threat)
        if threat is ThreatModel.GRADIENT and table.data is not None and has_columns(table.data):
            chosen = (*names_for(ThreatModel.TABLE_GRADIENT), *chosen)
    known = bool(table.knowledge.labels or table.knowledge.attributes)
    guesses = ("oblivious", "conditional-guess") if known else ("oblivious",)
    return tuple(dict.fromkeys((*chosen, *guesses)))


def attacks_for(table: SettingTable, audit: AuditTable) -> tuple[Attack, ...]:
    """Return the attacks to run on a setting, with its options for them, blind guesses last."""
    options = {one.attack: one.values() for one in table.options}
    names = attack_names(table, audit)
    found = [attack_named(name, options.get(name)) for name in names]
    attacks = tuple(sorted(found, key=lambda attack: attack.baseline))
    absent = sorted(set(options) - set(names))
    if absent:
        ran = ", ".join(attack.name for attack in attacks)
        raise InputError(
            f"setting {table.name!r}: options for {absent[0]!r}, which is not run; the attacks "
            f"are {ran}"
        )
    return attacks
