"""Attacks by the names that a configuration knows them by."""

from __future__ import annotations

from collections.abc import Sequence

from exhume import attacks
from exhume.attacks import Attack
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
        attacks.Oblivious(),
        attacks.ConditionalGuess(),
    )


def attacks_named(names: Sequence[str] | None) -> tuple[Attack, ...]:
    """Return the attacks called ``names`` (None: all), and always the baselines."""
    known = {attack.name: attack for attack in known_attacks()}
    chosen = list(known) if names is None else list(dict.fromkeys(names))
    for name in chosen:
        if name not in known:
            raise InputError(f"there is no attack called {name!r}; there are {', '.join(known)}")
    baselines = [n for n, attack in known.items() if attack.baseline and n not in chosen]
    return tuple(known[name] for name in [*chosen, *baselines])
