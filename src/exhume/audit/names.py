"""Attacks by the names that a configuration knows them by."""

from __future__ import annotations

from collections.abc import Sequence

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
        attacks.KnownInitialisation(),
        attacks.ChangeSparsity(),
        attacks.Oblivious(),
        attacks.ConditionalGuess(),
    )


_FOR_LINEAR_MODELS = ("glm", "scaler-moments")
_FOR_NETWORKS = ("trajectory-inversion", "ridge", "reconstructor")
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


def attacks_named(names: Sequence[str]) -> tuple[Attack, ...]:
    """Return the attacks called ``names``, with their default settings, baselines last."""
    known = {attack.name: attack for attack in known_attacks()}
    for name in names:
        if name not in known:
            raise InputError(f"there is no attack called {name!r}; there are {', '.join(known)}")
    found = [known[name] for name in dict.fromkeys(names)]
    return tuple(sorted(found, key=lambda attack: attack.baseline))
