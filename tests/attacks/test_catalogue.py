"""The catalogue: every attack there is, once, by its name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from inspect import isabstract

import pytest

from exhume import attacks, membership
from exhume.attacks.catalogue import ATTACKS, attack_named, membership_test, names_for
from exhume.protocol.attack import Attack, ThreatModel
from exhume.protocol.errors import InputError


def concrete(kind: type) -> Iterator[type]:
    """Yield the attacks of the package that derive from ``kind`` and are not abstract."""
    for one in kind.__subclasses__():
        if one.__module__.startswith("exhume.attacks") and not isabstract(one):
            yield one
        yield from concrete(one)


def test_it_holds_every_attack_of_the_package_once() -> None:
    assert all(issubclass(one, Attack) for one in ATTACKS)
    assert set(ATTACKS) == set(concrete(Attack))
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)


def test_blind_guesses_come_last_and_are_made_for_nothing() -> None:
    blind = [attack.baseline for attack in ATTACKS]
    assert blind == sorted(blind)
    assert all(attack.made_for is None for attack in ATTACKS if attack.baseline)


@pytest.mark.parametrize(
    ("threat", "names"),
    [
        (ThreatModel.LINEAR_MODEL, ("glm", "scaler-moments")),
        (ThreatModel.NETWORK, ("trajectory-inversion", "ridge", "reconstructor")),
        (ThreatModel.TRANSCRIPT, ("prior-aware", "last-iterate")),
        (
            ThreatModel.GRADIENT,
            (
                *("first-layer", "sparsity", "cocktail", "imprint", "features"),
                *("dlg", "idlg", "geiping", "batch-norm", "liu", "generative-prior"),
            ),
        ),
        (ThreatModel.TABLE_GRADIENT, ("tableak",)),
        (
            ThreatModel.WEIGHTS_ALONE,
            ("row-space", "kkt", "known-initialisation", "change-sparsity"),
        ),
    ],
)
def test_what_is_run_unasked(threat: ThreatModel, names: tuple[str, ...]) -> None:
    assert names_for(threat) == names


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_name_makes_the_attack_with_its_defaults(attack: type[Attack]) -> None:
    assert attack_named(attack.name) == attack()


def test_options_are_settings_and_nothing_else() -> None:
    assert attack_named("kkt", {"draws": 7}) == attacks.KKT(draws=7)
    with pytest.raises(InputError, match="no attack called 'kkd'; there are glm, "):
        attack_named("kkd")
    with pytest.raises(InputError, match="ridge has no option 'models'; its options are layers, "):
        attack_named("ridge", {"models": 7})
    with pytest.raises(InputError, match="scaler-moments has no option 'x'; its options are none"):
        attack_named("scaler-moments", {"x": 1})
    with pytest.raises(InputError, match="options of ridge: "):
        attack_named("ridge", {"shadows": "many"})


def test_membership_tests_have_names_too() -> None:
    for test in (membership.Retraining(), membership.ShadowModels(), membership.NearestMean()):
        assert membership_test(test.name) == test
    assert membership_test("by-reconstruction", attacks.GLM()).attack == attacks.GLM()
    with pytest.raises(InputError, match="by-reconstruction needs the attack"):
        membership_test("by-reconstruction")
    with pytest.raises(InputError, match="no membership test called 'loss'; there are retraining,"):
        membership_test("loss")


def test_listing_the_attacks_needs_no_pytorch() -> None:
    code = (
        "import exhume.attacks.catalogue, exhume.cli.main, sys; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
