"""Attacks by the names that a configuration knows them by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, cast

from exhume import attacks
from exhume.attacks import Attack
from exhume.config import AuditTable, NetworkReleaseTable, SettingTable
from exhume.errors import InputError


def known_attacks() -> tuple[Attack, ...]:
    """Return every attack with its default settings, baselines last."""
    return (
        attacks.GLM(),
        attacks.ScalerMoments(),
        attacks.TrajectoryInversion(),
        attacks.Ridge(),
        attacks.Reconstructor(),
        attacks.FirstLayer(),
        attacks.Sparsity(),
        attacks.Cocktail(),
        attacks.Imprint(),
        attacks.Features(),
        attacks.DLG(),
        attacks.IDLG(),
        attacks.Geiping(),
        attacks.BatchNormMatching(),
        attacks.LiuMatching(),
        attacks.GenerativePrior(),
        attacks.FeatureInversion(),
        attacks.Portfolio(),
        attacks.RowSpace(),
        attacks.KKT(),
        attacks.Bilevel(),
        attacks.KnownInitialisation(),
        attacks.ChangeSparsity(),
        attacks.Oblivious(),
        attacks.ConditionalGuess(),
    )


_FOR_LINEAR_MODELS = ("glm", "scaler-moments")
_FOR_NETWORKS = ("trajectory-inversion", "ridge", "reconstructor")
# Bilevel is run by name alone: it trains the network anew at every step, and what it finds lies
# beside its own start, which tells of where a search began more than of what was trained on.
_FOR_WEIGHTS_ALONE = ("row-space", "kkt", "known-initialisation", "change-sparsity")
_FOR_GRADIENTS = (
    *("first-layer", "sparsity", "cocktail", "imprint", "features"),
    *("dlg", "idlg", "geiping", "batch-norm", "liu", "generative-prior"),
)


def names_for(table: SettingTable, audit: AuditTable) -> tuple[str, ...]:
    """Return the attacks to run on a setting by name, its blind guesses last.

    Those that it or the audit names; by default all that are made for its kind of release.
    """
    chosen = audit.attacks if table.attacks is None else table.attacks
    if chosen is None:
        network = isinstance(table.release, NetworkReleaseTable)
        chosen = _FOR_NETWORKS if network else _FOR_LINEAR_MODELS
        if table.batch is not None:
            chosen = _FOR_WEIGHTS_ALONE if table.release.kind == "weights" else _FOR_GRADIENTS
    known = bool(table.knowledge.labels or table.knowledge.attributes)
    guesses = ("oblivious", "conditional-guess") if known else ("oblivious",)
    return tuple(dict.fromkeys((*chosen, *guesses)))


def attacks_for(table: SettingTable, audit: AuditTable) -> tuple[Attack, ...]:
    """Return the attacks to run on a setting, with the options it has for them, baselines last."""
    options = {one.attack: one.values() for one in table.options}
    found = attacks_named(names_for(table, audit))
    absent = set(options) - {attack.name for attack in found}
    if absent:
        ran = ", ".join(attack.name for attack in found)
        raise InputError(
            f"setting {table.name!r}: options for {sorted(absent)[0]!r}, which is not run; "
            f"there are {ran}"
        )
    return tuple(_with(attack, options.get(attack.name, {})) for attack in found)


def _with(attack: Attack, options: dict[str, Any]) -> Attack:
    """Return an attack with other settings; it checks their values itself."""
    # Every attack is a frozen dataclass, which its base class can't say.
    known = [field.name for field in fields(cast(Any, attack))]
    for key in options:
        if key not in known:
            there = ", ".join(known) or "none"
            raise InputError(f"{attack.name} has no option {key!r}; there are {there}")
    try:
        return replace(cast(Any, attack), **options) if options else attack
    except TypeError as error:
        raise InputError(f"options of {attack.name}: {error}") from None


def attacks_named(names: Sequence[str]) -> tuple[Attack, ...]:
    """Return the attacks called ``names``, with their default settings, baselines last."""
    known = {attack.name: attack for attack in known_attacks()}
    for name in names:
        if name not in known:
            raise InputError(f"there is no attack called {name!r}; there are {', '.join(known)}")
    found = [known[name] for name in dict.fromkeys(names)]
    return tuple(sorted(found, key=lambda attack: attack.baseline))
