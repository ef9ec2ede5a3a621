"""Models of a user's own training loop: trained once, and kept between runs.

The loop may take minutes, and several stages of an audit need the released models. What an attack
trains for itself is kept apart, as shadow models are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exhume.audit.setting import ThreatSetting
from exhume.protocol.arrays import Array
from exhume.protocol.errors import InputError
from exhume.protocol.mechanism import layers
from exhume.protocol.release import Outputs, Release, Weights
from exhume.protocol.version import __version__
from exhume.runtime.cache import Cache, shelf_name, user_cache
from exhume.runtime.fingerprint import fingerprint
from exhume.training.answers import Answers, trained_model
from exhume.training.own_loop import Loop, Repetition, repetition

_FORMAT = 1


def loop_of(setting: ThreatSetting) -> Loop | None:
    """Return the loop that a setting's models are trained by, if one of the user's own is."""
    model = trained_model(setting.mechanism)
    return model if isinstance(model, Loop) else None


def kept_release(setting: ThreatSetting, group: tuple[int, ...], seed: int) -> Release:
    """Return the release of a group of targets, from the user's cache if it is there."""
    cache, shelf = _shelf(setting)
    found = cache.computed(
        shelf,
        _name(setting, group, seed),
        lambda: _numbered(setting.published([group], seed)[0]),
        about="a model of your own loop",
        wait=True,
    )
    assert found is not None
    return _release(setting, found)


def untrained(
    setting: ThreatSetting, groups: Sequence[tuple[int, ...]], seed: int
) -> list[tuple[int, ...]]:
    """Return the groups whose release isn't in the cache; none where nothing can be kept."""
    cache, shelf = _shelf(setting)
    if cache.folder is None:
        return []
    return [g for g in groups if cache.load(shelf, _name(setting, g, seed)) is None]


def repeated(setting: ThreatSetting) -> Repetition:
    """Train twice with one seed, or return what came of it before."""
    import numpy as np

    loop, (cache, shelf) = loop_of(setting), _shelf(setting)
    assert loop is not None
    found = cache.computed(
        shelf,
        "repetition",
        lambda: {"difference": np.array([repetition(loop, setting.fixed_set).difference])},
        about="a loop run twice",
        wait=True,
    )
    assert found is not None
    return Repetition(loop.code.source, float(found["difference"][0]))


def about_loop(setting: ThreatSetting) -> tuple[str, ...]:
    """Say what training twice with one seed came to; refuse a file that is no model of the loop."""
    loop = loop_of(setting)
    if loop is None:
        return ()
    found = repeated(setting)
    if isinstance(setting.given, Weights):
        wake(setting)
        reason = loop.misfit(setting.given)
        if reason is not None:
            raise InputError(f"setting {setting.name!r}: the released file: {reason}")
    if found.exact or loop.seed is None:
        return (found.describe(),)
    return (f"{found.describe()} The adversary cannot repeat the training, seed or not.",)


def wake(setting: ThreatSetting) -> None:
    """Train once, if it has not shown in this process what the setting's loop returns."""
    loop = loop_of(setting)
    if loop is not None and not loop.awake:
        loop.trained(setting.fixed_set, 0)


def _shelf(setting: ThreatSetting) -> tuple[Cache, str]:
    try:
        source = fingerprint(_FORMAT, __version__, setting.mechanism, setting.fixed_set)
    except InputError:
        return Cache(None), ""
    return user_cache(), shelf_name("victims", source)


def _name(setting: ThreatSetting, group: tuple[int, ...], seed: int) -> str:
    assert setting.targets is not None
    return fingerprint(setting.name, group, seed, setting.targets.take(list(group)))[:40]


def _numbered(release: Release) -> dict[str, Array]:
    """Return a release's arrays, with their places in their names: files forget the order."""
    if isinstance(release, Outputs):
        return {"0000 values": release.values}
    return {f"{place:04d} {name}": array for place, (name, array) in enumerate(release.arrays())}


def _release(setting: ThreatSetting, arrays: Mapping[str, Array]) -> Release:
    own = {name.partition(" ")[2]: arrays[name] for name in sorted(arrays)}
    asked = [one for one in layers(setting.mechanism) if isinstance(one, Answers)]
    if asked:
        return Outputs(asked[0].queries, own["values"], asked[0].answer)
    return Weights(own)
