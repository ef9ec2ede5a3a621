"""The attacks that audits know by name: which there are, their options, and where each is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

from exhume import attacks
from exhume.protocol.attack import Attack, ThreatModel
from exhume.protocol.errors import InputError
from exhume.protocol.names import meant, no_such

if TYPE_CHECKING:
    from exhume.attacks.informed.membership import MembershipAttack

ATTACKS: tuple[type[Attack], ...] = tuple(
    getattr(attacks, name) for name in attacks.__all__ if name != "Attack"
)
"""In the order of ``exhume.attacks.__all__``."""


def names_for(threat: ThreatModel) -> tuple[str, ...]:
    """Return the attacks that are run on a threat model where none is named.

    >>> names_for(ThreatModel.LINEAR_MODEL)
    ('glm', 'scaler-moments')
    """
    return tuple(attack.name for attack in ATTACKS if attack.made_for is threat)


def attack_named(name: str, options: Mapping[str, object] | None = None) -> Attack:
    """Return an attack by its name, with ``options`` in place of its default settings.

    The attack checks their values itself.

    >>> attack_named("ridge", {"shadows": 500})
    Ridge(layers=None, shadows=500)
    """
    known = {attack.name: attack for attack in ATTACKS}
    if name not in known:
        raise InputError(no_such("attack", name, known))
    # Every attack is a frozen dataclass, which its base class can't say.
    made = cast(Any, known[name])
    settings = [field.name for field in fields(made)]
    for key in options or {}:
        if key not in settings:
            close = meant(key, settings)
            there = f"its options are {', '.join(settings) or 'none'}"
            which = there if close is None else f"did you mean {close!r}?"
            raise InputError(f"{name} has no option {key!r}; {which}")
    try:
        return cast(Attack, made(**(options or {})))
    except TypeError as error:
        raise InputError(f"options of {name}: {error}") from None


def membership_test(
    name: str, attack: Attack | None = None, *, models: int | None = None
) -> MembershipAttack:
    """Return a membership test by its name; ``by-reconstruction`` goes by an ``attack``.

    ``models`` says how many shadow models a test trains per candidate, where it trains any.

    >>> membership_test("loss-threshold")
    LossThreshold(models=16)
    """
    from exhume.attacks.informed import membership

    tests: tuple[type[MembershipAttack], ...] = (
        *(membership.Retraining, membership.ShadowModels, membership.NearestMean),
        *(membership.LossThreshold, membership.ByReconstruction),
    )
    known = {test.name: test for test in tests}
    if name not in known:
        raise InputError(no_such("membership test", name, known))
    if known[name] is not membership.ByReconstruction:
        made = known[name]()
        if models is not None and isinstance(made, membership.ShadowTest):
            return cast("MembershipAttack", replace(cast(Any, made), models=models))
        return made
    if attack is None:
        raise InputError(f"{name} needs the attack whose reconstructions it uses")
    return membership.ByReconstruction(attack)
